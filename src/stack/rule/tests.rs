//! Rules of generated tables on both processors, compared with framehop.

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};
use proptest::prelude::*;

use super::*;
use crate::stack::cfi::{self, Cfi};
use crate::stack::elf::FrameSection;

const CODE: u64 = 0x1000;
const SECTION: u64 = 0x2000;
const STACK: u64 = 0x7fff_0000;

/// Returns a word of a stack that has a value at every address.
fn word(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17 | 8
}

type Answer = (Option<Option<u64>>, u64, u64);

/// Returns framehop's result: the return address, then the stack and the frame pointer of the caller.
fn expected(machine: Machine, section: &[u8], first: bool, from: Registers) -> Answer {
    let sections = ExplicitModuleSectionInfo {
        eh_frame: Some(section.to_vec()),
        eh_frame_svma: Some(SECTION..SECTION + section.len() as u64),
        ..Default::default()
    };
    let module = framehop::Module::new(String::new(), 0..1 << 32, 0, sections);
    let at = if first {
        FrameAddress::from_instruction_pointer(CODE)
    } else {
        FrameAddress::from_return_address(CODE + 1).unwrap()
    };
    let mut read = |address| Ok(word(address));
    match machine {
        Machine::X86_64 => {
            let mut unwinder = framehop::x86_64::UnwinderX86_64::<Vec<u8>>::new();
            unwinder.add_module(module);
            let mut regs = framehop::x86_64::UnwindRegsX86_64::new(from.ip, from.sp, from.fp);
            let mut cache = framehop::x86_64::CacheX86_64::new();
            let answer = unwinder.unwind_frame(at, &mut regs, &mut cache, &mut read);
            (answer.ok(), regs.sp(), regs.bp())
        }
        Machine::Aarch64 => {
            let mut unwinder = framehop::aarch64::UnwinderAarch64::<Vec<u8>>::new();
            unwinder.add_module(module);
            let mask = framehop::aarch64::PtrAuthMask(ADDRESS_MASK);
            let mut regs =
                framehop::aarch64::UnwindRegsAarch64::new_with_ptr_auth_mask(mask, from.lr, from.sp, from.fp);
            let mut cache = framehop::aarch64::CacheAarch64::new();
            let answer = unwinder.unwind_frame(at, &mut regs, &mut cache, &mut read);
            (answer.ok(), regs.sp(), regs.fp())
        }
    }
}

fn found(machine: Machine, bytes: &[u8], first: bool, from: Registers) -> (Answer, Rule) {
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
    let section = FrameSection { address: SECTION, offset: 0, size: bytes.len() as u64, debug: false };
    // The common entry has a length, and this many bytes after it.
    let at = u64::from(u32::from_le_bytes(*bytes.first_chunk().unwrap())) + 4;
    let mut registers = from;
    let mut read = |address| Some(word(address));
    let (answer, rule) = Cfi::new()
        .row((&file, &section, at), CODE, |row| {
            let rule = row.rule(machine);
            let mut step = Step { machine, first, registers: &mut registers, read: &mut read };
            let answer = match rule {
                Rule::Computed => row.compute(&mut step),
                rule => rule.apply(&mut step),
            };
            (answer.ok(), rule)
        })
        .unwrap()
        .unwrap();
    ((answer, registers.sp, registers.fp), rule)
}

/// `DW_CFA_def_cfa`, or an expression with the same result.
fn cfa(register: u8, offset: u8, expression: bool) -> Vec<u8> {
    match expression {
        // DW_CFA_def_cfa_expression of two bytes: DW_OP_breg; the offset is signed, and less than 64.
        true => vec![0x0f, 2, 0x70 + register, offset],
        false => vec![0x0c, register, offset],
    }
}

/// Returns the rule of a register: none, undefined, same value, an offset of `words` below the CFA, or another register.
fn column(register: u8, kind: u8, words: u8, other: u8) -> Vec<u8> {
    match kind {
        0 => vec![],
        1 => vec![0x07, register],
        2 => vec![0x08, register],
        3 => vec![0x09, register, other],
        4 => vec![0x10, register, 2, 0x70 + other, 8],
        _ => vec![0x80 | register, words],
    }
}

#[test]
fn a_rule_takes_16_bytes_and_a_cached_one_24() {
    assert_eq!((size_of::<Rule>(), size_of::<Entry>()), (16, 24));
}

#[test]
fn a_signed_return_address_leads_to_the_caller() {
    let mut registers = Registers { ip: CODE, sp: STACK, fp: STACK + 32, lr: 0xab12_0000_0000_4321 };
    let leaf = Frame { base: Base::Sp, cfa: 0, fp: Slot::SAME, ra: Slot::SAME };
    let mut apply = |first| {
        let machine = Machine::Aarch64;
        let mut step = Step { machine, first, registers: &mut registers, read: &mut |_| None };
        (Rule::Frame(leaf).apply(&mut step), step.registers.lr)
    };
    assert_eq!(apply(true), (Ok(Some(0x4321)), 0x4321));
    // A function other than the innermost has made a call, which overwrites the register.
    assert_eq!(apply(false).0, Err(Stuck));
}

#[test]
fn rules_are_remembered_within_the_limit() {
    let mut rules = Rules::new(1 << 20);
    let rule =
        |offset: u32| Rule::Frame(Frame { base: Base::Sp, cfa: offset as i32, fp: Slot::SAME, ra: Slot(-8) });
    for offset in 0..200_000 {
        rules.insert(1 + offset % 3, offset, rule(offset));
        assert_eq!(rules.get(1 + offset % 3, offset), Some(rule(offset)));
        assert_eq!(rules.get(5, offset), None);
    }
    assert!((512 << 10..=1 << 20).contains(&rules.bytes()), "{}", rules.bytes());
    let kept = (0..200_000).filter(|&offset| match rules.get(1 + offset % 3, offset) {
        Some(found) => found == rule(offset),
        None => false,
    });
    assert!(kept.count() > 20_000);
    rules.set_limit(0);
    assert_eq!(rules.bytes(), (MIN_ENTRIES * size_of::<Entry>()) as u64);
    assert_eq!(rules.get(1, 0), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_row_leads_to_the_caller_that_framehop_finds(
        arm: bool,
        by_fp: bool,
        offset in 0u8..4,
        expression in prop_oneof![4 => Just(false), 1 => Just(true)],
        kinds in (0u8..10, 0u8..10),
        words in (1u8..6, 1u8..6),
        first: bool,
        place in 0u64..64,
        distance in 1u64..64,
    ) {
        let (machine, [sp, fp, ra]) = match arm {
            true => (Machine::Aarch64, [31, 29, 30]),
            false => (Machine::X86_64, [7, 6, 16]),
        };
        // A CFA that is not above the stack pointer is invalid, and so is an expression over r31 in this form.
        let expression = expression && !arm;
        let base = if by_fp { fp } else { sp };
        let instructions = [
            cfa(base, offset * 16 + 16, expression),
            column(fp, kinds.0, words.0, if arm { fp } else { sp }),
            column(ra, kinds.1, words.1, if arm { fp } else { sp }),
        ]
        .concat();
        let section = cfi::section(SECTION, CODE, 16, &instructions);
        let sp = STACK + place * 16;
        let from = Registers { ip: CODE, sp, fp: sp + distance * 16, lr: 0x4321 };
        let (found, rule) = found(machine, &section, first, from);
        prop_assert_eq!(found, expected(machine, &section, first, from), "{:?}", rule);
    }
}
