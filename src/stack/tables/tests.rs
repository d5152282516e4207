//! Programs and libraries of this machine, compared with framehop, which reads whole sections.

use std::fs::File;
use std::path::PathBuf;

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};

use super::*;
use crate::stack::index::{Indexed, index};
use crate::sys::Registers;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as Cache, PtrAuthMask, UnwindRegsAarch64 as Regs, UnwinderAarch64 as Oracle,
};
#[cfg(not(target_arch = "aarch64"))]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64 as Regs, UnwinderX86_64 as Oracle};

#[cfg(target_arch = "aarch64")]
fn native(registers: Registers) -> Regs {
    let mask = PtrAuthMask(u64::MAX >> 16);
    Regs::new_with_ptr_auth_mask(mask, registers.lr, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn values(regs: &Regs) -> (u64, u64) {
    (regs.sp(), regs.fp())
}

#[cfg(not(target_arch = "aarch64"))]
fn native(registers: Registers) -> Regs {
    Regs::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(not(target_arch = "aarch64"))]
fn values(regs: &Regs) -> (u64, u64) {
    (regs.sp(), regs.bp())
}

/// Returns some programs and libraries: this one, its shared libraries, and installed interpreters.
fn files() -> Vec<PathBuf> {
    let maps = crate::host::read_text("/proc/self/maps".as_ref()).unwrap();
    let linked = maps.lines().filter_map(|line| Some(line[line.find('/')?..].to_owned()));
    let others = ["/usr/bin/python3", "/bin/bash", "/usr/bin/perl", "/usr/bin/gdb", "/usr/bin/node"];
    let mut files: Vec<PathBuf> = linked.chain(others.map(str::to_owned)).map(PathBuf::from).collect();
    files.sort();
    files.dedup();
    files.retain(|file| file.is_file());
    files
}

/// Returns a word of a stack that has a value at every address.
fn word(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17 | 8
}

/// Returns the result of a search in a file, as [`Tables::look_up`] and [`Tables::step`] use it.
fn step(
    head: &Head,
    file: &dyn ReadAt,
    cfi: &mut Cfi,
    address: u64,
    first: bool,
    registers: &mut Registers,
) -> Answer {
    let mut step = Step { machine: NATIVE, first, registers, read: &mut |address| Some(word(address)) };
    let rule = match head.find(file, address).unwrap() {
        Found::Entry(section, at) => {
            let apply = |row: Row<'_>| match row.rule(NATIVE) {
                Rule::Computed => row.compute(&mut step),
                rule => rule.apply(&mut step),
            };
            match cfi.row((file, &section, at), address, apply).unwrap() {
                Some(answer) => return answer,
                None => Rule::Uncovered,
            }
        }
        Found::Nothing => Rule::FRAME_POINTER,
        Found::Odd => panic!("the table is not sorted"),
    };
    rule.apply(&mut step)
}

#[test]
fn real_files_are_unwound_as_by_an_unwinder_that_reads_whole_sections() {
    let mut compared = 0;
    for path in files() {
        let file = File::open(&path).unwrap();
        let Some(elf) = Elf::read(&file).filter(Elf::is_native) else { continue };
        let (Some(table), Some(frames)) = (elf.search_table(), elf.frames()) else { continue };
        let bytes = elf.bytes(frames.offset, frames.size, 1 << 30).unwrap();
        let sections = ExplicitModuleSectionInfo {
            eh_frame: Some(bytes),
            eh_frame_svma: Some(frames.address..frames.address + frames.size),
            ..Default::default()
        };
        let mut oracle: Oracle<Vec<u8>> = Oracle::new();
        oracle.add_module(framehop::Module::new(String::new(), 0..1 << 32, 0, sections));
        let Indexed::Done(loads, index) = index(&file, 1 << 30) else { panic!("{path:?}") };
        let (code, mut cfi) = (loads.clone(), Cfi::new());
        let heads = [Functions::Table(table), Functions::Index(index)].map(|functions| Head {
            number: 1,
            loads: code.clone(),
            functions,
            broken: false,
        });
        let code: Vec<&Segment> = loads.iter().filter(|load| load.executable).collect();
        for turn in 0..1500u64 {
            let random = word(turn) >> 8;
            let load = code[turn as usize % code.len()];
            let address = load.address + random % load.size;
            let first = turn % 3 == 0;
            let sp = 0x7fff_0000_0000 + turn * 64;
            let fp = sp + (random % 64) * 16;
            let registers = Registers { ip: address, sp, fp, lr: 0x1234 };
            let (mut expected, mut cache) = (native(registers), Cache::new());
            let at = if first {
                FrameAddress::from_instruction_pointer(address)
            } else {
                FrameAddress::from_return_address(address + 1).unwrap()
            };
            let answer = oracle.unwind_frame(at, &mut expected, &mut cache, &mut |address| Ok(word(address)));
            for head in &heads {
                let mut own = registers;
                let found = step(head, &file, &mut cfi, address, first, &mut own);
                assert_eq!(found.ok(), answer.ok(), "{path:?} {address:#x} {first}");
                if matches!(answer, Ok(Some(_))) {
                    assert_eq!((own.sp, own.fp), values(&expected), "{path:?} {address:#x} {first}");
                }
                compared += 1;
            }
        }
    }
    assert!(compared >= 6000, "{compared}");
}
