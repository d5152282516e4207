//! A reader of numbers and texts from bytes, in the byte order of the recording machine.

use memchr::memchr;

/// A position in bytes. A read beyond their end returns `None`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    big: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], big: bool) -> Self {
        Self { bytes, big }
    }

    /// Returns the unread bytes.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(size)?;
        self.bytes = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        let big = self.big;
        self.array().map(|bytes| if big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let big = self.big;
        self.array().map(|bytes| if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let big = self.big;
        self.array().map(|bytes| if big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// Skips `number` words of 8 bytes.
    pub(super) fn skip_words(&mut self, number: u64) -> Option<()> {
        self.take(usize::try_from(number).ok()?.checked_mul(8)?).map(drop)
    }

    /// Returns a text of the features: its size with padding, then the text up to its first NUL.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let size = self.u32()?;
        self.take(usize::try_from(size).ok()?).map(until_nul)
    }
}

/// Returns the bytes before the first NUL.
pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..memchr(0, bytes).unwrap_or(bytes.len())]
}
