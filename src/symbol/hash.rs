//! A hash that identifies the contents of a file, with or without a build id.
//!
//! Source: `process.executable.build_id.htlhash` ("head, tail, length") in OpenTelemetry's
//! [specification](https://github.com/open-telemetry/opentelemetry-specification/blob/v1.60.0/specification/profiles/mappings.md).

use std::fmt;

use ::ring::digest::{Context, SHA256};

use crate::host::ReadAt;

/// The bytes at the start and at the end that are hashed. In shorter files both are the whole file.
const PART: u64 = 4096;

/// The first half of the SHA-256 of the first and the last 4096 bytes of a file, and of its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileHash([u8; 16]);

impl FileHash {
    /// Returns the hash of a file, of which at most 8 KiB are read. Returns `None` if the file cannot be read.
    pub fn of(file: &dyn ReadAt) -> Option<Self> {
        let length = file.length().ok()?;
        let mut bytes = [0; PART as usize];
        // In bounds: the length is limited to the size of the buffer.
        let part = &mut bytes[..usize::try_from(length.min(PART)).ok()?];
        let mut context = Context::new(&SHA256);
        for at in [0, length - part.len() as u64] {
            file.read_exact_at(part, at).ok()?;
            context.update(part);
        }
        context.update(&length.to_be_bytes());
        Self::finish(context)
    }

    /// Returns the hash of an object without a file, which is identified only by these words. The hash differs from those of all files, and
    /// is the same for the same words on every host.
    pub fn of_words(words: &str) -> Option<Self> {
        let mut context = Context::new(&SHA256);
        context.update(b"perf-exporter: not a file: ");
        context.update(words.as_bytes());
        Self::finish(context)
    }

    fn finish(context: Context) -> Option<Self> {
        context.finish().as_ref().first_chunk().copied().map(Self)
    }
}

impl fmt::Display for FileHash {
    /// Writes hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn hash(bytes: &[u8]) -> String {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        FileHash::of(&file).unwrap().to_string()
    }

    /// Returns the result of `sha256sum` from coreutils; `None` if it is not installed.
    fn sha256(bytes: &[u8]) -> Option<String> {
        let mut command = Command::new("sha256sum");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        Some(output[..32].to_owned())
    }

    #[test]
    fn beginning_end_and_length_make_the_hash() {
        // SHA-256 of eight zero bytes, as the specification defines it for an empty file.
        assert_eq!(hash(b""), "af5570f5a1810b7af78caf4bc70a660f");
        for length in [1, 4095, 4096, 4097, 8192, 100_000_usize] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + at / 256) as u8).collect();
            let (head, tail) = (&bytes[..length.min(4096)], &bytes[length.saturating_sub(4096)..]);
            let Some(expected) = sha256(&[head, tail, &(length as u64).to_be_bytes()].concat()) else {
                eprintln!("skipped: sha256sum is not installed");
                return;
            };
            assert_eq!(hash(&bytes), expected, "{length}");
        }
    }

    #[test]
    fn what_is_no_file_has_the_hash_of_its_words() {
        assert_eq!(FileHash::of_words("[bpf]"), FileHash::of_words("[bpf]"));
        assert_ne!(FileHash::of_words("[bpf]"), FileHash::of_words("[vdso]"));
    }
}
