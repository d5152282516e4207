//! What a run time tells of the code that it makes, in the form that `perf inject --jit` reads: `jit-PID.dump`.
//!
//! Source of the format: `tools/perf/Documentation/jitdump-specification.txt`. The byte order is the writer's, which the
//! first word tells. Of the records `JIT_CODE_LOAD`, `JIT_CODE_MOVE` and `JIT_CODE_DEBUG_INFO` are read; the code itself
//! is passed over. V8 adds 64 to the addresses of lines, for the header of the ELF file that perf makes: its lines are
//! so much behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::follow::Reader;
use super::regions::Regions;

const MAGIC: u32 = 0x4a69_5444;
/// The header of a record, in bytes.
const HEADER: usize = 16;
/// The least that the header of the file has, in bytes.
const FILE_HEADER: usize = 40;
/// The most that is looked at of a record, in bytes; the rest of it is passed over. What stands in front of the code
/// and is the longest is the name.
const LOOKED_AT: usize = 64 << 10;
/// What a line takes, in bytes.
const LINE: usize = 48;
/// The most lines of a function.
const LINES_LIMIT: usize = 4096;

const LOAD: u32 = 0;
const MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
const CLOSE: u32 = 3;

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) file: Arc<str>,
    /// From 1.
    pub(super) number: u32,
}

impl Line {
    fn bytes(&self) -> usize {
        LINE + self.file.len()
    }
}

/// What a file told so far.
#[derive(Debug)]
pub(super) struct JitDump {
    pub(super) regions: Regions,
    /// From which address on which line is: of all functions.
    lines: BTreeMap<u64, Line>,
    /// How much memory they take, in bytes, as if none shared its file with another.
    line_bytes: usize,
    /// Of the function that comes next, and its address.
    ahead: Option<(u64, Vec<(u64, Line)>)>,
    limit: usize,
    /// Records that break the format.
    pub(super) malformed: u64,
    /// Functions that there was no room for.
    pub(super) dropped: u64,
    state: State,
    /// How many bytes are to be passed over before the next record.
    skip: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The header of the file is to come.
    Beginning,
    /// Records are, in this or the other byte order.
    Records { swapped: bool },
    /// Nothing is: the end was told, or what came made no sense.
    Over,
}

impl JitDump {
    /// It takes at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            // Lines have the other half.
            regions: Regions::new(limit / 2),
            lines: BTreeMap::new(),
            line_bytes: 0,
            ahead: None,
            limit,
            malformed: 0,
            dropped: 0,
            state: State::Beginning,
            skip: 0,
        }
    }

    /// Of the address in the function that begins at `start`.
    pub(super) fn line(&self, start: u64, address: u64) -> Option<&Line> {
        let (&from, line) = self.lines.range(..=address).next_back()?;
        (from >= start).then_some(line)
    }

    pub(super) fn bytes(&self) -> usize {
        self.regions.bytes() + self.line_bytes
    }

    /// The header of the file; how long it is.
    fn begin(&mut self, bytes: &[u8]) -> Option<u64> {
        let mut words = Words { bytes, swapped: false };
        let swapped = match words.u32()? {
            MAGIC => false,
            magic if magic.swap_bytes() == MAGIC => true,
            _ => {
                self.give_up();
                return None;
            }
        };
        words.swapped = swapped;
        let (version, size) = (words.u32()?, words.u32()?);
        if version == 0 || (size as usize) < FILE_HEADER {
            self.give_up();
            return None;
        }
        self.state = State::Records { swapped };
        Some(size.into())
    }

    fn give_up(&mut self) {
        self.malformed += 1;
        self.state = State::Over;
    }

    /// One record without its header; `None` if it breaks the format.
    fn record(&mut self, kind: u32, mut words: Words<'_>) -> Option<()> {
        match kind {
            LOAD => {
                let (_pid, _tid, vma) = (words.u32()?, words.u32()?, words.u64()?);
                let (_code, size, _index) = (words.u64()?, words.u64()?, words.u64()?);
                self.load(vma, size, words.text()?);
            }
            MOVE => {
                let (_pid, _tid, vma) = (words.u32()?, words.u32()?, words.u64()?);
                let (from, _to) = (words.u64()?, words.u64()?);
                let size = words.u64()?;
                self.dropped += u64::from(self.regions.shift(from, vma).is_err());
                self.shift_lines(from, vma, size);
            }
            DEBUG_INFO => {
                let (code, count) = (words.u64()?, words.u64()?);
                self.ahead = Some((code, lines(&mut words, count)));
            }
            CLOSE => self.state = State::Over,
            _ => {}
        }
        Some(())
    }

    fn load(&mut self, start: u64, size: u64, name: &[u8]) {
        let lines = self.ahead.take().filter(|(code, _)| *code == start);
        let name = if name.is_empty() { b"[anonymous]" } else { name };
        if self.regions.insert(start, size, name).is_err() {
            self.dropped += 1;
            return;
        }
        self.forget_lines(start, size);
        let inside = |address: &u64| address.checked_sub(start).is_some_and(|into| into < size);
        for (address, line) in lines.into_iter().flat_map(|(_, lines)| lines) {
            if inside(&address) && self.line_bytes + line.bytes() <= self.limit / 2 {
                self.keep_line(address, line);
            }
        }
    }

    fn forget_lines(&mut self, start: u64, size: u64) -> Vec<(u64, Line)> {
        let gone: Vec<u64> =
            self.lines.range(start..start.saturating_add(size)).map(|(&address, _)| address).collect();
        let lines: Vec<(u64, Line)> =
            gone.into_iter().filter_map(|address| self.lines.remove_entry(&address)).collect();
        self.line_bytes -= lines.iter().map(|(_, line)| line.bytes()).sum::<usize>();
        lines
    }

    fn keep_line(&mut self, address: u64, line: Line) {
        self.line_bytes += line.bytes();
        if let Some(before) = self.lines.insert(address, line) {
            self.line_bytes -= before.bytes();
        }
    }

    fn shift_lines(&mut self, from: u64, to: u64, size: u64) {
        let moved = self.forget_lines(from, size);
        self.forget_lines(to, size);
        for (address, line) in moved {
            if let Some(address) = to.checked_add(address - from) {
                self.keep_line(address, line);
            }
        }
    }
}

impl Reader for JitDump {
    /// Takes whole records, or as much of one as is looked at.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(rest.len());
            self.skip -= skipped as u64;
            taken += skipped;
            let rest = &rest[skipped..];
            match self.state {
                State::Over => return bytes.len(),
                State::Beginning if rest.len() < FILE_HEADER => return taken,
                State::Beginning => self.skip = self.begin(rest).unwrap_or(0),
                State::Records { swapped } => {
                    let mut words = Words { bytes: rest, swapped };
                    let header = (words.u32(), words.u32(), words.u64());
                    let (Some(kind), Some(size), Some(_)) = header else { return taken };
                    let size = size as usize;
                    if size < HEADER {
                        // Where the next one begins is not known.
                        self.give_up();
                        return bytes.len();
                    }
                    let needed = size.min(LOOKED_AT);
                    let Some(body) = rest.get(HEADER..needed) else { return taken };
                    if self.record(kind, Words { bytes: body, swapped }).is_none() {
                        self.malformed += 1;
                    }
                    self.skip = size as u64;
                }
            }
        }
    }

    fn restart(&mut self) {
        *self = Self { malformed: self.malformed, dropped: self.dropped, ..Self::new(self.limit) };
    }
}

/// The lines of a function; those that break the format end them.
fn lines(words: &mut Words<'_>, count: u64) -> Vec<(u64, Line)> {
    let mut lines = Vec::new();
    let mut file: Arc<str> = "".into();
    for _ in 0..count.min(LINES_LIMIT as u64) {
        let (Some(address), Some(number), Some(_column)) = (words.u64(), words.u32(), words.u32()) else {
            break;
        };
        let Some(name) = words.text() else { break };
        // This one byte stands for the file of the line before.
        if name != b"\xff" && name != file.as_bytes() {
            file = String::from_utf8_lossy(name).into();
        }
        lines.push((address, Line { file: Arc::clone(&file), number }));
    }
    lines
}

/// Bytes that are not read yet.
#[derive(Debug, Clone, Copy)]
struct Words<'b> {
    bytes: &'b [u8],
    /// Whether they are in the byte order that is not this machine's.
    swapped: bool,
}

impl<'b> Words<'b> {
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*chunk)
    }

    fn u32(&mut self) -> Option<u32> {
        let number = u32::from_ne_bytes(self.chunk()?);
        Some(if self.swapped { number.swap_bytes() } else { number })
    }

    fn u64(&mut self) -> Option<u64> {
        let number = u64::from_ne_bytes(self.chunk()?);
        Some(if self.swapped { number.swap_bytes() } else { number })
    }

    /// What stands before the next NUL.
    fn text(&mut self) -> Option<&'b [u8]> {
        let end = memchr::memchr(0, self.bytes)?;
        let (text, rest) = self.bytes.split_at_checked(end)?;
        self.bytes = rest.get(1..)?;
        Some(text)
    }
}

#[cfg(test)]
pub(super) mod testing {
    //! Files made by hand.

    pub(in crate::symbol) fn header() -> Vec<u8> {
        let words = [super::MAGIC, 1, 40, 62, 0, 7].map(u32::to_ne_bytes).concat();
        [words, [0; 16].to_vec()].concat()
    }

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(16 + body.len()).unwrap();
        [&kind.to_ne_bytes()[..], &size.to_ne_bytes(), &[0; 8], body].concat()
    }

    fn words(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    pub(in crate::symbol) fn load(start: u64, size: usize, name: &str) -> Vec<u8> {
        let body = [words(&[7, start, start, size as u64, 1]), name.as_bytes().to_vec(), vec![0; 1 + size]];
        record(super::LOAD, &body.concat())
    }

    pub(in crate::symbol) fn moved(from: u64, to: u64, size: u64) -> Vec<u8> {
        record(super::MOVE, &words(&[7, to, from, to, size, 1]))
    }

    pub(in crate::symbol) fn lines(start: u64, lines: &[(u64, u32, &[u8])]) -> Vec<u8> {
        let mut body = words(&[start, lines.len() as u64]);
        for (address, line, file) in lines {
            body.extend(address.to_ne_bytes());
            body.extend([line.to_ne_bytes(), [0; 4]].concat());
            body.extend([file, &[0][..]].concat());
        }
        record(super::DEBUG_INFO, &body)
    }

    pub(in crate::symbol) fn close() -> Vec<u8> {
        record(super::CLOSE, &[])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::testing::{close, header, lines, load, moved};
    use super::*;

    fn read(bytes: &[u8]) -> JitDump {
        let mut dump = JitDump::new(1 << 20);
        dump.take(bytes);
        dump
    }

    fn at(dump: &JitDump, address: u64) -> Option<String> {
        let (start, name) = dump.regions.find(address)?;
        let name = String::from_utf8_lossy(dump.regions.text(name));
        let line = dump.line(start, address).map(|line| format!(" {}:{}", line.file, line.number));
        Some(name.into_owned() + line.as_deref().unwrap_or_default())
    }

    #[test]
    fn functions_have_their_names_and_lines() {
        let debug = lines(0x1000, &[(0x1000, 3, b"a.js"), (0x1008, 4, b"\xff"), (0x100c, 9, b"b.js")]);
        let dump =
            read(&[header(), debug, load(0x1000, 32, "foo"), load(0x2000, 16, "bar"), close()].concat());
        assert_eq!(at(&dump, 0x1007).as_deref(), Some("foo a.js:3"));
        assert_eq!(at(&dump, 0x1008).as_deref(), Some("foo a.js:4"));
        assert_eq!(at(&dump, 0x101f).as_deref(), Some("foo b.js:9"));
        assert_eq!(at(&dump, 0x1020), None);
        assert_eq!(at(&dump, 0x2000).as_deref(), Some("bar"));
        assert_eq!(dump.malformed, 0);
    }

    #[test]
    fn a_function_that_is_moved_takes_its_name_and_lines_along() {
        let debug = lines(0x1000, &[(0x1008, 4, b"a.js")]);
        let dump = read(&[header(), debug, load(0x1000, 32, "foo"), moved(0x1000, 0x1010, 32)].concat());
        assert_eq!(at(&dump, 0x100f), None);
        assert_eq!(at(&dump, 0x1010).as_deref(), Some("foo"));
        assert_eq!(at(&dump, 0x1019).as_deref(), Some("foo a.js:4"));
    }

    #[test]
    fn the_lines_of_a_function_end_with_it() {
        let debug = lines(0x1000, &[(0x1008, 4, b"a.js"), (0x5000, 1, b"elsewhere")]);
        let dump = read(&[header(), debug, load(0x1000, 32, "old"), load(0x1000, 32, "new")].concat());
        assert_eq!(at(&dump, 0x1010).as_deref(), Some("new"));
        assert!(dump.lines.is_empty());
    }

    #[test]
    fn a_file_of_the_other_byte_order_is_read_as_well() {
        let swap = |bytes: &[u8], words: &[usize]| {
            let mut at = 0;
            let mut swapped = bytes.to_vec();
            for &width in words {
                swapped[at..at + width].reverse();
                at += width;
            }
            swapped
        };
        let header = swap(&header(), &[4, 4, 4, 4, 4, 4, 8, 8]);
        let load = swap(&load(0x1000, 32, "foo"), &[4, 4, 8, 4, 4, 8, 8, 8, 8]);
        assert_eq!(at(&read(&[header, load].concat()), 0x1000).as_deref(), Some("foo"));
    }

    #[test]
    fn what_breaks_the_format_is_counted_and_ends_only_what_cannot_be_found_again() {
        assert_eq!(read(b"not a jitdump, whatever its name says, but long").malformed, 1);
        let mut cut = load(0x1000, 0, "foo");
        let length = cut.len();
        cut[length - 1] = b'x';
        let dump = read(&[header(), cut, load(0x2000, 16, "bar")].concat());
        assert_eq!((dump.malformed, at(&dump, 0x2000).as_deref()), (1, Some("bar")));
        let dump = read(&[header(), vec![0; 16], load(0x2000, 16, "bar")].concat());
        assert_eq!((dump.malformed, at(&dump, 0x2000)), (1, None));
    }

    #[test]
    fn the_code_itself_is_passed_over() {
        let dump = read(&[header(), load(0x1000, 300_000, "large"), load(0x100_0000, 16, "next")].concat());
        assert_eq!(at(&dump, 0x2000).as_deref(), Some("large"));
        assert_eq!(at(&dump, 0x100_0000).as_deref(), Some("next"));
    }

    fn any_file() -> impl Strategy<Value = Vec<u8>> {
        let record = prop_oneof![
            (0u64..64, 0usize..40, "[a-z]{0,6}").prop_map(|(start, size, name)| load(start, size, &name)),
            (0u64..64, 0u64..64, 0u64..40).prop_map(|(from, to, size)| moved(from, to, size)),
            (0u64..64, 0u64..64).prop_map(|(start, at)| lines(start, &[(at, 1, b"f"), (at + 3, 2, b"\xff")])),
            proptest::collection::vec(any::<u8>(), 0..60),
        ];
        proptest::collection::vec(record, 0..12).prop_map(|records| [header(), records.concat()].concat())
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_pieces_do_not_matter(bytes in any_file(), cut in 1usize..50, limit in 0usize..4000) {
            let mut whole = JitDump::new(limit);
            whole.take(&bytes);
            prop_assert!(whole.bytes() <= limit.max(1));
            let (mut pieces, mut held) = (JitDump::new(limit), Vec::new());
            for piece in bytes.chunks(cut) {
                held.extend_from_slice(piece);
                let taken = pieces.take(&held);
                held.drain(..taken);
            }
            prop_assert_eq!(whole.malformed, pieces.malformed);
            for address in 0..128 {
                prop_assert_eq!(at(&whole, address), at(&pieces, address));
            }
        }
    }
}
