//! The kernel's error message for a rejected filter.
//!
//! `PERF_EVENT_IOC_SET_FILTER` returns only an errno. The file `filter` of a tracepoint keeps the text with a caret and a message, but it
//! is global: a filter written there changes the recordings of other users. So the filter is written in a separate tracing instance, which
//! is removed before the function returns.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::Owner;
use crate::host::{self, Roots};

/// Maximum number of CPUs for which an instance is created. It temporarily takes about 1.4 MiB of memory per CPU.
const CPU_LIMIT: usize = 64;
/// Maximum length of a message, in bytes.
const COMPLAINT_LIMIT: usize = 4096 + 512;
/// Maximum number of simultaneous instances of one process.
const INSTANCES: u32 = 8;

/// Returns the kernel's message for a tracepoint filter, in up to three lines: the filter, a caret under the error position, and the error.
/// `None` if the kernel accepts the filter or the check is not possible.
pub fn complaint(roots: &Roots, system: &str, event: &str, filter: &str) -> Option<String> {
    let is_name =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if !is_name(system) || !is_name(event) || host::online_cpus(roots).ok()?.len() > CPU_LIMIT {
        return None;
    }
    let instance = Instance::make(roots)?;
    let file = instance.0.join("events").join(system).join(event).join("filter");
    // A rejected write fails, and the file then contains the message. A successful write means that the filter is valid.
    write(&file, filter).err()?;
    words(&String::from_utf8_lossy(&said(&file).ok()?))
}

/// Extracts the message from the content of the file: `TEXT`, a caret, `parse_error: WORDS`.
fn words(said: &str) -> Option<String> {
    let lines: Vec<&str> = said.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let (last, before) = lines.split_last()?;
    let words = last.strip_prefix("parse_error: ")?;
    Some(before.iter().chain([&words]).copied().collect::<Vec<_>>().join("\n"))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// Returns the content of the file. The kernel returns data for the first read only, so a single read must get everything.
fn said(path: &Path) -> io::Result<Vec<u8>> {
    let mut said = vec![0; COMPLAINT_LIMIT];
    let length = fs::File::open(path)?.read(&mut said)?;
    said.truncate(length);
    Ok(said)
}

/// A tracing instance, removed on drop.
struct Instance(PathBuf);

impl Instance {
    fn make(roots: &Roots) -> Option<Self> {
        let group = Owner::own(roots, std::process::id()).group();
        let names = (0..INSTANCES).map(|number| format!("{group}_{number}"));
        let mut paths = names.map(|name| roots.tracing.join("instances").join(name));
        paths.find(|path| fs::create_dir(path).is_ok()).map(Self)
    }
}

/// Returns the owner of an instance that [`complaint`] created.
pub(super) fn instance_owner(name: &str) -> Option<Owner> {
    let (group, number) = name.rsplit_once('_')?;
    number.parse::<u32>().ok().filter(|number| *number < INSTANCES)?;
    Owner::of_group(group)
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            tracing::warn!("tracing instance {} could not be removed: {error}", self.0.display());
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
