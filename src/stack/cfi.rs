//! The call frame information (CFI) of one function: its entry (FDE) and the common entry (CIE) that it refers to.
//!
//! CFI is a program (`DW_CFA_*`), and may contain expressions (`DW_OP_*`) with jumps, which may loop forever. No compiler writes such
//! expressions, but a malicious file could block the exporter with one. Therefore an entry is checked completely before it is evaluated.
//! Both entries are copied out of the file first, so that the checked bytes are the evaluated bytes, even if the file changes.

use std::io::{self, ErrorKind};

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, DebugFrame, EhFrame, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Operation, UnwindContext, UnwindSection, Vendor,
};

use super::elf::FrameSection;
use super::rule::Row;
use crate::host::ReadAt;

type Bytes<'b> = EndianSlice<'b, LittleEndian>;
type Function<'b> = FrameDescriptionEntry<Bytes<'b>>;

/// The longest entry of a function, in bytes.
const FUNCTION_LIMIT: u32 = 64 << 10;
/// The longest common entry, in bytes. Compilers write less than 50.
const COMMON_LIMIT: u32 = 1 << 10;
/// The most instructions and operations of a function with expressions, because its rules are not cached.
const EXPRESSION_LIMIT: usize = 1 << 12;
/// The size in bytes above which the buffer is freed after use.
const BUFFER_LIMIT: usize = 4 << 10;

/// The reason why there is no information about a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The content of the file is not available yet.
    Later,
    /// The entry is damaged, too long, or could take unbounded time.
    Broken,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Later,
            _ => Self::Broken,
        }
    }
}

impl From<gimli::Error> for Fault {
    fn from(_: gimli::Error) -> Self {
        Self::Broken
    }
}

/// The kind of entry at an offset of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// The end of the section.
    End,
    /// An entry that is not of a function; the next entry begins at `next`.
    Other { next: u64 },
    /// The entry of a function.
    Function { next: u64 },
}

impl FrameSection {
    /// Reads a number within the section.
    fn word(&self, file: &dyn ReadAt, at: u64) -> Result<u32, Fault> {
        let mut word = [0; 4];
        self.read(file, at, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn read(&self, file: &dyn ReadAt, at: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        let end = at.checked_add(buffer.len() as u64).filter(|&end| end <= self.size);
        let offset = end.and(self.offset.checked_add(at)).ok_or(Fault::Broken)?;
        Ok(file.read_exact_at(buffer, offset)?)
    }

    /// Reports whether an entry is a common one, by the number after its length.
    fn is_common(&self, id: u32) -> bool {
        id == if self.debug { u32::MAX } else { 0 }
    }

    /// Returns the kind of entry at `at`. Entries of 64-bit DWARF are not supported.
    pub(super) fn entry(&self, file: &dyn ReadAt, at: u64) -> Result<Entry, Fault> {
        if at.saturating_add(4) > self.size {
            return Ok(Entry::End);
        }
        match self.word(file, at)? {
            0 if self.debug => Ok(Entry::Other { next: at + 4 }),
            0 => Ok(Entry::End),
            length @ 4..0xffff_fff0 => {
                let next = at + 4 + u64::from(length);
                let common = self.is_common(self.word(file, at + 4)?);
                Ok(if common { Entry::Other { next } } else { Entry::Function { next } })
            }
            _ => Err(Fault::Broken),
        }
    }
}

/// A reader of entries, with reusable buffers.
pub(super) struct Cfi {
    /// A common entry, followed by the entry of a function.
    bytes: Vec<u8>,
    context: UnwindContext<usize>,
}

/// The location of an entry that was read.
#[derive(Clone, Copy)]
struct Place {
    /// The offset of the function entry in the buffer.
    at: usize,
    /// The address at which the buffer would have to be loaded.
    address: u64,
    debug: bool,
}

impl Cfi {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), context: UnwindContext::new() }
    }

    /// Copies the entry at `at` and its common entry into the buffer.
    fn read(&mut self, file: &dyn ReadAt, section: &FrameSection, at: u64) -> Result<Place, Fault> {
        self.bytes.clear();
        self.bytes.shrink_to(BUFFER_LIMIT);
        let length = section.word(file, at)?;
        let id = section.word(file, at.checked_add(4).ok_or(Fault::Broken)?)?;
        if !(4..=FUNCTION_LIMIT).contains(&length) || section.is_common(id) {
            return Err(Fault::Broken);
        }
        let common_at = if section.debug { Some(id.into()) } else { (at + 4).checked_sub(u64::from(id)) };
        let common_at = common_at.ok_or(Fault::Broken)?;
        let common_length = section.word(file, common_at)?;
        if !(4..=COMMON_LIMIT).contains(&common_length) {
            return Err(Fault::Broken);
        }
        // Both limits are small, so that the casts cannot overflow.
        let middle = common_length as usize + 4;
        self.bytes.resize(middle + length as usize + 4, 0);
        let (common, function) = self.bytes.split_at_mut(middle);
        section.read(file, common_at, common)?;
        section.read(file, at, function)?;
        // The file may have changed since its lengths were read.
        common[..4].copy_from_slice(&common_length.to_le_bytes());
        function[..4].copy_from_slice(&length.to_le_bytes());
        let back = if section.debug { 0 } else { middle as u32 + 4 };
        function[4..8].copy_from_slice(&back.to_le_bytes());
        let address = section.address.wrapping_add(at).wrapping_sub(middle as u64);
        Ok(Place { at: middle, address, debug: section.debug })
    }

    /// Returns the address at which the function of the entry at `at` begins.
    ///
    /// # Errors
    /// See [`Fault`].
    pub(super) fn start(&mut self, file: &dyn ReadAt, section: &FrameSection, at: u64) -> Result<u64, Fault> {
        let place = self.read(file, section, at)?;
        let bases = place.bases();
        Ok(if place.debug {
            place.function(&debug_frame(&self.bytes), &bases)?.initial_address()
        } else {
            place.function(&eh_frame(&self.bytes), &bases)?.initial_address()
        })
    }

    /// Calls `answer` with the row for an address. Returns `None` if the function of the entry at `at` does not contain it.
    ///
    /// # Errors
    /// See [`Fault`].
    pub(super) fn row<T>(
        &mut self,
        (file, section, at): (&dyn ReadAt, &FrameSection, u64),
        address: u64,
        answer: impl FnOnce(Row<'_>) -> T,
    ) -> Result<Option<T>, Fault> {
        let place = self.read(file, section, at)?;
        let (context, bytes) = (&mut self.context, &self.bytes);
        if place.debug {
            row((&debug_frame(bytes), bytes), place, context, address, answer)
        } else {
            row((&eh_frame(bytes), bytes), place, context, address, answer)
        }
    }
}

const VENDOR: Vendor = if cfg!(target_arch = "aarch64") { Vendor::AArch64 } else { Vendor::Default };

fn eh_frame(bytes: &[u8]) -> EhFrame<Bytes<'_>> {
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(VENDOR);
    section
}

fn debug_frame(bytes: &[u8]) -> DebugFrame<Bytes<'_>> {
    let mut section = DebugFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(VENDOR);
    section
}

impl Place {
    fn bases(self) -> BaseAddresses {
        BaseAddresses::default().set_eh_frame(self.address).set_eh_frame_hdr(0).set_text(0).set_got(0)
    }

    fn function<'b, S: UnwindSection<Bytes<'b>>>(
        self,
        section: &S,
        bases: &BaseAddresses,
    ) -> Result<Function<'b>, Fault> {
        Ok(section.fde_from_offset(bases, self.at.into(), S::cie_from_offset)?)
    }
}

fn row<'b, S: UnwindSection<Bytes<'b>>, T>(
    (section, bytes): (&S, &'b [u8]),
    place: Place,
    context: &mut UnwindContext<usize>,
    address: u64,
    answer: impl FnOnce(Row<'_>) -> T,
) -> Result<Option<T>, Fault> {
    let bases = place.bases();
    let function = place.function(section, &bases)?;
    check(section, &function, &bases)?;
    if !function.contains(address) {
        return Ok(None);
    }
    // If the table cannot be evaluated up to the address, there is no row for it.
    let row = function.unwind_info_for_address(section, &bases, context, address).ok();
    let encoding = function.cie().encoding();
    Ok(row.map(|row| answer(Row { row, encoding, bytes })))
}

/// Checks that an entry can be evaluated in a time that its length bounds.
fn check<'b, S: UnwindSection<Bytes<'b>>>(
    section: &S,
    function: &Function<'b>,
    bases: &BaseAddresses,
) -> Result<(), Fault> {
    let cie = function.cie();
    let common = Cost::of(cie.instructions(section, bases), section, cie.encoding())?;
    let own = Cost::of(function.instructions(section, bases), section, cie.encoding())?;
    let computed = common.expressions || own.expressions;
    if computed && common.steps + own.steps > EXPRESSION_LIMIT { Err(Fault::Broken) } else { Ok(()) }
}

#[derive(Clone, Copy)]
struct Cost {
    /// Instructions, and operations of expressions.
    steps: usize,
    expressions: bool,
}

impl Cost {
    fn of<'b, S: UnwindSection<Bytes<'b>>>(
        mut instructions: CallFrameInstructionIter<'_, Bytes<'b>>,
        section: &S,
        encoding: gimli::Encoding,
    ) -> Result<Self, Fault> {
        let mut cost = Self { steps: 0, expressions: false };
        // Evaluation stops at an invalid instruction, too.
        while let Ok(Some(instruction)) = instructions.next() {
            cost.steps += 1;
            let expression = match instruction {
                CallFrameInstruction::DefCfaExpression { expression }
                | CallFrameInstruction::Expression { expression, .. }
                | CallFrameInstruction::ValExpression { expression, .. } => expression,
                _ => continue,
            };
            cost.expressions = true;
            let mut operations = expression.get(section)?.operations(encoding);
            // Without a jump each operation is evaluated once.
            while let Ok(Some(operation)) = operations.next() {
                cost.steps += 1;
                if matches!(operation, Operation::Bra { .. } | Operation::Skip { .. }) {
                    return Err(Fault::Broken);
                }
            }
        }
        Ok(cost)
    }
}

/// Returns an `.eh_frame` for tests: one common entry and one function, which begins at `start`.
#[cfg(test)]
pub(super) fn section(address: u64, start: u64, size: u32, instructions: &[u8]) -> Vec<u8> {
    let padded = |mut bytes: Vec<u8>| {
        // The length excludes itself; DW_CFA_nop pads the entry.
        bytes.resize((bytes.len() + 4).next_multiple_of(8) - 4, 0);
        [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()
    };
    // Version 1, augmentation "zR", code alignment 1, data alignment -8, return address in register 16, pointers pcrel | sdata4, then
    // DW_CFA_def_cfa r7, 8 and DW_CFA_offset r16, -8.
    let common = [&[0; 4][..], b"\x01zR\0\x01\x78\x10\x01\x1b", &[0x0c, 7, 8, 0x80 | 16, 1]].concat();
    let common = padded(common);
    let back = common.len() as u32 + 4;
    let from = address + common.len() as u64 + 8;
    let distance = (start.wrapping_sub(from)) as u32;
    let function =
        [&back.to_le_bytes()[..], &distance.to_le_bytes(), &size.to_le_bytes(), &[0], instructions].concat();
    [common, padded(function), vec![0; 4]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::elf::Elf;
    use crate::stack::pages::{Allowance, PagedFile, Pages};
    use proptest::prelude::*;
    use std::cell::RefCell;

    /// A file in memory that consists of one section.
    struct Memory(Vec<u8>);

    impl ReadAt for Memory {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = self.0.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }

        fn length(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }
    }

    /// Checks all entries of functions. Returns their number.
    fn all(file: &dyn ReadAt, section: FrameSection) -> Result<usize, Fault> {
        let (mut cfi, mut at, mut functions) = (Cfi::new(), 0, 0);
        loop {
            at = match section.entry(file, at)? {
                Entry::End => return Ok(functions),
                Entry::Other { next } => next,
                Entry::Function { next } => {
                    let start = cfi.start(file, &section, at)?;
                    cfi.row((file, &section, at), start, |_| ())?;
                    functions += 1;
                    next
                }
            };
        }
    }

    fn check(bytes: Vec<u8>, debug: bool) -> Result<usize, Fault> {
        let section = FrameSection { address: 0x2000, offset: 0, size: bytes.len() as u64, debug };
        all(&Memory(bytes), section)
    }

    #[test]
    fn what_compilers_and_linkers_write_is_sound() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (pages, allowance) = (RefCell::new(Pages::new(1 << 20)), Allowance::new(u64::MAX));
        let file = PagedFile::new(&file, 1, &pages, &allowance);
        let frames = Elf::read(&file).unwrap().frames().unwrap();
        // Only a part of the 100 000 functions is checked.
        let part = FrameSection { size: frames.size.min(400 << 10), ..frames };
        let (mut cfi, mut at, mut functions) = (Cfi::new(), 0, 0);
        while let Ok(Entry::Function { next } | Entry::Other { next }) = part.entry(&file, at)
            && next <= part.size
        {
            if matches!(part.entry(&file, at), Ok(Entry::Function { .. })) {
                let start = cfi.start(&file, &part, at).unwrap();
                assert!(cfi.row((&file, &part, at), start, |_| ()).unwrap().is_some());
                functions += 1;
            }
            at = next;
        }
        assert!(functions > 1000, "{functions}");
        assert_eq!(check(section(0x2000, 0x1000, 16, &[0x0e, 16]), false), Ok(1));
    }

    #[test]
    fn an_expression_that_jumps_is_refused() {
        // DW_CFA_def_cfa_expression of 3 bytes: DW_OP_skip -3, an infinite loop.
        let endless = section(0x2000, 0x1000, 16, &[0x0f, 3, 0x2f, 0xfd, 0xff]);
        assert_eq!(check(endless, false), Err(Fault::Broken));
        // DW_OP_breg7 8 makes it a useful expression.
        let plain = section(0x2000, 0x1000, 16, &[0x0f, 2, 0x77, 8]);
        assert_eq!(check(plain, false), Ok(1));
    }

    #[test]
    fn a_function_that_takes_too_many_steps_is_refused() {
        let with = |count, first: &[u8]| {
            let mut instructions = first.to_vec();
            instructions.extend(vec![0x41; count]);
            check(section(0x2000, 0x1000, 16, &instructions), false)
        };
        assert_eq!(with(EXPRESSION_LIMIT * 2, &[]), Ok(1));
        assert_eq!(with(EXPRESSION_LIMIT * 2, &[0x0f, 2, 0x77, 8]), Err(Fault::Broken));
        assert_eq!(with(FUNCTION_LIMIT as usize, &[]), Err(Fault::Broken));
        // An expression of 6000 operations (DW_OP_nop).
        let long = [&[0x0f, 0xf0, 0x2e][..], &[0x96; 6000]].concat();
        assert_eq!(check(section(0x2000, 0x1000, 16, &long), false), Err(Fault::Broken));
    }

    proptest! {
        #[test]
        fn any_bytes_are_sound_or_not(
            instructions in proptest::collection::vec(any::<u8>(), 0..40),
            flips in proptest::collection::vec((0usize..60, any::<u8>()), 0..4),
            bytes: Vec<u8>,
            debug: bool,
        ) {
            let mut section = section(0x2000, 0x1000, 16, &instructions);
            let length = section.len();
            flips.iter().for_each(|&(at, byte)| section[at % length] = byte);
            for bytes in [section, bytes] {
                let length = bytes.len();
                let found = check(bytes, debug);
                prop_assert!(found.is_err() || found.unwrap() <= length);
            }
        }
    }
}
