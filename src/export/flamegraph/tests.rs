use inferno::flamegraph as inferno_graph;
use proptest::prelude::*;

use super::*;
use crate::profile::sample_profiles::{Builder, any_profile, example, hostile, native, task};
use crate::profile::{Mode, Selection};

/// A frame in the markup: its position and width in percent, its name, and the facts below the name.
#[derive(Debug, Clone, PartialEq)]
struct Shown {
    x: f64,
    width: f64,
    y: usize,
    name: String,
    facts: String,
    color: String,
    class: String,
}

/// Returns the frames. Panics if the markup is not that of frames.
fn frames(svg: &str) -> Vec<Shown> {
    let frame = |text: &str| {
        let value = |key: &str| text.split_once(key).unwrap().1.split_once('"').unwrap().0.to_owned();
        let percent = |key: &str| value(key).strip_suffix('%').unwrap().parse::<f64>().unwrap();
        let title = text.split_once("<title>").unwrap().1.split_once("</title>").unwrap().0;
        assert!(!title.contains(['<', '>']), "{title}");
        let (name, facts) = title.split_once('\n').unwrap();
        Shown {
            x: percent(" x=\""),
            width: percent(" width=\""),
            y: value(" y=\"").parse().unwrap(),
            name: name.to_owned(),
            facts: facts.to_owned(),
            color: value("fill=\""),
            class: text.split_once('"').unwrap().0.to_owned(),
        }
    };
    svg.split("<svg class=\"").skip(1).map(frame).collect()
}

fn draw(profile: &Profile) -> String {
    draw_with(profile, Options::default())
}

fn draw_with(profile: &Profile, options: Options<'_>) -> String {
    standalone(profile, options, "nothing")
}

fn frame<'f>(frames: &'f [Shown], name: &str) -> &'f Shown {
    frames.iter().find(|frame| frame.name == name).unwrap_or_else(|| panic!("{name}: {frames:#?}"))
}

#[test]
fn the_picture_shows_what_the_profile_says() {
    let svg = draw(&example());
    let frames = frames(&svg);
    let all = frame(&frames, "all");
    assert_eq!((all.x, all.width, &*all.facts), (0.0, 100.0, "18,368 ms, 100.00%"));
    assert_eq!(frame(&frames, "do_syscall_64").facts, "2,842 ms, 15.47%");
    assert!(svg.contains("CPU time") && svg.contains("2025-11-21 08:52:06 UTC"));
    assert!(svg.contains("lost: 12 (ring_full), 3 (throttled)"));
}

#[test]
fn the_outermost_functions_are_at_the_top_unless_a_flame_is_wanted() {
    let y = |shape, name: &str| {
        let svg = draw_with(&example(), Options { shape, ..Options::default() });
        frame(&frames(&svg), name).y
    };
    assert!(y(Shape::default(), "all") < y(Shape::default(), "PostgresMain"));
    assert!(y(Shape::Flame, "all") > y(Shape::Flame, "PostgresMain"));
}

#[test]
fn the_same_profile_is_the_same_picture() {
    assert_eq!(draw(&example()), draw(&example()));
}

/// Draws with inferno, and returns the position and width of each frame in values, its line from the outermost, and its name.
fn drawn_by_inferno(profile: &Profile) -> Vec<(u64, u64, usize, String)> {
    let folded = Folded::new(profile, folded::Options::default()).text(true);
    let mut options = inferno_graph::Options::default();
    options.min_width = 0.0;
    options.deterministic = true;
    // Reads the lines in reverse order, and does not require the order of bytes.
    options.flame_chart = true;
    options.direction = inferno_graph::Direction::Inverted;
    let mut svg = Vec::new();
    inferno_graph::from_lines(&mut options, folded.lines().rev(), &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    let frame = |text: &str| {
        let (title, rest) = text.split_once("</title>").unwrap();
        let value =
            |key: &str| rest.split_once(key).unwrap().1.split_once('"').unwrap().0.parse::<u64>().unwrap();
        let name = title.rsplit_once(" (").unwrap().0.to_owned();
        (value("fg:x=\""), value("fg:w=\""), value(" y=\"") as usize, name)
    };
    let mut all: Vec<_> = svg.split("<title>").skip(1).map(frame).collect();
    let top = all.iter().map(|frame| frame.2).min().unwrap();
    all.iter_mut().for_each(|frame| frame.2 = (frame.2 - top) / 16);
    all
}

#[test]
fn the_frames_are_those_of_inferno() {
    let total = example().total() as f64;
    let top = frames(&draw(&example())).iter().map(|frame| frame.y).min().unwrap();
    let mut own: Vec<_> = (frames(&draw(&example())).into_iter())
        .map(|frame| {
            let value = |percent: f64| (percent * total / 100.0 / 1e6).round() as u64;
            (value(frame.x), value(frame.width), (frame.y - top) / 18, frame.name)
        })
        .collect();
    let scaled = |value: u64| (value as f64 / 1e6).round() as u64;
    let mut of_inferno: Vec<_> = (drawn_by_inferno(&example()).into_iter())
        .map(|(x, width, line, name)| (scaled(x), scaled(width), line, name.replace("&amp;", "&")))
        .collect();
    own.sort();
    of_inferno.sort();
    assert_eq!(own, of_inferno);
}

#[test]
fn a_function_beside_another_that_begins_like_it_stands_once() {
    let mut builder = Builder::default();
    let program = task(1, "a", "/");
    let at = |name| native("/bin/a", name);
    builder
        .add(&program, Mode::User, 10, &[at("main")])
        .add(&program, Mode::User, 10, &[at("main::f"), at("x")])
        .add(&program, Mode::User, 10, &[at("main"), at("y")]);
    let frames = frames(&draw(&builder.0));
    assert_eq!(frames.iter().filter(|frame| frame.name == "main").count(), 1, "{frames:?}");
}

#[test]
fn a_function_is_between_its_callers_and_its_callees() {
    let options = Options { view: View::Function("ExecProcNode"), ..Options::default() };
    let frames = frames(&draw_with(&example(), options));
    let y = |name| frame(&frames, name).y;
    assert!(y("postgres") < y("PostgresMain") && y("PostgresMain") < y("ExecProcNode"));
    assert!(y("ExecProcNode") < y("hash_search"));
    let own = frame(&frames, "ExecProcNode");
    assert_eq!((own.width, &*own.facts), (100.0, "2,368 ms, 12.89%"));
    assert!(frames.iter().all(|frame| frame.name != "all" && frame.name != "nginx"));
    let missing = Options { view: View::Function("no<such"), ..Options::default() };
    let sentence = draw_with(&example(), missing);
    assert!(
        sentence.contains("no stack of the selection contains the function &quot;no&lt;such&quot;"),
        "{sentence}"
    );
}

#[test]
fn inverted_stacks_begin_with_the_innermost_functions() {
    let frames = frames(&draw_with(&example(), Options { view: View::Inverted, ..Options::default() }));
    let second = frames.iter().map(|frame| frame.y).min().unwrap() + 18;
    let names: Vec<_> = frames.iter().filter(|frame| frame.y == second).map(|frame| &*frame.name).collect();
    assert!(names.contains(&"hash_search") && !names.contains(&"_start"), "{names:?}");
}

#[test]
fn a_search_highlights_frames_and_their_share() {
    let search = |term| Options { search: Some(term), ..Options::default() };
    let found = |term| {
        let drawn = embedded(&example(), search(term), "00").unwrap();
        let mut found: Vec<_> = frames(drawn.as_str())
            .into_iter()
            .filter(|frame| frame.class.ends_with(" m"))
            .map(|frame| frame.name)
            .collect();
        found.dedup();
        (found, (drawn.matched.unwrap() * 100.0).round() / 100.0)
    };
    assert_eq!(found("^DO_sys"), (vec!["do_syscall_64".to_owned()], 15.47));
    assert_eq!(found("start\\("), (vec!["node::Start(int, char**)".to_owned()], 50.72));
    assert_eq!(found("Start(int"), (vec!["node::Start(int, char**)".to_owned()], 50.72));
    assert_eq!(found("^all$"), (vec![], 0.0));
    // A search may not take long: a term that is too large matches nothing.
    assert_eq!(found("((a{100}){100}){100}"), (vec![], 0.0));
}

/// Returns the example without the database and with half of the time in the kernel.
fn base() -> Profile {
    let mut base = example();
    for sample in &mut base.samples {
        let task = &base.tasks[sample.task as usize];
        match sample.mode {
            _ if &*task.comm == "postgres" => sample.value = 0,
            Mode::Kernel => sample.value /= 2,
            _ => {}
        }
    }
    base
}

#[test]
fn a_comparison_colors_frames_by_the_change_of_their_share() {
    let base = base();
    let options = Options { base: Some(&base), ..Options::default() };
    let svg = draw_with(&example(), options);
    let frames = frames(&svg);
    let new = frame(&frames, "PostgresMain");
    assert_eq!(new.facts, "2,368 ms, 0.00% \u{2192} 12.89% (+12.89 points)");
    let red = |color: &str| {
        u8::from_str_radix(&color[1..3], 16).unwrap() > u8::from_str_radix(&color[5..7], 16).unwrap()
    };
    assert!(red(&new.color), "{}", new.color);
    let less = frame(&frames, "node");
    assert!(!red(&less.color) && less.facts.contains("(\u{2212}"), "{less:?}");
    assert!(svg.contains("red: larger share than in the base, blue: smaller"));
    let drawn = embedded(&example(), options, "00").unwrap();
    assert!(drawn.largest_change.unwrap() > 12.0);
}

#[test]
fn a_comparison_without_normalization_shows_the_change_of_the_load() {
    let mut twice = example();
    twice.samples.iter_mut().for_each(|sample| sample.value *= 2);
    let with = |normalized: bool| {
        let frames = frames(&draw_with(
            &example(),
            Options { base: Some(&twice), absolute: !normalized, ..Options::default() },
        ));
        frame(&frames, "all").facts.clone()
    };
    assert_eq!(with(true), "18,368 ms, 100.00% \u{2192} 100.00% (0.00 points)");
    assert_eq!(with(false), "18,368 ms, 200.00% \u{2192} 100.00% (\u{2212}100.00 points)");
}

#[test]
fn an_empty_profile_is_a_sentence_and_no_error() {
    let empty = example().select(&Selection { pid: Some(1), ..Selection::default() });
    let text = nothing(&empty, 5);
    let svg = standalone(&empty, Options::default(), &text);
    assert!(
        svg.contains("no sample in 1\u{a0}min 0\u{a0}s matches the selection; without it there are 5"),
        "{svg}"
    );
    assert!(embedded(&empty, Options::default(), "00").is_none());
    assert!(nothing(&empty, 0).contains("all were lost, 12 (ring_full), 3 (throttled)"));
    assert_eq!(
        nothing(&Profile::default(), 0),
        "no samples so far: no sampled task ran, or sampling has just started"
    );
}

#[test]
fn hostile_names_are_text_in_the_picture() {
    let base = example();
    for options in [
        Options::default(),
        Options { view: View::Function("</script><script>alert(1)</script>"), ..Options::default() },
        Options { base: Some(&base), view: View::Inverted, title: Some("</title>"), ..Options::default() },
    ] {
        let svg = draw_with(&hostile(), options);
        assert_eq!((svg.matches("<script").count(), svg.matches("</script").count()), (1, 1));
        assert!(svg.len() < 200_000, "{}", svg.len());
        assert!(!frames(&svg).is_empty());
        assert!(!svg.contains(|c: char| c.is_control() && c != '\n'));
    }
}

#[test]
fn what_is_embedded_has_no_handler_and_only_the_script_with_the_nonce() {
    let markup = embedded(&hostile(), Options::default(), "c0ffee").unwrap();
    let markup = markup.as_str();
    assert!(markup.starts_with("<svg "));
    assert_eq!(markup.matches("<script").count(), 1);
    assert_eq!(markup.matches(" nonce=\"c0ffee\">").count(), 1);
    for handler in ["onload=", "onclick=", "onmouse", "javascript:"] {
        assert!(!markup.contains(handler) && !draw(&example()).contains(handler), "{handler}");
    }
}

#[test]
fn a_picture_of_many_stacks_stays_small() {
    let mut builder = Builder::default();
    let program = task(1, "a", "/");
    let names: Vec<String> = (0..60).map(|n| format!("function_{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        let inner = names.iter().skip(n).map(|name| native("/bin/a", name));
        let stack: Vec<_> = [native("/bin/a", name)].into_iter().chain(inner).collect();
        builder.add(&program, Mode::User, 1 + n as u64 * 1000, &stack);
    }
    let svg = draw(&builder.0);
    assert!(svg.len() < SIZE && svg.contains("function_59") && !svg.contains("function_0\n"));
}

#[test]
fn a_total_beyond_what_scripts_can_count_is_drawn() {
    let mut profile = example();
    profile.samples.iter_mut().for_each(|sample| sample.value = u64::MAX);
    assert!(!frames(&draw(&profile)).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_whole_width_is_the_total(base in any_profile(), profile in any_profile()) {
        for base in [None, Some(&base)] {
            let options = Options { base, ..Options::default() };
            let svg = draw_with(&profile, options);
            let frames = frames(&svg);
            prop_assert_eq!(frames.is_empty(), profile.total() == 0);
            let first = frames.iter().filter(|frame| frame.class == "f r" && frame.name != "all");
            let sum: f64 = first.map(|frame| frame.width).sum();
            // Frames narrower than a thousandth are omitted.
            prop_assert!(profile.total() == 0 || (sum - 100.0).abs() < 1.5, "{}", sum);
        }
    }
}
