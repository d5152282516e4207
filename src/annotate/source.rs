//! The text of source lines, from the files that debug information names.
//!
//! A program can name any file. Therefore only files with the ending of a programming language are read, in the root directory of a process
//! only those that the process or all users may read, and of the host for a process only those that all users may read.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::program::Line;
use crate::clean::clean;
use crate::files::{Files, Opened, Root, is_readable_by};

/// Maximum number of source files of a function.
const FILES: usize = 32;
/// Maximum size of the part of a file that is read, in bytes.
const SIZE: u64 = 4 << 20;
/// Maximum length of a line, in bytes.
const LENGTH: usize = 240;
/// Endings of source files.
const ENDINGS: [&str; 40] = [
    "c", "h", "cc", "cpp", "cxx", "c++", "C", "hh", "hpp", "hxx", "h++", "inc", "inl", "ipp", "tcc", "def",
    "m", "mm", "s", "S", "asm", "rs", "go", "zig", "d", "nim", "swift", "java", "kt", "scala", "cs", "f",
    "f90", "F90", "f95", "adb", "ads", "pas", "hs", "ml",
];

/// Reads source files.
#[derive(Debug)]
pub(super) struct Sources<'f> {
    files: &'f Files,
    pids: &'f [u32],
    /// When the program was written last.
    built: Option<(i64, i64)>,
    /// The paths of files that were written later.
    pub(super) newer: Vec<Arc<str>>,
}

impl<'f> Sources<'f> {
    /// Creates a reader for a program that these processes execute.
    pub(super) fn new(files: &'f Files, pids: &'f [u32], program: &Opened) -> Self {
        let built = program.file.stat().ok().map(|stat| stat.modified);
        Self { files, pids, built, newer: Vec::new() }
    }

    /// Returns the texts of lines. Lines of files that are not found are missing.
    pub(super) fn texts<'l>(&mut self, lines: impl Iterator<Item = &'l Line>) -> FxHashMap<Line, String> {
        let mut wanted: BTreeMap<&Arc<str>, BTreeSet<u32>> = BTreeMap::new();
        for (path, line) in lines {
            if wanted.len() < FILES || wanted.contains_key(path) {
                wanted.entry(path).or_default().insert(*line);
            }
        }
        let mut texts = FxHashMap::default();
        for (path, lines) in wanted {
            if let Some(opened) = self.open(path) {
                texts.extend(read(&opened, &lines).map(|(line, text)| ((Arc::clone(path), line), text)));
                let modified = opened.file.stat().ok().map(|stat| stat.modified);
                if modified.zip(self.built).is_some_and(|(modified, built)| modified > built) {
                    self.newer.push(Arc::clone(path));
                }
            }
        }
        texts
    }

    fn open(&self, path: &str) -> Option<Opened> {
        let (_, ending) = path.rsplit('/').next()?.rsplit_once('.')?;
        if !ENDINGS.contains(&ending) {
            return None;
        }
        let of_processes = self.pids.iter().map(|&pid| (Root::Process(pid), Some(pid)));
        of_processes.chain([(Root::Host, None)]).find_map(|(root, pid)| {
            let opened = self.files.open(&root, path, None).ok()?;
            (self.pids.is_empty() || is_readable_by(self.files, pid, &opened)).then_some(opened)
        })
    }
}

/// Returns these lines of a file.
fn read(opened: &Opened, lines: &BTreeSet<u32>) -> impl Iterator<Item = (u32, String)> {
    let last = lines.last().copied().unwrap_or(0);
    let reader = BufReader::new(opened.file.sequential().take(SIZE));
    let numbered = (1..=last).zip(reader.split(b'\n')).filter(|(number, _)| lines.contains(number));
    numbered.map_while(|(number, text)| {
        let text = String::from_utf8_lossy(&text.ok()?).trim_end().replace('\t', "    ");
        Some((number, clean(&text, LENGTH).into_owned()))
    })
}
