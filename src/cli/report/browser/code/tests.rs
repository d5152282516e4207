use super::*;

/// Returns a function with a loop: two source lines, a jump back, a jump out of it, and a hot instruction.
pub(in crate::cli::report::browser) fn annotated() -> Annotated {
    let source = |line, text: &str| Row::Source {
        file: "/src/hot.c".into(),
        line,
        text: Some(text.to_owned()),
        value: 0,
    };
    let code = |address, text: &str, value, jump| Row::Instruction {
        address,
        text: text.to_owned(),
        value,
        samples: value,
        jump,
    };
    Annotated {
        function: "burns".to_owned(),
        module: "/usr/bin/hot".to_owned(),
        event: "cpu-clock".to_owned(),
        nanoseconds: false,
        value: 100,
        samples: 100,
        total: 200,
        rows: vec![
            source(29, "for (unsigned long i = 0; i < n; i++)"),
            code(0x12b0, "test   %rdi,%rdi", 0, None),
            code(0x12b3, "je     12e1 <burns+0x31>", 0, Some(7)),
            source(30, "  sink += i * i;"),
            code(0x12c0, "mov    %rax,%rdx", 15, None),
            code(0x12d5, "mov    %rdx,0x2dd4(%rip)", 80, None),
            code(0x12df, "jne    12c0 <burns+0x10>", 5, Some(4)),
            code(0x12e1, "ret", 0, None),
        ],
        notes: vec!["hot.c is newer than the program".to_owned()],
    }
}

/// Returns the text of the selected row after keys.
fn selected(code: &mut Code, keys: &[KeyCode]) -> String {
    keys.iter().for_each(|key| assert!(code.press(*key, 10), "{key:?}"));
    code.line(code.cursor.at())
}

fn letters(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

#[test]
fn the_hottest_instruction_is_selected_at_first_and_tab_goes_to_the_next_ones() {
    let mut code = Code::new(annotated());
    assert!(selected(&mut code, &[]).starts_with("   80.00"));
    for share in ["   15.00", "    5.00", "   80.00"] {
        assert!(selected(&mut code, &[KeyCode::Tab]).starts_with(share));
    }
    assert!(selected(&mut code, &[KeyCode::BackTab]).starts_with("    5.00"));
    assert!(selected(&mut code, &[KeyCode::Home, KeyCode::Char('H')]).starts_with("   80.00"));
    assert!(selected(&mut code, &[KeyCode::Home, KeyCode::Tab]).starts_with("   80.00"));
}

#[test]
fn j_jumps_to_the_target_to_which_an_arrow_leads() {
    let mut code = Code::new(annotated());
    selected(&mut code, &[KeyCode::Down]);
    let arrows: Vec<String> =
        (0..code.len()).map(|place| code.line(place).chars().skip(11).take(2).collect()).collect();
    assert_eq!(arrows, ["  ", "  ", "  ", "  ", "\u{250c}>", "\u{2502} ", "\u{2514}\u{2500}", "  "]);
    assert!(selected(&mut code, &letters("j")).contains("12c0:"));
    assert!(selected(&mut code, &letters("j")).contains("12c0:"), "it is no jump");
    selected(&mut code, &[KeyCode::Home, KeyCode::Down, KeyCode::Down]);
    assert!(code.line(7).contains("\u{2514}>") && code.line(2).contains("\u{2193} je"));
    assert!(selected(&mut code, &[KeyCode::Enter]).ends_with("ret"));
}

#[test]
fn s_hides_source_lines_and_the_selected_instruction_stays_selected() {
    let mut code = Code::new(annotated());
    assert!(selected(&mut code, &letters("s")).starts_with("   80.00"));
    assert_eq!(code.len(), 6);
    // The arrow leads to the same instruction.
    selected(&mut code, &[KeyCode::Down]);
    assert!(selected(&mut code, &letters("j")).contains("12c0:"));
    assert!(selected(&mut code, &letters("s")).contains("12c0:"));
    assert_eq!(code.len(), 8);
    assert!(selected(&mut code, &[KeyCode::Up, KeyCode::Char('s')]).contains("12c0:"), "the next row");
}

#[test]
fn n_finds_the_next_row_with_a_text_and_capital_n_the_previous_one() {
    let mut code = Code::new(annotated());
    assert!(selected(&mut code, &letters("n")).starts_with("   80.00"), "nothing is searched");
    code.search = "MOV".to_owned();
    assert!(selected(&mut code, &letters("n")).contains("12c0:"));
    assert!(selected(&mut code, &letters("n")).contains("12d5:"));
    assert!(selected(&mut code, &letters("N")).contains("12c0:"));
    code.search = "sink".to_owned();
    assert!(selected(&mut code, &letters("n")).contains("hot.c:30"));
    code.search = "absent".to_owned();
    assert!(selected(&mut code, &letters("nN")).contains("hot.c:30"));
    assert!(!code.press(KeyCode::Char('x'), 10));
}

#[test]
fn hostile_texts_are_made_printable() {
    let mut hostile = annotated();
    hostile.function = "\u{1b}[2J".to_owned();
    if let Some(Row::Instruction { text, .. }) = hostile.rows.get_mut(1) {
        *text = "call <\u{1b}[31m>".to_owned();
    }
    let code = Code::new(hostile);
    assert!(!(code.title() + &code.line(1)).contains('\u{1b}'));
}
