//! Expressions on arbitrary texts, and the built-in metrics on hosts with the CPU models that they are for.

mod builtin;
mod machines;

use proptest::prelude::*;

use super::*;

/// Evaluates an expression. Counts are those of single letters: `a` is 1, `b` is 2; `none` and other names have no count.
fn value(text: &str) -> Option<f64> {
    let expression = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    expression.evaluate(&|operand| match operand {
        Operand::Event { key, .. } => match key.as_bytes() {
            [letter] => Some(f64::from(letter - b'a' + 1)),
            _ => None,
        },
        Operand::Elapsed => Some(2.0),
        Operand::Constant(_) => Some(4.0),
    })
}

#[test]
fn expressions_have_the_precedence_of_perf() {
    for (text, expected) in [
        ("b + c * d", 14.0),
        ("(b + c) * d", 20.0),
        ("d - b - a", 1.0),
        ("d / b / b", 1.0),
        ("e % c", 2.0),
        ("-b + c", 1.0),
        ("--b", 2.0),
        ("a < b", 1.0),
        ("a + a >= b", 1.0),
        ("a == b", 0.0),
        ("a != b & a <= b", 1.0),
        ("a > b | b > a", 1.0),
        ("a if b > a else c", 1.0),
        ("a if a > b else c if a > b else d", 4.0),
        ("(a if a > b else c) + a", 4.0),
        ("min(a, b) + max(c, d)", 5.0),
        ("d_ratio(a, b)", 0.5),
        ("d_ratio(a, 0)", 0.0),
        ("1e2 + 0x10 + .5", 116.5),
        ("1.5e-1*b", 0.3),
        ("a/duration_time", 0.5),
        ("#num_cpus * #SMT_on", 16.0),
    ] {
        assert_eq!(value(text), Some(expected), "{text}");
    }
}

#[test]
fn missing_counts_and_zero_divisors_have_no_value() {
    for text in [
        "a / 0",
        "a % (b - b)",
        "none + 1",
        "max(none, a)",
        "a if none else b",
        "1e308 * 10",
        "1 / (1 / 1e308) * 1e308",
    ] {
        assert_eq!(value(text), None, "{text}");
    }
    // Only the chosen branch is needed.
    assert_eq!(value("a if b > a else none"), Some(1.0));
}

#[test]
fn hyphens_belong_to_names_after_a_backslash_and_in_known_names() {
    for (text, events) in [
        ("L1-dcache-loads-L1-dcache-load-misses", "L1-dcache-loads L1-dcache-load-misses"),
        ("branch-misses/branches", "branch-misses branches"),
        ("cycles-instructions", "cycles instructions"),
        ("topdown\\-retiring / slots", "topdown-retiring slots"),
        ("my\\-event - other", "my-event other"),
        ("a-b", "a b"),
        ("cpu@event\\=0x3c\\,umask\\=0x1@ / cycles", "cpu/event=0x3c,umask=0x1/ cycles"),
        ("cpu/event=0x3c/u/2", "cpu/event=0x3c/u"),
        ("uncore_imc/cas_count_read/ * 64", "uncore_imc/cas_count_read/"),
        ("inst_retired.any/uops", "inst_retired.any uops"),
        ("cycles:u + cycles:k", "cycles:u cycles:k"),
        ("sched:sched_switch:u / 2", "sched:sched_switch:u"),
        ("r1a8 + exe_activity.1_ports_util", "r1a8 exe_activity.1_ports_util"),
        ("software@task\\-clock\\,name\\=task\\-clock@", "software/task-clock/"),
    ] {
        let expression = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found: Vec<String> = expression.events().iter().map(ToString::to_string).collect();
        assert_eq!(found.join(" "), events, "{text}");
    }
}

#[test]
fn an_error_has_its_column_and_what_is_expected() {
    for (text, at, words) in [
        ("", 0, "a value is missing"),
        ("cycles +", 8, "a value is missing"),
        ("cycles instructions", 7, "expected an operator"),
        ("(cycles", 0, "not closed"),
        ("cycles)", 6, "closed that was not opened"),
        ("min(a)", 5, "two arguments"),
        ("avg(a, b)", 0, "no function avg"),
        ("#cores", 0, "#num_cores"),
        ("a if b", 6, "expected `else`"),
        ("if a", 0, "a value is missing before `if`"),
        ("cycles:pp", 0, "sampling and scheduling"),
        ("mem:0x10", 0, "breakpoints"),
        ("a \\b", 2, "expected an operator"),
        ("\\b", 0, "not the begin"),
        ("a@b", 1, "second @"),
        ("1.2.3", 0, "is not a number"),
        ("1e999", 0, "is not a number"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.at == at && error.to_string().contains(words), "{text}: {} {error}", error.at);
    }
}

#[test]
fn size_and_depth_are_bounded() {
    for (text, words) in [
        ("(".repeat(1000), "nested levels"),
        ("-".repeat(1000), "nested levels"),
        ("1 if 1 else ".repeat(100), "nested levels"),
        (format!("a{}", "+a".repeat(400)), "operands"),
        ("a".repeat(300), "too long"),
        ("a+".repeat(4000), "longer than 4 KiB"),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(parse(&format!("{}a{}", "(".repeat(60), ")".repeat(60))).is_ok());
}

#[test]
fn properties_of_the_host_decide_conditions_and_their_events() {
    let expression = parse("4 * (thread_any / 2 if #smt_on else thread) + #slots").unwrap();
    let on = |smt: f64| {
        let constant = |constant| (constant == Constant::SmtOn).then_some(smt);
        expression.on_host(&constant)
    };
    assert_eq!(on(1.0).to_string(), "4 * (thread_any / 2) + #slots");
    assert_eq!(on(0.0).to_string(), "4 * thread + #slots");
    assert_eq!(on(0.0).constants(), [Constant::Slots]);
}

/// An expression tree of any shape.
fn any_tree() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[a-z]{1,3}_[a-z.]{1,5}",
        "(cycles|L1-dcache-loads|topdown-retiring|my\\\\-event|cycles:u|sched:sched_switch)",
        "(cpu/event=0x3c,umask=1/|uncore_imc/cas_count_read/|power@energy\\\\-pkg@|cpu/event=1/u)",
        "(duration_time|#slots|#num_cpus|7|0\\.25|1e20|2e-9)",
    ];
    leaf.prop_recursive(6, 60, 3, |inner| {
        let operator = prop_oneof!["[-+*/%<>&|]", "(<=|>=|==|!=)"];
        prop_oneof![
            (inner.clone(), operator, inner.clone())
                .prop_map(|(a, operator, b)| format!("({a}) {operator} ({b})")),
            (inner.clone(), "[-+*/%<>&|]", inner.clone())
                .prop_map(|(a, operator, b)| format!("{a} {operator} {b}")),
            inner.clone().prop_map(|a| format!("-({a})")),
            ("(min|max|d_ratio)", inner.clone(), inner.clone())
                .prop_map(|(name, a, b)| format!("{name}({a}, {b})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a}) if ({b}) else ({c})")),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _parsed = parse(&text);
    }

    #[test]
    fn no_mix_of_tokens_panics_and_each_result_is_finite(
        tokens in prop::collection::vec("(a|b|cycles|if|else|min|max|\\(|\\)|,|#slots|#x|1e9|0x|@|/|\\\\-|-|\\+|\\*|<=|!=| |:u)", 0..40)
    ) {
        if let Ok(expression) = parse(&tokens.concat()) {
            let value = expression.evaluate(&|_| Some(3.5));
            prop_assert!(value.is_none_or(f64::is_finite));
        }
    }

    #[test]
    fn the_printed_form_parses_to_the_same_tree(text in any_tree()) {
        if let Ok(expression) = parse(&text) {
            let printed = expression.to_string();
            let again = parse(&printed);
            prop_assert_eq!(again.as_ref().ok(), Some(&expression), "{} printed as {}: {:?}", text, printed, again);
        }
    }
}

#[test]
fn expressions_become_promql_over_rates() {
    for (text, expected) in [
        ("instructions / cycles", Some("R(instructions) / (R(cycles) > 0)")),
        ("1000 * a / (b + c)", Some("1000 * R(a) / (R(b) + R(c) > 0)")),
        ("1 - (a + b) / c / 4", Some("1 - (R(a) + R(b)) / (R(c) > 0) / 4")),
        ("(a - (b - c)) / duration_time", Some("R(a) - (R(b) - R(c))")),
        ("max(0, a - b) / c", Some("clamp_min(R(a) - R(b), 0) / (R(c) > 0)")),
        ("a * (b / duration_time) * -c", Some("R(a) * R(b) * (-(R(c)))")),
        ("max(a, b)", None),
        ("a / #slots", None),
        ("a if b else c", None),
        ("d_ratio(a, b)", None),
    ] {
        let rate = |event: &crate::event::syntax::Event| Some(format!("R({event})"));
        assert_eq!(parse(text).unwrap().promql(&rate).as_deref(), expected, "{text}");
    }
}
