//! Records that perf compressed with zstd (`perf record -z`): one stream in many records.

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Maximum size of a frame's header in bytes.
const FRAME_HEADER: usize = 18;
/// Size of a block's header in bytes.
const BLOCK_HEADER: usize = 3;
/// An empty last block, with which an unfinished frame ends.
const LAST_BLOCK: [u8; BLOCK_HEADER] = [1, 0, 0];
/// Maximum ratio of the sizes before and after compression, and the size to which it does not apply. Records of perf have a ratio of 3 to 50.
const RATIO: u64 = 256;
const FREE: u64 = 16 << 20;

/// The compressed stream is damaged, or its ratio exceeds the limit.
#[derive(Debug)]
pub(super) struct Damaged;

/// The stream so far.
pub(super) struct Inflater {
    decoder: FrameDecoder,
    /// Whether the header of a frame was read, and its last block was not.
    within: bool,
    input: Vec<u8>,
    /// The position of the next block in `input`.
    read: usize,
    output: Vec<u8>,
    /// The position of the next record in `output`.
    at: usize,
    /// The sizes of all input and output.
    sizes: (u64, u64),
}

impl Default for Inflater {
    fn default() -> Self {
        Self {
            decoder: FrameDecoder::new(),
            within: false,
            input: Vec::new(),
            read: 0,
            output: Vec::new(),
            at: 0,
            sizes: (0, 0),
        }
    }
}

impl Inflater {
    /// Appends compressed bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.input.drain(..std::mem::take(&mut self.read));
        self.input.extend_from_slice(bytes);
        self.sizes.0 += bytes.len() as u64;
    }

    /// Reports whether a frame has no end yet: perf does not write it.
    pub(super) fn can_end(&self) -> bool {
        self.within && self.read == self.input.len()
    }

    /// Appends the end of a frame. The decoder keeps back a part of its output until then.
    pub(super) fn end(&mut self) {
        self.input.extend_from_slice(&LAST_BLOCK);
    }

    /// Returns the next record, with its header; `None` if more input is needed.
    pub(super) fn record(&mut self) -> Result<Option<&[u8]>, Damaged> {
        loop {
            let rest = &self.output[self.at..];
            if let [_, _, _, _, _, _, low, high, ..] = *rest {
                let size = usize::from(u16::from_le_bytes([low, high]));
                if size < 8 {
                    return Err(Damaged);
                }
                if rest.len() >= size {
                    self.at += size;
                    return Ok(self.output.get(self.at - size..self.at));
                }
            }
            self.output.drain(..std::mem::take(&mut self.at));
            if !self.block()? {
                return Ok(None);
            }
        }
    }

    /// Decodes a block. Returns false if the input does not contain a whole one.
    fn block(&mut self) -> Result<bool, Damaged> {
        let mut input = &self.input[self.read..];
        if !self.within {
            if input.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut input) {
                Ok(()) => self.within = true,
                Err(_) if self.input.len() - self.read < FRAME_HEADER => return Ok(false),
                Err(_) => return Err(Damaged),
            }
            self.read = self.input.len() - input.len();
            return Ok(true);
        }
        let [first, second, third, ..] = *input else { return Ok(false) };
        let header = u32::from_le_bytes([first, second, third, 0]);
        let is_repeated = (header >> 1) & 3 == 1;
        let size = if is_repeated { 1 } else { header as usize >> 3 };
        if input.len() < BLOCK_HEADER + size {
            return Ok(false);
        }
        let strategy = BlockDecodingStrategy::UptoBlocks(1);
        let ended = self.decoder.decode_blocks(&mut input, strategy).map_err(|_| Damaged)?;
        self.read = self.input.len() - input.len();
        self.within = !ended;
        let decoded = self.decoder.collect().unwrap_or_default();
        self.sizes.1 += decoded.len() as u64;
        if self.sizes.1 > self.sizes.0.saturating_mul(RATIO).saturating_add(FREE) {
            return Err(Damaged);
        }
        self.output.extend_from_slice(&decoded);
        Ok(true)
    }
}
