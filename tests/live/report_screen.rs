//! `perf-exporter report` on a terminal: keys typed into tmux, and the screen that it then shows.

use rustix::process::{Signal, kill_process};

use crate::report::record;
use crate::screen::{PERF_EXPORTER, Screen};
use crate::support::program::Program;
use crate::support::{Feature, lacks};

/// Starts `report` for `perf.data` in a directory, and waits for its table.
fn starts_report(screen: &Screen, dir: &std::path::Path, options: &str) -> String {
    let input = dir.join("perf.data");
    screen.types(&format!(
        "clear; '{PERF_EXPORTER}' report -i '{}' {options}; echo code=$?\n",
        input.display()
    ));
    screen.shows("the table", |text| text.contains("event 'cpu-clock'") && text.contains("[.] burns"))
}

#[test]
fn keys_expand_call_trees_zoom_filter_show_the_header_and_quit() {
    if [Feature::Tmux, Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(&Program::compile_hot("hot", &["-fno-omit-frame-pointer"]), dir.path(), "perf.data");
    let screen = Screen::open();
    let before = screen.settings("before");
    let table = starts_report(&screen, dir.path(), "");
    assert!(table.contains("Children") && table.contains("__libc_start"), "{table}");

    screen.types("/spins");
    screen.presses(&["Enter"]);
    screen.shows("the function", |text| text.contains("filter: spins") && !text.contains("[.] burns"));
    screen.types("e");
    screen.shows("its call tree", |text| {
        let mut lines = text.lines().map(str::trim_end);
        lines.any(|line| line == "   - spins") && lines.any(|line| line.ends_with(" burns"))
    });
    screen.types("c");
    screen.shows("the function without its call tree", |text| !text.contains("- spins"));
    screen.presses(&["Escape"]);

    screen.types("d");
    let zoomed = screen.shows("the functions of the program", |text| text.contains("Shared Object: hot"));
    assert!(zoomed.contains("[.] burns") && !zoomed.contains("__libc_start"), "{zoomed}");
    screen.presses(&["Escape", "Enter"]);
    screen.shows("the menu", |text| text.contains("Zoom into comm hot"));
    screen.presses(&["Escape"]);
    screen.types("i");
    screen.shows("the header", |text| text.contains("cmdline : ") && text.contains("os release : "));
    screen.types("qh");
    screen.shows("the keys", |text| text.contains("expand all call trees"));
    screen.presses(&["Escape"]);

    screen.types("/burns");
    screen.presses(&["Enter"]);
    screen.types("a");
    let code = screen.shows("the instructions", |text| text.contains("burns") && text.contains("samples of"));
    let is_hot =
        |line: &str| line.split('\u{2502}').next().is_some_and(|share| share.trim().parse::<f64>().is_ok());
    assert!(code.lines().any(is_hot) && code.contains("ret"), "{code}");
    screen.types("/jne");
    screen.presses(&["Enter"]);
    screen.shows("the arrow of the jump of the loop", |text| text.contains("\u{250c}>"));
    screen.presses(&["Escape"]);
    screen.shows("the table", |text| text.contains("filter: burns"));
    screen.presses(&["Escape"]);
    screen.shows("all functions", |text| !text.contains("filter: burns"));

    screen.tmux(&["resize-window", "-x", "60", "-y", "10"]);
    screen.shows("a small screen", |text| text.lines().count() <= 10 && text.contains("[.] burns"));
    // The size is one of the settings.
    screen.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    screen.shows("a wide screen", |text| text.contains("q quit"));
    screen.types("q");
    screen.shows("the end", |text| text.contains("code=0") && !text.contains("Children"));
    assert_eq!((screen.modes(), screen.settings("after")), ("0 1 1\n".to_owned(), before.clone()));

    // A signal from outside, and text instead of the view.
    starts_report(&screen, dir.path(), "--tui");
    kill_process(screen.foreground(), Signal::TERM).unwrap();
    screen.shows("the exit code of a signal", |text| text.contains("code=143") && !text.contains("Children"));
    assert_eq!((screen.modes(), screen.settings("terminated")), ("0 1 1\n".to_owned(), before));
    let text = starts_report(&screen, dir.path(), "--stdio -g none --percent-limit 2");
    assert!(text.contains("# Children"), "{text}");
}
