//! Reads a file that its writer appends to, in small rounds and at a bounded rate.

use std::fmt::Debug;
use std::sync::Arc;

use super::regions::Regions;
use crate::clock::{Allowance, Monotonic};
use crate::error::FileError;
use crate::files::Opened;
use crate::host::ReadAt;

/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;
/// The most bytes that are read in one round. The rest is read in the next round.
pub(super) const ROUND: u64 = 1 << 20;
/// The number of last read bytes that must be unchanged, or else the file was rewritten.
const TAIL: usize = 64;

/// Parses pieces of a file, from its start to its end.
pub(super) trait Reader {
    /// Parses as much as possible of a piece, and returns the number of consumed bytes.
    fn take(&mut self, bytes: &[u8]) -> usize;

    /// Returns how many of the next `most` bytes are not needed and can be left unread.
    fn skip(&mut self, most: u64) -> u64 {
        let _ = most;
        0
    }

    /// Discards everything: the next piece is the start of the file.
    fn restart(&mut self);
}

/// A [`Reader`] of functions.
pub(super) trait FunctionReader: Reader + Debug + Send + Sync {
    fn functions(&self) -> &Regions;

    fn functions_mut(&mut self) -> &mut Regions;

    /// Returns the number of lines or records that could not be parsed.
    fn malformed(&self) -> u64;

    /// Returns the approximate memory in use, in bytes.
    fn bytes(&self) -> usize {
        self.functions().bytes()
    }
}

/// A file and the position up to which it was read. It stays open, so that the rest can be read after its writer has exited.
#[derive(Debug)]
pub(super) struct Followed {
    opened: Arc<Opened>,
    position: Position,
}

impl Followed {
    pub(super) fn new(opened: Arc<Opened>) -> Self {
        Self { opened, position: Position::default() }
    }

    /// Reports whether `other` is the same file.
    pub(super) fn is(&self, other: &Opened) -> bool {
        Arc::as_ptr(&self.opened) == std::ptr::from_ref(other)
            || self.opened.id().is_some_and(|id| other.id() == Some(id))
    }

    /// Reports whether the file had unread bytes after the last round.
    pub(super) fn is_behind(&self) -> bool {
        self.position.behind
    }

    /// Reads one round of what was written since the last one, within each of `allowances`. Returns whether the reader has changed.
    ///
    /// # Errors
    /// When the kernel rejects a read.
    pub(super) fn poll(
        &mut self,
        reader: &mut dyn Reader,
        allowances: [&mut Allowance; 2],
        now: Monotonic,
    ) -> Result<bool, FileError> {
        let polled = self.position.poll(&self.opened.file, reader, allowances, now);
        polled.map_err(|error| FileError::io(&self.opened.shown, &error))
    }
}

/// The read position of a file.
#[derive(Debug, Default)]
struct Position {
    read: u64,
    /// The bytes before `read`.
    tail: Vec<u8>,
    behind: bool,
}

impl Position {
    /// As [`Followed::poll`]. Reads at most [`ROUND`] bytes, in addition to those that show whether the file was rewritten.
    fn poll(
        &mut self,
        file: &impl ReadAt,
        reader: &mut dyn Reader,
        mut allowances: [&mut Allowance; 2],
        now: Monotonic,
    ) -> std::io::Result<bool> {
        let length = file.length()?;
        let mut changed = false;
        if length < self.read || !self.is_continued(file)? {
            reader.restart();
            *self = Self::default();
            changed = true;
        }
        let granted = allowances.iter_mut().map(|allowance| allowance.left(now)).min().unwrap_or(0);
        let wanted = length - self.read;
        self.behind = wanted > 0;
        // A smaller piece might end within the first line, and would be read in vain.
        if granted < wanted.min(CHUNK as u64) {
            return Ok(changed);
        }
        let (mut spent, mut held, mut buffer) = (0_u64, 0_usize, Vec::new());
        buffer.resize(CHUNK.min(usize::try_from(wanted).unwrap_or(CHUNK)), 0);
        let round = granted.min(ROUND);
        while spent < round && self.read + (held as u64) < length {
            let end = buffer.len().min(held.saturating_add(usize::try_from(round - spent).unwrap_or(CHUNK)));
            let read = read_some(file, &mut buffer[held..end], self.read + held as u64)?;
            if read == 0 {
                break;
            }
            spent += read as u64;
            let filled = held + read;
            let taken = reader.take(&buffer[..filled]).min(filled);
            if taken > 0 {
                self.advance(&buffer[..taken]);
                changed = true;
            } else if filled == buffer.len() {
                // The rest of the item was not written yet, or the item is larger than the buffer.
                break;
            }
            buffer.copy_within(taken..filled, 0);
            held = filled - taken;
            let skipped = if held == 0 { reader.skip(length.saturating_sub(self.read)) } else { 0 };
            if skipped > 0 {
                self.jump(file, skipped)?;
            }
        }
        allowances.iter_mut().for_each(|allowance| allowance.spend(spent));
        self.behind = self.read + (held as u64) < length && spent > 0;
        Ok(changed)
    }

    /// Advances the position past bytes that were read.
    fn advance(&mut self, bytes: &[u8]) {
        self.read += bytes.len() as u64;
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }

    /// Advances the position past bytes that are not read.
    fn jump(&mut self, file: &impl ReadAt, bytes: u64) -> std::io::Result<()> {
        self.read += bytes;
        self.tail.resize(TAIL.min(usize::try_from(self.read).unwrap_or(TAIL)), 0);
        let at = self.read - self.tail.len() as u64;
        file.read_exact_at(&mut self.tail, at)
    }

    /// Reports whether the last read bytes are unchanged.
    fn is_continued(&self, file: &impl ReadAt) -> std::io::Result<bool> {
        let mut there = vec![0; self.tail.len()];
        let at = self.read.saturating_sub(there.len() as u64);
        match file.read_exact_at(&mut there, at) {
            Ok(()) => Ok(there == self.tail),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn read_some(file: &impl ReadAt, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
    loop {
        match file.read_at(buffer, at) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    use super::*;

    /// A file in memory that counts how much of it is read.
    #[derive(Default)]
    struct Memory {
        content: RefCell<Vec<u8>>,
        read: Cell<u64>,
    }

    impl ReadAt for Memory {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
            let content = self.content.borrow();
            let rest = content.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
            let read = rest.len().min(buffer.len());
            buffer[..read].copy_from_slice(&rest[..read]);
            self.read.set(self.read.get() + read as u64);
            Ok(read)
        }

        fn length(&self) -> std::io::Result<u64> {
            Ok(self.content.borrow().len() as u64)
        }
    }

    /// Takes lines, and skips a number of bytes after each.
    #[derive(Default)]
    struct Lines {
        lines: Vec<String>,
        restarts: u32,
        skipping: u64,
        skip: u64,
    }

    impl Reader for Lines {
        fn take(&mut self, bytes: &[u8]) -> usize {
            let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return 0 };
            let end =
                if self.skipping > 0 { end } else { bytes.iter().rposition(|&byte| byte == b'\n').unwrap() };
            self.lines.extend(
                bytes[..end].split(|&byte| byte == b'\n').map(|line| String::from_utf8_lossy(line).into()),
            );
            self.skip = self.skipping;
            end + 1
        }

        fn skip(&mut self, most: u64) -> u64 {
            let skipped = self.skip.min(most);
            self.skip -= skipped;
            skipped
        }

        fn restart(&mut self) {
            self.lines.clear();
            self.restarts += 1;
        }
    }

    const ENDLESS: u64 = 1 << 40;
    const SECOND: Duration = Duration::from_secs(1);

    fn moment(milliseconds: u64) -> Monotonic {
        Monotonic(Duration::from_millis(milliseconds))
    }

    fn poll(position: &mut Position, file: &Memory, lines: &mut Lines) -> bool {
        let [mut one, mut two] = [Allowance::new(ENDLESS, 1, SECOND, moment(0)); 2];
        position.poll(file, lines, [&mut one, &mut two], moment(0)).unwrap()
    }

    #[test]
    fn a_large_file_is_read_in_rounds() {
        let (file, mut position, mut lines) = (Memory::default(), Position::default(), Lines::default());
        let text = "a line of some length\n".repeat(200_000);
        file.content.borrow_mut().extend(text.bytes());
        let mut rounds = 0;
        while poll(&mut position, &file, &mut lines) {
            let read = file.read.replace(0);
            assert!(read <= ROUND + CHUNK as u64 + TAIL as u64, "{read}");
            rounds += 1;
        }
        assert_eq!(
            (lines.lines.len(), lines.restarts, rounds),
            (200_000, 0, text.len().div_ceil(ROUND as usize))
        );
        assert!(!position.behind);
    }

    #[test]
    fn what_the_reader_does_not_need_is_not_read() {
        let (file, mut position) = (Memory::default(), Position::default());
        let mut lines = Lines { skipping: 8 << 20, ..Lines::default() };
        for name in ["one\n", "two\n"] {
            file.content.borrow_mut().extend(name.bytes());
            let length = file.content.borrow().len() + (8 << 20);
            file.content.borrow_mut().resize(length, b'x');
        }
        poll(&mut position, &file, &mut lines);
        // A chunk may begin with a line and contain bytes that are not needed.
        while poll(&mut position, &file, &mut lines) {}
        assert_eq!(lines.restarts, 0);
        assert_eq!(lines.lines.first().map(String::as_str), Some("one"));
    }

    /// A file of 20 MB that is rewritten each second.
    #[test]
    fn a_file_that_is_rewritten_all_the_time_is_read_at_a_bounded_rate() {
        const FILE: u64 = 20 << 20;
        let (file, mut position, mut lines) = (Memory::default(), Position::default(), Lines::default());
        let (burst, rate) = (4 << 20, 1 << 19);
        let (mut own, mut all) =
            (Allowance::new(burst, rate, SECOND, moment(0)), Allowance::new(ENDLESS, 1, SECOND, moment(0)));
        let mut rewritten = 0;
        for tenth in 0..300u64 {
            if tenth % 10 == 0 {
                rewritten += FILE;
                let line = format!("{tenth:>63}\n");
                *file.content.borrow_mut() = line.repeat((FILE / 64) as usize).into_bytes();
            }
            position.poll(&file, &mut lines, [&mut own, &mut all], moment(tenth * 100)).unwrap();
        }
        let most = burst + 30 * rate + 300 * (TAIL as u64) + ROUND;
        assert!(file.read.get() <= most, "{} of {rewritten}, {most} are allowed", file.read.get());
        assert!(position.behind && lines.restarts >= 20, "{}", lines.restarts);
    }
}
