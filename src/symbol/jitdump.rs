//! The functions that a language runtime generates, in the format that `perf inject --jit` reads: `jit-PID.dump`.
//!
//! Source of the format: `tools/perf/Documentation/jitdump-specification.txt`. The byte order is that of the writer, and is detected from
//! the first word. The records `JIT_CODE_LOAD`, `JIT_CODE_MOVE` and `JIT_CODE_DEBUG_INFO` are decoded; the code itself is skipped. V8 adds
//! 64 to the addresses of lines, for the header of the ELF file that perf generates: its lines are off by this amount.

use gimli::{EndianSlice, Reader as _, RunTimeEndian};

use super::follow::{FunctionReader, Reader};
use super::perfmap::truncated;
use super::regions::{Found, Regions};
use super::texts;

const MAGIC: u32 = 0x4a69_5444;
/// The header of a record, in bytes.
const HEADER: usize = 16;
/// The minimum size of the file header, in bytes.
const FILE_HEADER: usize = 40;
/// The most bytes of a record that are parsed; the rest is skipped. The longest field before the code is the name.
const PARSED: usize = 64 << 10;
/// The most lines of a function.
const LINES_LIMIT: usize = 4096;

const LOAD: u32 = 0;
const MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
const CLOSE: u32 = 3;

/// A reader of unread bytes.
type Words<'b> = EndianSlice<'b, RunTimeEndian>;

/// The functions of a jitdump.
///
/// For any input, bytes take constant time each, and a record amortized O(log n) steps for n functions ([`Regions`]). The lines of a
/// function are stored with its name and move with it. Code is not read at all. When the memory limit is reached, the functions that were
/// written and used longest ago are dropped.
#[derive(Debug)]
pub(super) struct JitDump {
    /// The name of a function is followed by its [`lines`](encode).
    pub(super) functions: Regions,
    /// The lines of the next function, and its address.
    ahead: Option<(u64, Vec<u8>)>,
    /// Malformed records.
    pub(super) malformed: u64,
    state: State,
    /// The bytes to skip before the next record.
    skip: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the header of the file.
    Beginning,
    /// Before a record, in this byte order.
    Records(RunTimeEndian),
    /// At the end: the file was closed, or it is malformed.
    Over,
}

impl JitDump {
    /// Creates an empty dump of at most `limit` bytes of memory.
    pub(super) fn new(limit: usize) -> Self {
        Self { functions: Regions::new(limit), ahead: None, malformed: 0, state: State::Beginning, skip: 0 }
    }

    /// Parses the header of the file. Returns its length.
    fn begin(&mut self, bytes: &[u8]) -> u64 {
        let orders = [RunTimeEndian::Little, RunTimeEndian::Big].map(|order| Words::new(bytes, order));
        for mut words in orders {
            let header = (words.read_u32(), words.read_u32(), words.read_u32());
            if let (Ok(MAGIC), Ok(1..), Ok(size)) = header
                && size as usize >= FILE_HEADER
            {
                self.state = State::Records(words.endian());
                return size.into();
            }
        }
        self.give_up();
        0
    }

    fn give_up(&mut self) {
        self.malformed += 1;
        self.state = State::Over;
    }

    /// Parses one record without its header.
    fn record(&mut self, kind: u32, mut words: Words<'_>) -> gimli::Result<()> {
        match kind {
            LOAD => {
                let (_pid, _tid, vma) = (words.read_u32()?, words.read_u32()?, words.read_u64()?);
                let (_code, size, _index) = (words.read_u64()?, words.read_u64()?, words.read_u64()?);
                self.load(vma, size, words.read_null_terminated_slice()?.slice());
            }
            MOVE => {
                let (_pid, _tid, vma) = (words.read_u32()?, words.read_u32()?, words.read_u64()?);
                let from = words.read_u64()?;
                let refused = self.functions.shift(from, vma).is_err();
                self.functions.dropped += u64::from(refused);
            }
            DEBUG_INFO => {
                let (code, count) = (words.read_u64()?, words.read_u64()?);
                self.ahead = Some((code, encode(lines(&mut words, count), code)));
            }
            CLOSE => self.state = State::Over,
            _ => {}
        }
        Ok(())
    }

    fn load(&mut self, start: u64, size: u64, name: &[u8]) {
        let lines = self.ahead.take().filter(|(code, _)| *code == start);
        let name = if name.is_empty() { b"[anonymous]" } else { truncated(name) };
        let mut entry = name.to_vec();
        entry.push(0);
        if let Some((_, lines)) = lines.filter(|(_, lines)| lines.len() < texts::LONGEST - entry.len()) {
            entry.extend(lines);
        }
        // If the memory limit is reached, lines are dropped first.
        let kept = self.functions.insert(start, size, &entry).is_ok()
            || self.functions.insert(start, size, name).is_ok();
        self.functions.dropped += u64::from(!kept);
    }
}

impl Reader for JitDump {
    /// Takes whole records, or the parsed part of one.
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
                State::Beginning => self.skip = self.begin(rest),
                State::Records(order) => {
                    let mut words = Words::new(rest, order);
                    let header = (words.read_u32(), words.read_u32(), words.read_u64());
                    let (Ok(kind), Ok(size), Ok(_)) = header else { return taken };
                    let size = size as usize;
                    if size < HEADER {
                        // The start of the next record is unknown.
                        self.give_up();
                        return bytes.len();
                    }
                    let needed = size.min(PARSED);
                    let Some(body) = rest.get(HEADER..needed) else { return taken };
                    if self.record(kind, Words::new(body, order)).is_err() {
                        self.malformed += 1;
                    }
                    self.skip = size as u64;
                }
            }
        }
    }

    fn skip(&mut self, most: u64) -> u64 {
        let skipped = if self.state == State::Over { most } else { self.skip.min(most) };
        self.skip -= skipped.min(self.skip);
        skipped
    }

    fn restart(&mut self) {
        self.functions.restart();
        (self.ahead, self.state, self.skip) = (None, State::Beginning, 0);
    }
}

impl FunctionReader for JitDump {
    fn functions(&self) -> &Regions {
        &self.functions
    }

    fn functions_mut(&mut self) -> &mut Regions {
        &mut self.functions
    }

    fn malformed(&self) -> u64 {
        self.malformed
    }

    fn bytes(&self) -> usize {
        self.functions.bytes() + self.ahead.as_ref().map_or(0, |(_, lines)| lines.len())
    }
}

/// Returns the name of a function, and the line of the looked-up address: `None` for a perf map, which has only names.
pub(super) fn name_and_line<'r>(functions: &'r Regions, found: &Found) -> (&'r [u8], Option<Line<'r>>) {
    let entry = functions.name(found.name);
    let name = truncated(entry);
    let line = || decode(entry.get(name.len() + 1..)?, u32::try_from(found.offset).ok()?);
    (name, line())
}

/// A line of a source file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'b> {
    /// The path of the file.
    pub(super) file: &'b [u8],
    /// The place of the path in its entry: the same for consecutive lines of the same file.
    pub(super) place: u32,
    /// From 1.
    pub(super) number: u32,
}

/// A line as it is written, and the address where it begins.
struct Written<'b> {
    address: u64,
    file: &'b [u8],
    number: u32,
}

/// Parses the lines of a function, up to the first malformed one.
fn lines<'b>(words: &mut Words<'b>, count: u64) -> Vec<Written<'b>> {
    let mut lines = Vec::new();
    let mut file: &[u8] = b"";
    for _ in 0..count.min(LINES_LIMIT as u64) {
        let numbers = (words.read_u64(), words.read_u32(), words.read_u32());
        let (Ok(address), Ok(number), Ok(_column)) = numbers else { break };
        let Ok(name) = words.read_null_terminated_slice() else { break };
        // This single byte repeats the file of the previous line.
        if name.slice() != b"\xff" {
            file = name.slice();
        }
        lines.push(Written { address, file, number });
    }
    lines
}

/// Encodes the lines of the function that begins at `start` in a compact form.
///
/// - The number of lines (2 bytes).
/// - For each line its offset in the function, its line number and the place of its file (4 bytes each), sorted by offset.
/// - The files, each prefixed with its length (2 bytes). A file is stored once as long as it does not change from line to line.
fn encode(mut lines: Vec<Written<'_>>, start: u64) -> Vec<u8> {
    lines.retain(|line| line.address.checked_sub(start).is_some_and(|offset| u32::try_from(offset).is_ok()));
    lines.sort_by_key(|line| line.address);
    // Of several lines of one address the last one is used.
    lines.reverse();
    lines.dedup_by_key(|line| line.address);
    lines.reverse();
    // The number of lines, and the size of their files, are limited by the size of a record.
    let (mut table, mut files) = ((lines.len() as u16).to_ne_bytes().to_vec(), Vec::new());
    let mut before: Option<(&[u8], u32)> = None;
    for Written { address, file, number } in lines {
        let at = match before {
            Some((same, at)) if same == file => at,
            _ => files.len() as u32,
        };
        if at as usize == files.len() {
            files.extend_from_slice(&(file.len() as u16).to_ne_bytes());
            files.extend_from_slice(file);
        }
        before = Some((file, at));
        table.extend([(address - start) as u32, number, at].map(u32::to_ne_bytes).concat());
    }
    table.extend(files);
    table
}

/// Returns the line of an offset in a function, from the output of [`encode`].
fn decode(bytes: &[u8], offset: u32) -> Option<Line<'_>> {
    /// The size of a line.
    const LINE: usize = 12;
    let (count, rest) = bytes.split_first_chunk()?;
    let (table, files) = rest.split_at_checked(usize::from(u16::from_ne_bytes(*count)) * LINE)?;
    let word = |line: usize, word: usize| {
        let bytes = table.get(line * LINE + word * 4..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let (mut low, mut high) = (0, table.len() / LINE);
    while low < high {
        let middle = usize::midpoint(low, high);
        if word(middle, 0)? <= offset { low = middle + 1 } else { high = middle }
    }
    let line = low.checked_sub(1)?;
    let (number, place) = (word(line, 1)?, word(line, 2)?);
    let (length, text) = files.get(place as usize..)?.split_first_chunk()?;
    let file = text.get(..usize::from(u16::from_ne_bytes(*length)))?;
    Some(Line { file, place, number })
}

#[cfg(test)]
pub(super) mod testing {
    //! Generated files.

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
        let found = dump.functions.find(address)?;
        let (name, line) = name_and_line(&dump.functions, &found);
        let name = String::from_utf8_lossy(name);
        let line = line.map(|line| format!(" {}:{}", String::from_utf8_lossy(line.file), line.number));
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

    #[test]
    fn lines_are_found_whatever_their_order() {
        let debug = lines(0x1000, &[(0x1008, 4, b"a.js"), (0x1000, 3, b"b.js"), (0x1008, 5, b"b.js")]);
        let dump = read(&[header(), debug, load(0x1000, 32, "foo")].concat());
        assert_eq!(at(&dump, 0x1007).as_deref(), Some("foo b.js:3"));
        assert_eq!(at(&dump, 0x1008).as_deref(), Some("foo b.js:5"));
    }

    /// A record that moves a function is 64 bytes; the function can have thousands of lines.
    #[test]
    fn a_function_with_many_lines_is_moved_as_fast_as_one_without() {
        let all: Vec<(u64, u32, &[u8])> = (0..2000).map(|at| (0x1000 + at, 7, &b"\xff"[..])).collect();
        let mut bytes = [header(), lines(0x1000, &all), load(0x1000, 4000, "foo")].concat();
        for round in 0..20_000u64 {
            let at = 0x1000 + round * 0x10000;
            bytes.extend(moved(at, at + 0x10000, 4000));
        }
        let dump = read(&bytes);
        assert_eq!(at(&dump, 0x1000 + 20_000 * 0x10000 + 1999).as_deref(), Some("foo :7"));
        assert_eq!((dump.functions.dropped, dump.malformed), (0, 0));
    }

    #[test]
    fn functions_that_there_is_no_memory_for_are_dropped_from_the_oldest_on_and_counted() {
        let mut dump = JitDump::new(20_000);
        dump.take(&header());
        for number in 0..1000u64 {
            let start = 0x1000 + number * 64;
            let debug = lines(start, &[(start, 1, b"/app/a.js"), (start + 8, 2, b"\xff")]);
            dump.take(&[debug, load(start, 64, &format!("function {number}"))].concat());
        }
        let kept = (0..1000u64).filter(|number| at(&dump, 0x1000 + number * 64).is_some()).count();
        assert!(dump.bytes() <= 20_000 && dump.functions.dropped as usize == 1000 - kept);
        assert_eq!(at(&dump, 0x1000 + 999 * 64 + 8).as_deref(), Some("function 999 /app/a.js:2"));
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
            prop_assert!(whole.functions.bytes() <= limit);
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
