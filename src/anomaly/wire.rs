//! Numbers and texts as bytes, little-endian, for files of what was learned.

/// Collects bytes.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.extend_from_slice(&bytes);
    }

    pub(super) fn number(&mut self, number: u64) {
        self.bytes(number.to_le_bytes());
    }

    pub(super) fn float(&mut self, number: f64) {
        self.bytes(number.to_le_bytes());
    }

    /// Writes a number that may be absent. `u64::MAX` is absent.
    pub(super) fn optional(&mut self, number: Option<u64>) {
        self.number(number.unwrap_or(u64::MAX));
    }

    /// Writes the number of following items, at most 65535.
    pub(super) fn length(&mut self, length: usize) {
        self.bytes(u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
    }

    /// Writes a text of at most 65535 bytes.
    pub(super) fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// Reads untrusted bytes. Each function returns `None` at the end of the bytes, and for values that no [`Writer`] has written.
#[derive(Debug)]
pub(super) struct Reader<'b>(pub(super) &'b [u8]);

impl Reader<'_> {
    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// Reads a number that is finite and not negative.
    pub(super) fn float(&mut self) -> Option<f64> {
        self.bytes().map(f64::from_le_bytes).filter(|number| number.is_finite() && *number >= 0.0)
    }

    /// Reads a number that may be absent. The outer `None` is the end of the bytes.
    #[allow(clippy::option_option, reason = "absent and unreadable are different")]
    pub(super) fn optional(&mut self) -> Option<Option<u64>> {
        self.number().map(|number| (number != u64::MAX).then_some(number))
    }

    pub(super) fn length(&mut self) -> Option<usize> {
        self.bytes().map(|bytes| usize::from(u16::from_le_bytes(bytes)))
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let length = self.length()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(str::from_utf8(text).ok()?.to_owned())
    }
}
