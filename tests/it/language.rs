//! A floor under the texts of the project: words that an engineer has to read twice do not come back.
//!
//! Checked are documents, comments and string literals outside tests. It is no style guide: `CONTRIBUTING.md` has that.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use perf_exporter::host::{list, read_text};

use crate::program::repository;

/// Words, lower case, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("told apart", "distinguished, or attributed to"),
    ("tells apart", "distinguishes"),
    ("tells of", "reports, contains or describes"),
    ("tell of", "report, contain or describe"),
    ("is told", "is reported, or the name of who reports"),
    ("are told", "are reported"),
    ("untold", "untracked"),
    ("whoever", "the name of a thing of the field"),
    ("somebody", "the name of a thing of the field"),
    ("everybody", "the name of a thing of the field"),
    ("nobody", "the name of a thing of the field"),
    ("for want of", "because the ring, queue or table is full"),
    ("of late", "in the last minute, or another time"),
    ("lately", "in the last minute, or another time"),
    ("looked into", "decoded"),
    ("ready-made", "preset"),
    ("strangers", "untrusted input"),
    ("comings and goings", "creations and exits"),
    ("every so maniet", "one in N"),
    ("come late", "arrive out of order"),
    ("how much it may be off", "standard error"),
];

/// Texts that may have a word, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    // The user with the number 65534 is called so.
    ("user nobody", "nobody"),
    ("nobody:", "nobody"),
    ("`nobody`", "nobody"),
];

/// Maximum number of words in a sentence of the README.
const MAX_WORDS: usize = 40;

/// Returns the files below a directory that end so, without those of tests.
fn files(dir: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for name in list(dir).unwrap() {
        let path = dir.join(&name);
        if path.is_dir() {
            if !["tests", "target", "pictures"].contains(&&*name) && !path.is_symlink() {
                files(&path, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending))
            && !["tests.rs", "testing.rs"].contains(&&*name)
        {
            found.push(path);
        }
    }
}

/// Returns the text of a line of Rust that people read: a comment, or what is within quotation marks.
fn text_of(line: &str) -> String {
    let line = line.trim_start();
    if line.starts_with("//") {
        return line.to_owned();
    }
    let pieces = line.split('"').skip(1).step_by(2);
    pieces.collect::<Vec<_>>().join(" ")
}

/// Returns the lines of a source file before its tests, which are at the end.
fn before_tests(source: &str) -> impl Iterator<Item = &str> {
    source.lines().take_while(|line| !line.starts_with("mod tests {"))
}

/// Whether a text has the word, as a whole.
fn has(text: &str, word: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        let is_whole =
            !before.ends_with(is_letter) && (word.ends_with("maniet") || !after.starts_with(is_letter));
        let around = &text
            [text.floor_char_boundary(at.saturating_sub(8))..text.ceil_char_boundary(at + word.len() + 8)];
        is_whole && !EXCEPTIONS.iter().any(|(text, excepted)| *excepted == word && around.contains(text))
    })
}

#[test]
fn texts_have_the_words_of_the_field() {
    let mut sources = Vec::new();
    for dir in ["src", "docs", "config", "deploy", "dashboards/src"] {
        files(&repository(dir), &[".rs", ".md", ".yaml", ".yml", ".py", ".sh", ".toml"], &mut sources);
    }
    sources.extend(["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(repository));
    assert!(sources.len() > 300, "{} files", sources.len());
    let mut found = String::new();
    for path in sources {
        let text = read_text(&path).unwrap();
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        for (line, number) in before_tests(&text).zip(1..) {
            let line = if is_rust { text_of(line) } else { line.to_owned() }.to_lowercase();
            for (word, better) in WORDS.iter().filter(|(word, _)| has(&line, word)) {
                let path = path.strip_prefix(repository("")).unwrap().display();
                writeln!(found, "{path}:{number}: {word:?}; write {better}").unwrap();
            }
        }
    }
    assert!(found.is_empty(), "{} lines:\n{found}", found.lines().count());
}

#[test]
fn sentences_of_the_readme_are_short() {
    let text = read_text(&repository("README.md")).unwrap();
    assert!(text.lines().count() <= 150, "{} lines", text.lines().count());
    let mut is_code = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with('|')
    });
    // A blank line, a heading and an item of a list end a sentence as well.
    let ends = |line: &str| line.is_empty() || line.starts_with(['#', '-', '*']);
    let prose = prose.fold(String::new(), |all, line| all + if ends(line) { ".\n" } else { " " } + line);
    for sentence in prose.split(['.', '!', '?', ':']) {
        let words = sentence.split_whitespace().count();
        assert!(words <= MAX_WORDS, "{words} words: {sentence}");
    }
}

#[test]
fn a_word_is_found_as_a_whole_alone() {
    assert!(has("what nobody reads", "nobody") && has("nobody", "nobody"));
    assert!(!has("as the user nobody, who", "nobody") && !has("nobodys", "nobody"));
    assert_eq!(text_of("    let x = \"one\" + f(\"two\"); // three"), "one two");
}
