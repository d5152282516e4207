//! Whether what a file says about unwinding can be followed in bounded time.
//!
//! It is a program (`DW_CFA_*`), and may hold expressions (`DW_OP_*`) that jump, and so never end. No compiler writes
//! such; who wants this program to stand still does. So all of it is looked through once, before any of it is followed.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde, DebugFrame, EhFrame,
    EndianSlice, LittleEndian, Operation, UnwindSection,
};

type Bytes<'b> = EndianSlice<'b, LittleEndian>;

/// The most instructions for one function. They are followed again for each place in it that is not remembered.
const INSTRUCTION_LIMIT: usize = 1 << 16;
/// The most if some of them are expressions: then nothing is remembered.
const EXPRESSION_LIMIT: usize = 1 << 12;

/// It is damaged, or could take any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unsound;

/// Looks through `.eh_frame`, which is loaded at `address`, or `.debug_frame`. Returns for how many functions it is.
pub(super) fn check(bytes: &[u8], address: u64, debug: bool) -> Result<usize, Unsound> {
    let bases = BaseAddresses::default().set_eh_frame(address).set_eh_frame_hdr(0).set_text(0).set_got(0);
    let bytes = EndianSlice::new(bytes, LittleEndian);
    if debug {
        let mut section = DebugFrame::from(bytes);
        section.set_address_size(8);
        check_section(&section, &bases)
    } else {
        let mut section = EhFrame::from(bytes);
        section.set_address_size(8);
        check_section(&section, &bases)
    }
}

fn check_section<'b, S: UnwindSection<Bytes<'b>>>(
    section: &S,
    bases: &BaseAddresses,
) -> Result<usize, Unsound> {
    let mut entries = section.entries(bases);
    let (mut functions, mut common) = (0, None);
    while let Some(entry) = entries.next().map_err(|_| Unsound)? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let function = partial.parse(S::cie_from_offset).map_err(|_| Unsound)?;
        let at = function.cie().offset();
        let cost = match common {
            Some((known, cost)) if known == at => cost,
            _ => {
                let cost = Cost::of(
                    function.cie().instructions(section, bases),
                    section,
                    function.cie().encoding(),
                )?;
                common = Some((at, cost));
                cost
            }
        };
        let own = Cost::of(function.instructions(section, bases), section, function.cie().encoding())?;
        let limit = if cost.expressions || own.expressions { EXPRESSION_LIMIT } else { INSTRUCTION_LIMIT };
        if cost.instructions + own.instructions > limit {
            return Err(Unsound);
        }
        functions += 1;
    }
    Ok(functions)
}

#[derive(Clone, Copy)]
struct Cost {
    instructions: usize,
    expressions: bool,
}

impl Cost {
    fn of<'b, S: UnwindSection<Bytes<'b>>>(
        mut instructions: CallFrameInstructionIter<'_, Bytes<'b>>,
        section: &S,
        encoding: gimli::Encoding,
    ) -> Result<Self, Unsound> {
        let mut cost = Self { instructions: 0, expressions: false };
        // Who follows them stops at what is not an instruction, too.
        while let Ok(Some(instruction)) = instructions.next() {
            cost.instructions += 1;
            let expression = match instruction {
                CallFrameInstruction::DefCfaExpression { expression }
                | CallFrameInstruction::Expression { expression, .. }
                | CallFrameInstruction::ValExpression { expression, .. } => expression,
                _ => continue,
            };
            cost.expressions = true;
            let mut operations = expression.get(section).map_err(|_| Unsound)?.operations(encoding);
            // Without a jump each is followed once.
            while let Ok(Some(operation)) = operations.next() {
                if matches!(operation, Operation::Bra { .. } | Operation::Skip { .. }) {
                    return Err(Unsound);
                }
            }
        }
        Ok(cost)
    }
}

/// An `.eh_frame` for tests: one common entry and one function, which begins at `start`.
#[cfg(test)]
pub(super) fn section(address: u64, start: u64, size: u32, instructions: &[u8]) -> Vec<u8> {
    let padded = |mut bytes: Vec<u8>| {
        // The length counts what is behind it; DW_CFA_nop fills up.
        bytes.resize((bytes.len() + 4).next_multiple_of(8) - 4, 0);
        [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()
    };
    // Version 1, augmentation "zR", code by 1, data by -8, return address in register 16, pointers pcrel | sdata4,
    // then DW_CFA_def_cfa r7, 8 and DW_CFA_offset r16, -8.
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
    use proptest::prelude::*;

    #[test]
    fn what_compilers_and_linkers_write_is_sound() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let elf = Elf::read(&file).unwrap();
        let frames = elf.frames().unwrap();
        let bytes = elf.bytes(frames.offset, frames.size, 1 << 30).unwrap();
        assert!(check(&bytes, frames.address, frames.debug).unwrap() > 1000);
        assert_eq!(check(&section(0x2000, 0x1000, 16, &[0x0e, 16]), 0x2000, false), Ok(1));
    }

    #[test]
    fn an_expression_that_jumps_is_refused() {
        // DW_CFA_def_cfa_expression of 3 bytes: DW_OP_skip -3, for ever.
        let endless = section(0x2000, 0x1000, 16, &[0x0f, 3, 0x2f, 0xfd, 0xff]);
        assert_eq!(check(&endless, 0x2000, false), Err(Unsound));
        // DW_OP_breg7 8 is what it takes to be of use.
        let plain = section(0x2000, 0x1000, 16, &[0x0f, 2, 0x77, 8]);
        assert_eq!(check(&plain, 0x2000, false), Ok(1));
    }

    #[test]
    fn a_function_with_too_many_instructions_is_refused() {
        let with = |count, first: &[u8]| {
            let mut instructions = first.to_vec();
            instructions.extend(vec![0x41; count]);
            check(&section(0x2000, 0x1000, 16, &instructions), 0x2000, false)
        };
        assert_eq!(with(EXPRESSION_LIMIT * 2, &[]), Ok(1));
        assert_eq!(with(EXPRESSION_LIMIT * 2, &[0x0f, 2, 0x77, 8]), Err(Unsound));
        assert_eq!(with(INSTRUCTION_LIMIT * 2, &[]), Err(Unsound));
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
                let found = check(&bytes, 0x2000, debug);
                prop_assert!(found.is_err() || found.unwrap() <= bytes.len());
            }
        }
    }
}
