//! Invariants for a hostile stack: the unwind table of the file, the registers, the stack memory, and the call chain of the kernel. Called
//! by a fuzz target and by a test that keeps the target working.

use std::fs;
use std::os::unix::fs::MetadataExt;

use perf_exporter::ring::{Comm, MappedFile, Mmap, Record, Sample, UserStack};
use perf_exporter::stack::{Analyzer, Frame, Limits, Loss, Unwind};
use perf_exporter::sys::Registers;

use crate::machine::{Machine, PID};

/// Maximum number of unwound frames.
const DEPTH: usize = 32;
/// Start and end of the program's code, as file offset and as virtual address. The unwind table follows it.
const CODE: (u64, u64) = (0x1000, 0x3000);
/// Load bias.
const LOADED: u64 = 0x7000_0000;
/// Start address of an anonymous mapping.
const ANONYMOUS: u64 = 0x9000_0000;
/// Start address of the stack.
const STACK: u64 = 0x7fff_0000;
/// `PERF_CONTEXT_USER`.
const USER: u64 = -512i64 as u64;

/// Unread input. Values are taken from its front.
struct Input<'b>(&'b [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    /// Returns any number, in most cases an address of the program: the highest byte selects the base.
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        let word = u64::from_le_bytes(*word);
        Some(match word >> 56 {
            1 => LOADED + CODE.0 + (word & 0x1fff),
            2 => STACK + (word & 0x3ff),
            3 => ANONYMOUS + (word & 0xfff),
            _ => word,
        })
    }
}

/// Returns an entry of `.eh_frame`. The length excludes the length field itself; the padding is DW_CFA_nop.
fn entry(parts: &[&[u8]]) -> Vec<u8> {
    let mut body = parts.concat();
    body.resize((body.len() + 4).next_multiple_of(8) - 4, 0);
    let length = u32::try_from(body.len()).expect("an entry is short");
    [&length.to_le_bytes()[..], &body].concat()
}

/// Returns an `.eh_frame` section for an address, with these instructions for the whole code.
fn section(address: u64, instructions: &[u8]) -> Vec<u8> {
    // Version 1, "zR", code alignment 1, data alignment -8, return address in register 16, pointers pcrel | sdata4; then DW_CFA_def_cfa r7,
    // 8 and DW_CFA_offset r16, -8.
    let common = entry(&[&[0; 4], b"\x01zR\0\x01\x78\x10\x01\x1b", &[0x0c, 7, 8, 0x80 | 16, 1]]);
    let back = u32::try_from(common.len() + 4).expect("an entry is short");
    let distance = CODE.0.wrapping_sub(address + u64::from(back) + 4) as u32;
    let size = (CODE.1 - CODE.0) as u32;
    let numbers = [back, distance, size].map(u32::to_le_bytes).concat();
    [common, entry(&[&numbers, &[0], instructions]), vec![0; 4]].concat()
}

/// Size of `.eh_frame_hdr` in bytes: its header and one entry.
const INDEX: usize = 20;

/// Returns a program without section headers: its code at [`CODE`], then `.eh_frame_hdr` with the content `index`, then the bytes `behind`.
fn program(index: &[u8; INDEX], behind: &[u8]) -> Vec<u8> {
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let size = (INDEX + behind.len()) as u64;
    let program = |kind: u32, flags: u32, at: u64, size: u64| {
        let numbers = [at, at, at, size, size, 8].map(u64::to_le_bytes).concat();
        [&[kind, flags].map(u32::to_le_bytes).concat()[..], &numbers].concat()
    };
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
    file.extend([&machine.to_le_bytes()[..], &1u32.to_le_bytes()].concat());
    file.extend([CODE.0, 64, 0].map(u64::to_le_bytes).concat());
    file.extend([&[0; 4][..], &[64, 56, 3, 0, 0, 0].map(u16::to_le_bytes).concat()].concat());
    // PT_LOAD of the code, readable and executable; PT_LOAD of the unwind data; PT_GNU_EH_FRAME.
    file.extend(program(1, 5, CODE.0, CODE.1 - CODE.0));
    file.extend(program(1, 4, CODE.1, size));
    file.extend(program(0x6474_e550, 4, CODE.1, INDEX as u64));
    file.resize(CODE.1 as usize, 0);
    [&file[..], index, behind].concat()
}

/// Returns a program with an unwind table. `bits` select whether the table covers the code or consists of arbitrary bytes.
fn unwinding(bits: u8, bytes: &[u8]) -> Vec<u8> {
    // Version 1 with the encodings that all linkers use. `.eh_frame` follows; its second entry covers the code.
    let code = (CODE.0 as u32).wrapping_sub(CODE.1 as u32);
    let numbers = [INDEX as u32 - 4, 1, code, INDEX as u32 + 24].map(u32::to_le_bytes).concat();
    let mut usual = [1, 0x1b, 0x03, 0x3b].repeat(INDEX / 4);
    usual[4..].copy_from_slice(&numbers);
    let usual = usual.first_chunk().expect("the header has this length");
    match (bits & 1, bytes.split_first_chunk::<INDEX>()) {
        (0, _) => program(usual, &section(CODE.1 + INDEX as u64, bytes)),
        (_, Some((index, behind))) if bits & 2 != 0 => program(index, behind),
        _ => program(usual, bytes),
    }
}

/// Returns an analyzer that knows one process of the program.
fn process(machine: &Machine, file: &[u8]) -> Analyzer {
    machine.write("proc/7/root/bin/program", file);
    machine.write("proc/7/maps", "");
    let mut analyzer = Analyzer::new(&machine.roots(), Limits { depth: DEPTH, ..Limits::default() });
    let metadata = fs::metadata(machine.path("proc/7/root/bin/program")).expect("the program was written");
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let program = MappedFile { major, minor, inode: metadata.ino() };
    let nothing = MappedFile { major: 0, minor: 0, inode: 0 };
    analyzer.apply_record(&Record::Comm(Comm { pid: PID, tid: PID, name: b"program", exec: true }));
    let mappings = [
        (LOADED + CODE.0, CODE.1 - CODE.0, program, &b"/bin/program"[..]),
        (ANONYMOUS, 0x1000, nothing, b"//anon"),
    ];
    for (start, length, file, path) in mappings {
        let mmap = Mmap { pid: PID, tid: PID, start, length, offset: CODE.0, file, protection: 5, path };
        analyzer.apply_record(&Record::Mmap(mmap));
    }
    analyzer
}

/// Checks a sample. The bytes select the unwinding, the unwind table and the registers; the rest is the stack and the call chain. Returns
/// the number of frames that lie in the file.
pub(crate) fn holds(bytes: &[u8]) -> usize {
    let mut input = Input(bytes);
    let (bits, length) = (input.byte(), usize::from(input.byte()));
    let (section, rest) = input.0.split_at(length.min(input.0.len()));
    input.0 = rest;
    let machine = Machine::new();
    let mut analyzer = process(&machine, &unwinding(bits, section));
    let [ip, sp, fp, lr] = std::array::from_fn(|_| input.word().unwrap_or(LOADED + CODE.0));
    let words: Vec<u64> = std::iter::from_fn(|| input.word()).collect();
    let copy: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let chain: Vec<[u8; 8]> = [USER].iter().chain(&words).map(|word| word.to_ne_bytes()).collect();
    let registers = Registers { ip, sp, fp, lr };
    let user = Some(UserStack { registers, bytes: &copy, full: bits & 4 != 0 });
    let mut places = 0;
    for unwind in [Unwind::Auto, Unwind::Dwarf, Unwind::FramePointers] {
        let sample = Sample { ip, pid: PID, tid: PID, callchain: &chain, user, ..Sample::default() };
        let taken = analyzer.stack(&sample, unwind);
        // The same sample gives the same stack, unless unwinding waits for the file to be read in the background.
        let again = analyzer.stack(&sample, unwind);
        assert!(again == taken || analyzer.accounts().lost(Loss::UnwindLater) > 0, "{taken:?} {again:?}");
        let frames: Vec<Frame> = analyzer.stacks().frames(taken.stack).collect();
        // An empty stack is accounted as lost. Each stack contains the kernel part of the chain, and one frame stands for the missing rest.
        assert!(!frames.is_empty() || analyzer.accounts().lost(Loss::NoStack) > 0);
        assert!(frames.len() <= DEPTH + chain.len() + 2, "{} frames", frames.len());
        if unwind == Unwind::Dwarf {
            let unwound = frames
                .iter()
                .filter(|frame| !matches!(frame, Frame::Kernel(_) | Frame::Truncation(_)))
                .count();
            assert!(unwound <= DEPTH, "{unwound} frames were unwound, more than the limit");
        }
        places += frames.iter().filter(|frame| matches!(frame, Frame::File { .. })).count();
    }
    places
}
