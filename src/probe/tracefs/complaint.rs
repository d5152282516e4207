//! The kernel's own words about a filter that it refused.
//!
//! `PERF_EVENT_IOC_SET_FILTER` says no more than an errno. The file `filter` of a tracepoint keeps the text with a caret
//! and a sentence, but it is everybody's: a filter that is written there changes what others record. So it is written in
//! a tracing instance of our own, which is gone again before this returns.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::Owner;
use crate::host::{self, Roots};

/// The most CPUs of a machine on which an instance is made: it costs some 1.4 MiB of memory for each, for a moment.
const CPU_LIMIT: usize = 64;
/// The longest complaint that is passed on, in bytes.
const COMPLAINT_LIMIT: usize = 4096 + 512;
/// How many instances of one process there may be at a time.
const INSTANCES: u32 = 8;

/// What the kernel says about a filter of a tracepoint, in up to three lines: the filter, a caret below the place where
/// it goes wrong, and what is wrong. `None`: it has no objection, or cannot be asked.
pub fn complaint(roots: &Roots, system: &str, event: &str, filter: &str) -> Option<String> {
    let is_name =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if !is_name(system) || !is_name(event) || host::online_cpus(roots).ok()?.len() > CPU_LIMIT {
        return None;
    }
    let instance = Instance::make(roots)?;
    let file = instance.0.join("events").join(system).join(event).join("filter");
    // The write itself fails, and the file then holds why. Where it succeeds, nothing is wrong.
    write(&file, filter).err()?;
    words(&String::from_utf8_lossy(&said(&file).ok()?))
}

/// The complaint in what the file holds: `TEXT`, a caret, `parse_error: WORDS`.
fn words(said: &str) -> Option<String> {
    let lines: Vec<&str> = said.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let (last, before) = lines.split_last()?;
    let words = last.strip_prefix("parse_error: ")?;
    Some(before.iter().chain([&words]).copied().collect::<Vec<_>>().join("\n"))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// What the file holds. The kernel answers the first read alone, so it has to be one of everything.
fn said(path: &Path) -> io::Result<Vec<u8>> {
    let mut said = vec![0; COMPLAINT_LIMIT];
    let length = fs::File::open(path)?.read(&mut said)?;
    said.truncate(length);
    Ok(said)
}

/// A tracing instance, for as long as this lives.
struct Instance(PathBuf);

impl Instance {
    fn make(roots: &Roots) -> Option<Self> {
        let group = Owner::own(roots, std::process::id()).group();
        let names = (0..INSTANCES).map(|number| format!("{group}_{number}"));
        let mut paths = names.map(|name| roots.tracing.join("instances").join(name));
        paths.find(|path| fs::create_dir(path).is_ok()).map(Self)
    }
}

/// Whose an instance is that [`complaint`] made.
pub(super) fn instance_owner(name: &str) -> Option<Owner> {
    let (group, number) = name.rsplit_once('_')?;
    number.parse::<u32>().ok().filter(|number| *number < INSTANCES)?;
    Owner::of_group(group)
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            tracing::warn!("the tracing instance {} could not be removed: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_complaint_is_the_text_with_its_caret_and_the_words() {
        let said = "nope == 3\n     ^\nparse_error: Field not found\n\n";
        assert_eq!(words(said).unwrap(), "nope == 3\n     ^\nField not found");
        assert_eq!(words("none\n"), None);
        assert_eq!(words(""), None);
        assert_eq!(words("pid > 0\n"), None);
    }
}
