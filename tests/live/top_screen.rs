//! `perf-exporter top` on a terminal: keys typed into tmux, and the screen that it then shows.

use rustix::process::{Signal, kill_process};

use crate::screen::{PERF_EXPORTER, Screen};
use crate::support::program::{Program, Running};
use crate::support::{Feature, lacks};

fn lacks_terminal() -> bool {
    lacks(Feature::Tmux) || lacks(Feature::Compiler) || lacks(Feature::Software)
}

/// Starts `top` for a process.
fn starts_top(screen: &Screen, running: &Running, options: &str) {
    screen.types(&format!("'{PERF_EXPORTER}' top -d 1 -p {} {options}; echo code=$?\n", running.pid()));
}

/// Returns the functions in the rows of a screen, in order.
fn functions(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.split_once("[.] ")).map(|(_, name)| name.trim_end()).collect()
}

/// Returns the percentages in a column of the rows of functions.
fn column(text: &str, place: usize) -> Vec<f64> {
    let rows = text.lines().filter(|line| line.contains("[.] "));
    let cells = rows.map(|row| row.split_whitespace().nth(place).unwrap());
    cells.map(|cell| cell.trim_end_matches('%').parse().unwrap()).collect()
}

/// Returns the number of samples in the second line.
fn samples(text: &str) -> Option<u64> {
    let (before, _) = text.lines().nth(1)?.split_once(" samples")?;
    let (_, digits) = before.rsplit_once(", ")?;
    digits.replace(' ', "").parse().ok()
}

/// Returns the percentage in the first column of the row of a function.
#[track_caller]
fn share(text: &str, function: &str) -> f64 {
    let row = text.lines().find(|line| line.trim_end().ends_with(&format!("[.] {function}")));
    let row = row.unwrap_or_else(|| panic!("{function} is missing:\n{text}"));
    row.split_whitespace().next().unwrap().trim_end_matches('%').parse().unwrap()
}

#[test]
fn keys_sort_filter_group_drill_in_pause_help_and_quit() {
    if lacks_terminal() {
        return;
    }
    let program = Program::compile_hot("screened", &[]);
    let mut running = program.start();
    running.told("spins 120000");
    let screen = Screen::open();
    starts_top(&screen, &running, "-F 499");
    let first =
        screen.shows("the function that is hot is first", |text| functions(text).first() == Some(&"burns"));
    assert!(share(&first, "burns") > 80.0 && first.contains("Self\u{25bc}"), "{first}");

    // Counters of the last interval: one busy thread.
    let counted = screen.shows("counters", |text| text.contains(" CPUs  ") && text.contains("page-faults/s"));
    let cpus = counted.lines().find_map(|line| line.split_once(" CPUs  ")).unwrap().0;
    let cpus: f64 = cpus.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((0.001..1.2).contains(&cpus), "{counted}");

    screen.types("t");
    let sorted = screen.shows("sorted by total", |text| text.contains("Total\u{25bc}"));
    assert!(column(&sorted, 1).is_sorted_by(|a, b| a >= b), "{sorted}");
    screen.types("n");
    let sorted = screen.shows("sorted by name", |text| text.contains("Function\u{25b2}"));
    assert!(functions(&sorted).is_sorted(), "{sorted}");
    screen.types("r");
    screen.shows("reversed", |text| text.contains("Function\u{25bc}"));
    screen.types("rs");

    screen.types("/quarter");
    let filtered = screen.shows("filtered", |text| text.contains("Filter: quarter"));
    assert!(functions(&filtered).iter().all(|name| name.contains("quarter")), "{filtered}");
    screen.presses(&["Escape"]);
    screen
        .shows("all functions again", |text| functions(text).contains(&"burns") && !text.contains("Filter"));

    screen.shows("enough samples for shares", |text| samples(text) >= Some(200));
    screen.types("/burns");
    screen.presses(&["Enter", "Enter"]);
    let callers =
        screen.shows("callers of the function", |text| text.contains("Callers and callees of burns"));
    let (three, one) = (share(&callers, "three_quarters"), share(&callers, "one_quarter"));
    assert!((one / (three + one) - 0.25).abs() < 0.12, "{callers}");
    screen.presses(&["Up", "Enter"]);
    let next = screen.shows("callers of the caller", |text| {
        text.contains("callees of one_quarter") || text.contains("callees of three_quarters")
    });
    assert!(functions(&next).contains(&"spins") && functions(&next).contains(&"burns"), "{next}");
    screen.presses(&["BSpace", "Escape"]);
    screen.shows("the table with its filter", |text| text.contains("filter: burns"));
    screen.presses(&["Escape"]);
    screen.shows("the table without its filter", |text| !text.contains("filter: burns"));

    screen.types("gg");
    let grouped = screen.shows("grouped by comm", |text| text.contains("Comm") && text.contains("screened"));
    assert!(grouped.lines().any(|line| line.contains("100.00%") && line.ends_with("screened")), "{grouped}");
    screen.shows("counters of the row", |text| {
        text.contains(" screened (1 thread):") && text.contains(" CPUs")
    });
    screen.presses(&["Enter"]);
    screen.shows("functions of the row", |text| text.contains("Functions of comm screened"));
    screen.presses(&["BSpace"]);
    screen.types("GG");
    screen.shows("grouped by function", |text| functions(text).contains(&"burns"));

    screen.types("?");
    let help = screen.shows("the help", |text| text.contains("perf-exporter top: keys"));
    assert!(help.contains("sort by Total") && help.contains("quit"), "{help}");
    screen.presses(&["Escape"]);
    screen.shows("the table again", |text| functions(text).contains(&"burns"));

    screen.types("p");
    let paused = screen.shows("paused", |text| text.lines().next().unwrap_or_default().contains("paused"));
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(screen.text(), paused, "a paused screen does not change");
    screen.types(" ");
    screen.shows("another table", |text| *text != paused && text.contains("every 1 s"));

    screen.tmux(&["resize-window", "-x", "60", "-y", "10"]);
    screen.shows("a small screen", |text| text.lines().count() <= 10 && functions(text).contains(&"burns"));

    screen.types("q");
    let ended = screen.shows("the end", |text| text.contains("code=0"));
    assert!(!ended.contains("Self"), "the screen of before is back: {ended}");
    drop(running);
}

#[test]
fn the_terminal_is_restored_at_each_end() {
    if lacks_terminal() {
        return;
    }
    let program = Program::compile_hot("restored", &[]);
    let mut running = program.start();
    running.told("spins 60000");
    let screen = Screen::open();
    let before = screen.settings("before");
    let shown = |text: &str| functions(text).contains(&"burns");
    for (name, ends, code) in [
        ("key", &["q"][..], "code=0"),
        ("interrupt", &["C-c"], "code=0"),
        // Ctrl-Z stops it, and it goes on in the foreground.
        ("suspended", &["C-z"], "code=148"),
    ] {
        starts_top(&screen, &running, "");
        screen.shows("a table", shown);
        assert_eq!(screen.modes(), "1 0 0\n");
        screen.presses(ends);
        screen.shows(name, |text| text.contains(code) && !text.contains("Self"));
        assert_eq!((screen.modes(), screen.settings(name)), ("0 1 1\n".to_owned(), before.clone()), "{name}");
    }
    screen.types("fg; echo code=$?\n");
    screen.shows("a table after it was stopped", shown);
    assert_eq!(screen.modes(), "1 0 0\n");
    screen.presses(&["q"]);
    screen.shows("the end", |text| text.contains("code=0") && !text.contains("Self"));
    assert_eq!(screen.settings("continued"), before);

    // A signal from outside, and the end of the process, which leaves the last table.
    starts_top(&screen, &running, "");
    screen.shows("a table", shown);
    kill_process(screen.foreground(), Signal::TERM).unwrap();
    screen.shows("the exit code of a signal", |text| text.contains("code=143") && !text.contains("Self"));
    assert_eq!(screen.settings("terminated"), before);
    starts_top(&screen, &running, "");
    screen.shows("a table", shown);
    drop(running);
    let last =
        screen.shows("the end of the process", |text| text.contains("ended: the processes have exited"));
    assert!(shown(&last), "{last}");
    screen.presses(&["q"]);
    screen.shows("the end", |text| text.contains("code=0"));
}
