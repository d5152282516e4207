//! Symbol names: a table of NUL-terminated strings, hundreds of megabytes in a browser with a full symbol table. It is read from front to
//! back, and never kept in memory.

use std::collections::BTreeMap;

use super::Result;
use super::input::{Input, Part};

/// Maximum length of a name, in bytes. Names of C++ templates have thousands of bytes.
pub(super) const NAME_LIMIT: usize = 4096;

/// Maximum number of offsets of one name. Linkers store a common suffix only once, so `read` also occurs inside `pthread_read`. These
/// offsets take memory until it is known which of them symbols use.
const PLACE_LIMIT: usize = 1 << 20;

/// Number of bytes of the table that are kept in memory.
const WINDOW: u64 = 64 << 10;

/// Terminator of a name: the NUL, or the version after the name (`malloc@@GLIBC_2.2.5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Nul,
    Version,
}

/// Returns the offsets of `name` in a string table, as symbols refer to them, with its terminator.
pub(super) fn places(input: &Input<'_>, strings: Part, name: &str, what: &str) -> Result<BTreeMap<u32, End>> {
    let (name, mut found) = (name.as_bytes(), BTreeMap::new());
    if name.is_empty() || name.len() > NAME_LIMIT || name.contains(&0) {
        return Ok(found);
    }
    // The rest of the previous piece is prepended to the next, so that no name is split.
    let mut text = Vec::new();
    input.chunks(strings, what, |at, piece| {
        let kept = text.len();
        text.extend_from_slice(piece);
        for (end, &byte) in text.iter().enumerate().skip(kept) {
            let how = match byte {
                0 => End::Nul,
                b'@' => End::Version,
                _ => continue,
            };
            let start = end.checked_sub(name.len()).filter(|&start| &text[start..end] == name);
            let place = start.map(|start| at - kept as u64 + start as u64);
            if let Some(Ok(place)) = place.map(u32::try_from) {
                found.insert(place, how);
            }
        }
        if found.len() > PLACE_LIMIT {
            let what = format!("symbol names that end in {}", String::from_utf8_lossy(name));
            return Err(input.too_many(what, PLACE_LIMIT as u64));
        }
        text.drain(..text.len().saturating_sub(name.len()));
        Ok(())
    })?;
    Ok(found)
}

/// Names by their offsets. Efficient for ascending offsets.
#[derive(Debug)]
pub(super) struct Names<'i> {
    input: &'i Input<'i>,
    strings: Part,
    what: &'static str,
    /// A piece of the table, and its offset.
    window: Vec<u8>,
    start: u64,
}

impl<'i> Names<'i> {
    pub(super) fn new(input: &'i Input<'i>, strings: Part, what: &'static str) -> Self {
        Self { input, strings, what, window: Vec::new(), start: 0 }
    }

    /// Returns the name at an offset. `None` if there is none, or if it is too long or not UTF-8.
    pub(super) fn at(&mut self, offset: u32) -> Result<Option<&str>> {
        let offset = u64::from(offset);
        let Some(left) = self.strings.size.checked_sub(offset) else { return Ok(None) };
        let needed = left.min(NAME_LIMIT as u64 + 1);
        let held = self.start..=self.start + self.window.len() as u64;
        if !held.contains(&offset) || !held.contains(&(offset + needed)) {
            let size = left.min(WINDOW);
            let Some(part) = self.strings.within(offset, size) else { return Ok(None) };
            (self.window, self.start) = (self.input.bytes(part, WINDOW, self.what)?, offset);
        }
        let rest = usize::try_from(offset - self.start).ok().and_then(|from| self.window.get(from..));
        let text = rest.and_then(|rest| {
            let end = rest.iter().take(NAME_LIMIT + 1).position(|&byte| byte == 0)?;
            std::str::from_utf8(&rest[..end]).ok()
        });
        Ok(text.filter(|text| !text.is_empty()))
    }
}
