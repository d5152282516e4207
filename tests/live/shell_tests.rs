//! The assertions of perf's own shell tests (`tools/perf/tests/shell` of Linux 7.0), for the commands of this program. Each row of the
//! table is checked here or in another test, or has the reason why it does not apply. `docs/perf-shell-tests.md` is made of the table.

mod checks;
mod table;

use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use perf_exporter::host::read_text;
use regex::RegexBuilder;

use crate::support::program::Program;
use crate::support::{Feature, lacks};
use table::TABLE;

/// An assertion of a script.
struct Row {
    /// The script, without its suffix.
    script: &'static str,
    asserts: &'static str,
    outcome: Outcome,
}

enum Outcome {
    /// The assertion holds. The check needs these features, and panics if it does not hold.
    Passes(&'static [Feature], fn(&Setup)),
    /// Another test checks the assertion.
    PassesIn(&'static str),
    /// The reason why the assertion does not hold or does not apply.
    Differs(&'static str),
}

/// A directory with a program that has symbols, and a recording of it in `perf.data`.
struct Setup {
    dir: tempfile::TempDir,
    program: Program,
}

impl Setup {
    fn new() -> Self {
        let (dir, program) =
            (tempfile::tempdir().unwrap(), Program::compile_hot("hot", &["-g", "-fno-omit-frame-pointer"]));
        std::fs::write(dir.path().join("orders"), "spins 300\n").unwrap();
        let setup = Self { dir, program };
        setup.records("perf.data", &[]);
        setup
    }

    fn path(&self) -> &str {
        self.program.path().to_str().unwrap()
    }

    /// Returns the path of a file in the directory.
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the program with these arguments. `orders` is its standard input.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-exporter"));
        let orders = File::open(self.file("orders")).unwrap();
        command.env_remove("LD_LIBRARY_PATH").args(arguments).current_dir(self.dir.path()).stdin(orders);
        command.output().unwrap()
    }

    /// Runs the program, which must succeed, and returns what it wrote to both outputs.
    fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = text(&output);
        assert!(output.status.success(), "{arguments:?}: {}\n{said}", output.status);
        said
    }

    /// Runs the program, which must fail, and returns what it wrote.
    fn rejected(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = text(&output);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {}\n{said}", output.status);
        assert!(said.starts_with("perf-exporter: "), "{arguments:?}: {said}");
        said
    }

    /// Records the program that spins.
    fn records(&self, file: &str, options: &[&str]) {
        let record = ["record", "-e", "cpu-clock", "-F", "999", "-o", file];
        self.said(&[&record, options, &["--", self.path()]].concat());
    }

    /// Starts the program that spins.
    fn spinner(&self) -> Spinner {
        let orders = self.file("endless");
        std::fs::write(&orders, "spins 60000\n").unwrap();
        let mut command = Command::new(self.path());
        command.stdin(File::open(orders).unwrap()).stdout(Stdio::null());
        Spinner(command.spawn().unwrap())
    }
}

/// A running program, which is killed at the end.
struct Spinner(std::process::Child);

impl Drop for Spinner {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Returns the lines that match an expression.
fn matching<'t>(text: &'t str, expression: &str) -> Vec<&'t str> {
    let expression = RegexBuilder::new(expression).build().unwrap();
    text.lines().filter(|line| expression.is_match(line)).collect()
}

/// Checks that each expression matches a line.
fn has(text: &str, expressions: &[&str]) {
    for expression in expressions {
        assert!(!matching(text, expression).is_empty(), "{expression}\n{text}");
    }
}

#[test]
fn the_assertions_of_perfs_shell_tests_hold_or_differ_for_a_reason() {
    if [Feature::Software, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let setup = Setup::new();
    for Row { script, asserts, outcome } in TABLE {
        if let Outcome::Passes(features, check) = outcome {
            if features.iter().copied().any(lacks) {
                continue;
            }
            // The test shows only the output of the assertion that fails.
            println!("{script}: {asserts}");
            check(&setup);
        }
    }
}

#[test]
fn the_page_of_perfs_shell_tests_has_each_row_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/perf-shell-tests.md");
    let mut rows = String::new();
    for Row { script, asserts, outcome } in TABLE {
        if let Outcome::PassesIn(file) = outcome {
            assert!(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file).exists(), "{file}");
        }
        let (outcome, reason) = match outcome {
            Outcome::Passes(..) | Outcome::PassesIn(_) => ("passes", ""),
            Outcome::Differs(reason) => ("differs", *reason),
        };
        writeln!(rows, "| `{script}` | {asserts} | {outcome} | {reason} |").unwrap();
    }
    let page = read_text(&PathBuf::from(path)).unwrap();
    let (head, _) = page.split_once("|---|---|---|---|").unwrap();
    let expected = format!("{head}|---|---|---|---|\n{rows}");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &expected).unwrap();
        return;
    }
    assert_eq!(page.trim_end(), expected.trim_end(), "run this test with BLESS=1");
}
