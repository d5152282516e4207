//! The list of functions that a language runtime writes for `perf`, `/tmp/perf-PID.map`: a line for each, `START SIZE NAME`, both numbers
//! hexadecimal. Source of the format: `tools/perf/Documentation/jit-interface.txt`.
//!
//! The file is untrusted input, and often damaged: some writers prefix numbers with `0x`, threads mix lines, a full disk truncates them. A
//! line that cannot be parsed is counted and skipped.

use super::follow::{FunctionReader, Reader};
use super::regions::Regions;

/// The longest line, in bytes. A longer one is skipped.
const LINE_LIMIT: usize = 64 << 10;
/// The longest name that is kept, in bytes; the rest is truncated.
pub(super) const NAME_LIMIT: usize = 4096;

/// The functions of a perf map.
///
/// For any input, a line takes time linear in its length, and amortized O(log n) steps for n functions ([`Regions`]). When the memory limit
/// is reached, the functions that were written and used longest ago are dropped.
#[derive(Debug)]
pub(super) struct PerfMap {
    pub(super) functions: Regions,
    /// Lines that could not be parsed.
    pub(super) malformed: u64,
    /// Whether the next bytes continue a line that is too long.
    in_long_line: bool,
}

impl PerfMap {
    /// Creates an empty map of at most `limit` bytes of memory.
    pub(super) fn new(limit: usize) -> Self {
        Self { functions: Regions::new(limit), malformed: 0, in_long_line: false }
    }

    fn line(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        match parse(line) {
            Some((start, size, name)) => {
                let refused = self.functions.insert(start, size, truncated(name)).is_err();
                self.functions.dropped += u64::from(refused);
            }
            None => self.malformed += 1,
        }
    }
}

impl Reader for PerfMap {
    /// Takes whole lines.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(end) = bytes.get(taken..).and_then(|rest| memchr::memchr(b'\n', rest)) {
            let line = &bytes[taken..taken + end];
            if std::mem::take(&mut self.in_long_line) || line.len() > LINE_LIMIT {
                self.malformed += 1;
            } else {
                self.line(line);
            }
            taken += end + 1;
        }
        if self.in_long_line || bytes.len() - taken > LINE_LIMIT {
            self.in_long_line = true;
            taken = bytes.len();
        }
        taken
    }

    fn restart(&mut self) {
        self.functions.restart();
        self.in_long_line = false;
    }
}

impl FunctionReader for PerfMap {
    fn functions(&self) -> &Regions {
        &self.functions
    }

    fn functions_mut(&mut self) -> &mut Regions {
        &mut self.functions
    }

    fn malformed(&self) -> u64 {
        self.malformed
    }
}

/// Returns a name up to its first NUL, of at most [`NAME_LIMIT`] bytes.
pub(super) fn truncated(name: &[u8]) -> &[u8] {
    let name = name.get(..NAME_LIMIT).unwrap_or(name);
    memchr::memchr(0, name).and_then(|end| name.get(..end)).unwrap_or(name)
}

fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = word(line)?;
    let (size, name) = word(rest)?;
    let (start, size, name) = (hex(start)?, hex(size)?, name.trim_ascii());
    let is_piece = size > 0 && start.checked_add(size).is_some();
    // Names end at a NUL, so this name would be empty.
    let is_named = !matches!(name.first(), None | Some(0));
    (is_piece && is_named).then_some((start, size, name))
}

/// Returns the first word and the rest.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace)?;
    Some(text.split_at(end))
}

fn hex(word: &[u8]) -> Option<u64> {
    let word = word.strip_prefix(b"0x").or_else(|| word.strip_prefix(b"0X")).unwrap_or(word);
    // `from_str_radix` accepts a sign.
    let digits = std::str::from_utf8(word).ok().filter(|word| !word.starts_with('+'))?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8]) -> PerfMap {
        let mut map = PerfMap::new(1 << 20);
        map.take(text);
        map
    }

    fn at(map: &PerfMap, address: u64) -> Option<String> {
        Some(String::from_utf8_lossy(map.functions.name(map.functions.find(address)?.name)).into_owned())
    }

    #[test]
    fn functions_are_read_as_node_java_and_others_write_them() {
        let map = read(
            b"3ef414c0 398 LazyCompile:*foo /app/x.js:12\n0x7f00 0x10 Interpreter\r\n  7F20\t10\tvoid  f(int)\n",
        );
        assert_eq!(at(&map, 0x3ef4_14c0).as_deref(), Some("LazyCompile:*foo /app/x.js:12"));
        assert_eq!(at(&map, 0x3ef4_14c0 + 0x398), None);
        assert_eq!(at(&map, 0x7f0f).as_deref(), Some("Interpreter"));
        assert_eq!(at(&map, 0x7f20).as_deref(), Some("void  f(int)"));
        assert_eq!(map.malformed, 0);
    }

    #[test]
    fn what_is_no_line_is_counted_and_the_rest_is_read() {
        let bad = "\nhello\n10 20\n10 20 \n10 zz name\n+10 20 name\n10 0 empty\nffffffffffffffff 2 beyond\n";
        let map = read(format!("{bad}1000 10 good\n").as_bytes());
        assert_eq!(at(&map, 0x1000).as_deref(), Some("good"));
        let named = (0..0x2000).filter(|&address| at(&map, address).is_some()).count();
        assert_eq!((map.malformed, named), (7, 0x10));
    }

    #[test]
    fn a_line_that_is_cut_off_is_read_when_its_end_has_come() {
        let mut map = PerfMap::new(1 << 20);
        let text = b"1000 10 first\n2000 10 sec";
        let taken = map.take(text);
        assert_eq!((taken, at(&map, 0x2000)), (14, None));
        map.take(b"2000 10 second\n");
        assert_eq!(at(&map, 0x2000).as_deref(), Some("second"));
    }

    #[test]
    fn a_name_of_nothing_is_none() {
        let map = read(b"1000 10 \0\n2000 10 \0hidden\n3000 10 seen\0hidden\n");
        assert_eq!([0x1000, 0x2000].map(|address| at(&map, address)), [None, None]);
        assert_eq!((at(&map, 0x3000).as_deref(), map.malformed), (Some("seen"), 2));
    }

    #[test]
    fn of_two_functions_at_one_place_the_later_is_there() {
        let map = read(b"1000 100 old\n1040 10 new\n");
        let names = [0x103f, 0x1040, 0x104f, 0x1050].map(|address| at(&map, address));
        assert_eq!(names.each_ref().map(|name| name.as_deref().unwrap()), ["old", "new", "new", "old"]);
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let mut map = PerfMap::new(1 << 20);
        let piece = [b'x'; 100_000];
        assert_eq!(map.take(&piece), piece.len());
        assert_eq!(map.take(&piece), piece.len());
        map.take(b"rest\n1000 10 good\n");
        assert_eq!((at(&map, 0x1000).as_deref(), map.malformed), (Some("good"), 1));
    }

    #[test]
    fn a_list_that_needs_more_memory_than_it_may_have_keeps_its_latest_functions_and_counts_the_others() {
        let mut map = PerfMap::new(10_000);
        for number in 0..1000 {
            map.take(format!("{:x} 10 function {number}\n", 0x1000 + number * 16).as_bytes());
        }
        let kept = (0..1000u64).filter(|number| at(&map, 0x1000 + number * 16).is_some()).count();
        assert!(
            map.functions.bytes() <= 10_000 && map.functions.dropped as usize == 1000 - kept,
            "{} {kept}",
            map.functions.dropped
        );
        assert_eq!(at(&map, 0x1000 + 999 * 16).as_deref(), Some("function 999"));
        assert_eq!(at(&map, 0x1000), None);
        let dropped = map.functions.dropped;
        map.restart();
        assert_eq!((map.functions.dropped, map.functions.is_empty()), (dropped, true));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_pieces_do_not_matter(
            lines in proptest::collection::vec(prop_oneof![
                "[0-9a-f]{1,6} [0-9a-f]{1,3} [a-z]{1,8}",
                "[ -~]{0,30}",
            ], 0..30),
            junk: Vec<u8>, cut in 1usize..60
        ) {
            let mut bytes = lines.join("\n").into_bytes();
            bytes.extend(junk);
            let whole = read(&bytes);
            let (mut pieces, mut held) = (PerfMap::new(1 << 20), Vec::new());
            for piece in bytes.chunks(cut) {
                held.extend_from_slice(piece);
                let taken = pieces.take(&held);
                held.drain(..taken);
            }
            prop_assert_eq!(whole.malformed, pieces.malformed);
            for address in (0..0x1000).step_by(7) {
                prop_assert_eq!(at(&whole, address), at(&pieces, address));
            }
        }
    }
}
