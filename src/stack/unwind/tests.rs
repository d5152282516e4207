//! Unwinding of generated stacks.

use proptest::prelude::*;

use crate::ring::testing::Stack;
use crate::ring::{Comm, Record};
use crate::stack::elf::Segment;
use crate::stack::tables::{Head, IDLE};
use crate::stack::testing::{
    EH_FRAME, Host, NO_FILE, USER, inode_of, mmap, program, program_with, search_table, take, take_by,
};
use crate::stack::{Analyzer, Frame, Limits, Loss, Truncation, Unwind, cfi};
use crate::sys::Registers;

/// The address range of the program, and of the code under test.
const AT: (u64, u64) = (0x7000_1000, 0x7000_3000);
/// The address range of memory without a file.
const JIT: (u64, u64) = (0x9000_0000, 0x9000_1000);
const STACK: u64 = 0x7fff_0000;

/// CFI of functions whose frames all take 16 bytes: the return address on top, and the 8 bytes below it.
const FRAME: &[u8] = &[0x0e, 16];

/// Creates a process of a program with this `.eh_frame`.
fn process(eh_frame: &[u8], limits: Limits) -> (Host, Analyzer) {
    process_of(&program(b"", eh_frame), limits)
}

fn process_of(program: &[u8], limits: Limits) -> (Host, Analyzer) {
    let host = Host::new();
    host.process(7, "r", "");
    host.file("r", "/bin/x", program);
    let mut analyzer = Analyzer::new(&host.roots, limits);
    analyzer.apply_record(&Record::Comm(Comm { pid: 7, tid: 7, name: b"x", exec: true }));
    analyzer.apply_record(&mmap(7, AT, inode_of(&host.path("r", "/bin/x")), b"/bin/x"));
    analyzer.apply_record(&mmap(7, JIT, NO_FILE, b"//anon"));
    (host, analyzer)
}

fn frames_of_16_bytes() -> Vec<u8> {
    cfi::section(EH_FRAME, 0x1000, 0x2000, FRAME)
}

/// Returns a sample at the start of the code, with callers at these addresses.
fn sample(callers: &[u64], full: bool, chain: &[u64]) -> Stack {
    let stack: Vec<u8> =
        callers.iter().flat_map(|&caller| [0xdead, caller]).flat_map(u64::to_le_bytes).collect();
    let registers = Registers { ip: AT.0, sp: STACK, fp: 0, lr: 0 };
    let callchain = [&[USER, AT.0], chain].concat();
    Stack { ip: AT.0, pid: 7, tid: 7, callchain, user: Some((registers, stack, full)) }
}

/// Returns the offsets of the frames in the code of the program; others are 0.
fn offsets(frames: &[Frame]) -> Vec<u64> {
    let offset = |frame: &Frame| match frame {
        Frame::File { offset, .. } => offset - 0x1000,
        _ => 0,
    };
    frames.iter().map(offset).collect()
}

fn at(offset: u64) -> u64 {
    AT.0 + offset
}

#[cfg(target_arch = "x86_64")]
mod by_hand {
    use super::*;

    #[test]
    fn a_stack_that_ends_where_nobody_called_is_whole() {
        let (_host, mut analyzer) = process(&frames_of_16_bytes(), Limits::default());
        let (taken, frames) = take(&mut analyzer, &sample(&[at(0x20), at(0x40), 0], false, &[]));
        assert_eq!((offsets(&frames), taken.cut), (vec![0, 0x1f, 0x3f], None));
        assert!(analyzer.unwind_bytes() > 0);
    }

    #[test]
    fn where_the_copy_ends_frame_pointers_go_on() {
        let (_host, mut analyzer) = process(&frames_of_16_bytes(), Limits::default());
        // The kernel has missed the first caller.
        let chain = [at(0x40), at(0x60), at(0x80)];
        let (taken, frames) = take(&mut analyzer, &sample(&[at(0x20), at(0x40)], true, &chain));
        assert_eq!((offsets(&frames), taken.cut), (vec![0, 0x1f, 0x3f, 0x5f, 0x7f], None));
    }

    #[test]
    fn where_the_copy_ends_and_nothing_goes_on_the_stack_is_cut() {
        for (unwind, chain) in [(Unwind::Auto, &[0x1234][..]), (Unwind::Dwarf, &[at(0x20), at(0x40)])] {
            let (_host, mut analyzer) = process(&frames_of_16_bytes(), Limits::default());
            let (taken, frames) = take_by(unwind, &mut analyzer, &sample(&[at(0x20)], true, chain));
            assert_eq!((taken.cut, frames.len()), (Some(Truncation::Copy), 3), "{unwind:?}");
            assert_eq!(frames[2], Frame::Truncation(Truncation::Copy));
            assert_eq!(analyzer.accounts().cut(Truncation::Copy), 1);
        }
    }

    #[test]
    fn a_return_address_that_leads_nowhere_is_none() {
        let (_host, mut analyzer) = process(&frames_of_16_bytes(), Limits::default());
        let (taken, frames) = take(&mut analyzer, &sample(&[at(0x20), 0x1234, at(0x40)], true, &[]));
        assert_eq!((offsets(&frames), taken.cut), (vec![0, 0x1f, 0], Some(Truncation::Unwound)));
        assert_eq!(frames[2], Frame::Truncation(Truncation::Unwound));
    }

    #[test]
    fn without_unwind_information_there_are_frame_pointers() {
        let (_host, mut analyzer) = process(&[], Limits::default());
        let (taken, frames) = take(&mut analyzer, &sample(&[at(0x20)], true, &[at(0x40), at(0x60)]));
        // The frame pointer is 0, which ends a chain of frame pointers.
        assert_eq!((offsets(&frames), taken.cut), (vec![0], None));
        let mut stack = sample(&[at(0x20)], true, &[at(0x40), at(0x60)]);
        stack.user =
            stack.user.map(|(registers, bytes, full)| (Registers { fp: 0x1234, ..registers }, bytes, full));
        let (taken, frames) = take(&mut analyzer, &stack);
        assert_eq!((offsets(&frames), taken.cut), (vec![0, 0x3f, 0x5f], None));
    }

    #[test]
    fn code_without_a_file_is_passed_by_frame_pointers() {
        let (_host, mut analyzer) = process(&frames_of_16_bytes(), Limits::default());
        // The compiled function on top was called by run-time generated code, which was called by the program.
        let words = [0xdead, JIT.0 + 0x10, STACK + 0x40, at(0x20), 0xdead, 0];
        let stack: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        let registers = Registers { ip: AT.0, sp: STACK, fp: STACK + 0x10, lr: 0 };
        let user = Some((registers, stack, true));
        let (taken, frames) =
            take(&mut analyzer, &Stack { ip: AT.0, pid: 7, tid: 7, callchain: vec![], user });
        assert!(matches!(frames[1], Frame::Memory { address, .. } if address == JIT.0 + 0xf), "{frames:?}");
        assert_eq!((offsets(&frames), taken.cut), (vec![0, 0, 0x1f], None));
    }

    #[test]
    fn a_stack_is_unwound_no_deeper_than_the_limit() {
        let limits = Limits { depth: 4, ..Limits::default() };
        let (_host, mut analyzer) = process(&frames_of_16_bytes(), limits);
        let (taken, frames) = take(&mut analyzer, &sample(&[at(0x20); 9], true, &[]));
        assert_eq!((taken.cut, frames.len()), (Some(Truncation::Deep), 5));
    }

    #[test]
    fn what_is_too_large_or_could_run_for_ever_is_not_followed() {
        let endless = cfi::section(EH_FRAME, 0x1000, 0x2000, &[0x0f, 3, 0x2f, 0xfd, 0xff]);
        let small = Limits { unwind_bytes: 8, ..Limits::default() };
        for (section, limits, loss, count) in [
            (endless, Limits::default(), Loss::UnwindBroken, 1),
            // Counted for each sample that was affected.
            (frames_of_16_bytes(), small, Loss::UnwindLarge, 2),
            (vec![1; 40], Limits::default(), Loss::UnwindBroken, 1),
        ] {
            let (_host, mut analyzer) = process(&section, limits);
            for _ in 0..2 {
                let (_, frames) = take(&mut analyzer, &sample(&[at(0x20)], true, &[]));
                assert_eq!(offsets(&frames)[0], 0);
            }
            assert_eq!(analyzer.accounts().lost(loss), count, "{loss:?}");
            assert!(analyzer.unwind_bytes() < 128 << 10, "{}", analyzer.unwind_bytes());
        }
    }

    /// Takes samples until one is unwound with the results of the indexing thread. Until then frame pointers are used, and there are none.
    fn take_until_unwound(analyzer: &mut Analyzer) {
        let sample = sample(&[at(0x20), 0], false, &[]);
        assert_eq!(take(analyzer, &sample).1.len(), 1);
        assert_eq!(analyzer.accounts().lost(Loss::UnwindLater), 1);
        while offsets(&take(analyzer, &sample).1) != [0, 0x1f] {
            std::thread::yield_now();
        }
        let later = analyzer.accounts().lost(Loss::UnwindLater);
        take(analyzer, &sample);
        assert_eq!(analyzer.accounts().lost(Loss::UnwindLater), later);
    }

    #[test]
    fn a_file_without_a_search_table_is_indexed_and_frame_pointers_are_followed_meanwhile() {
        let (_host, mut analyzer) =
            process_of(&program_with(b"", &frames_of_16_bytes(), &[]), Limits::default());
        take_until_unwound(&mut analyzer);
    }

    #[test]
    fn a_table_that_is_not_sorted_is_not_used() {
        let section = frames_of_16_bytes();
        // The search for 0x1000 begins in the middle, and finds a larger number before it.
        let table = search_table(&section, &[(0x2800, 24), (0x2000, 24), (0x1000, 24)]);
        let (_host, mut analyzer) = process_of(&program_with(b"", &section, &table), Limits::default());
        take_until_unwound(&mut analyzer);
    }

    #[test]
    fn an_entry_that_does_not_cover_the_place_is_not_followed() {
        // The entry covers the first 16 bytes of the code. The sampled function is at its start; its callers are after these bytes.
        let section = cfi::section(EH_FRAME, 0x1000, 16, FRAME);
        let (_host, mut analyzer) = process(&section, Limits::default());
        let (_, frames) = take(&mut analyzer, &sample(&[at(0x20), at(0x40)], true, &[]));
        assert_eq!(offsets(&frames)[..2], [0, 0x1f]);
        assert_eq!(frames[2], Frame::Truncation(Truncation::Unwound));
    }

    #[test]
    fn a_smaller_limit_forgets_and_what_is_forgotten_is_read_again() {
        let (_host, mut analyzer) = process(&frames_of_16_bytes(), Limits::default());
        let sample = sample(&[at(0x20), 0], false, &[]);
        assert_eq!(take(&mut analyzer, &sample).1.len(), 2);
        analyzer.set_memory(64 << 20, 0);
        assert_eq!(take(&mut analyzer, &sample).1.len(), 1);
        assert_eq!(analyzer.accounts().lost(Loss::UnwindLarge), 1);
        analyzer.set_memory(64 << 20, 1 << 20);
        (0..IDLE).for_each(|_| _ = take(&mut analyzer, &sample));
        assert_eq!(take(&mut analyzer, &sample).1.len(), 2);
    }

    #[test]
    fn files_make_room_for_each_other_only_when_they_are_idle() {
        let section = frames_of_16_bytes();
        // Half of the limit is for files: one file fits.
        let one_file = size_of::<Head>() + 2 * size_of::<Segment>();
        let limits = Limits { unwind_bytes: 3 * one_file as u64, ..Limits::default() };
        let (host, mut analyzer) = process(&section, limits);
        host.file("r", "/bin/y", &program(b"", &section));
        let other = (0x8000_1000, 0x8000_3000);
        analyzer.apply_record(&mmap(7, other, inode_of(&host.path("r", "/bin/y")), b"/bin/y"));
        let one = sample(&[at(0x20), 0], false, &[]);
        let mut two = one.clone();
        two.user =
            two.user.map(|(registers, bytes, full)| (Registers { ip: other.0, ..registers }, bytes, full));
        assert_eq!(take(&mut analyzer, &one).1.len(), 2);
        assert_eq!(
            take(&mut analyzer, &two).1.len(),
            1,
            "unwound by frame pointers, of which there are none"
        );
        assert_eq!(analyzer.accounts().lost(Loss::UnwindLarge), 1);
        for _ in 0..2 * IDLE {
            take(&mut analyzer, &two);
        }
        assert_eq!(take(&mut analyzer, &two).1.len(), 2);
        assert_eq!(take(&mut analyzer, &one).1.len(), 1);
    }

    #[test]
    fn a_failed_guess_is_not_remembered() {
        // CFA = DW_OP_breg7 16, which is evaluated each time, and the return address at CFA - 8.
        let (_host, mut analyzer) =
            process(&cfi::section(EH_FRAME, 0x1000, 0x2000, &[0x0f, 2, 0x77, 16]), Limits::default());
        let (taken, _) = take(&mut analyzer, &sample(&[], true, &[]));
        assert!(taken.cut.is_none(), "there was no stack to unwind");
        let mut short = sample(&[at(0x20)], true, &[]);
        short.user = short.user.map(|(registers, bytes, full)| (registers, bytes[..8].to_vec(), full));
        assert_eq!(take(&mut analyzer, &short).0.cut, Some(Truncation::Copy));
        let (taken, frames) = take(&mut analyzer, &sample(&[at(0x20), 0], true, &[]));
        assert_eq!((offsets(&frames), taken.cut), (vec![0, 0x1f], None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_search_table_and_a_file_that_is_truncated_meanwhile_lead_to_some_stack(
        starts in proptest::collection::vec((prop_oneof![any::<u32>(), 0xff0u32..0x3010], prop_oneof![any::<u32>(), 0u32..80]), 0..9),
        count in proptest::option::of(any::<u32>()),
        flips in proptest::collection::vec((0usize..12, any::<u8>()), 0..2),
        places in proptest::collection::vec(0u64..0x2000, 1..6),
        left in 0u64..0x5000,
    ) {
        let section = frames_of_16_bytes();
        let mut table = search_table(&section, &starts);
        if let Some(count) = count {
            table[8..12].copy_from_slice(&count.to_le_bytes());
        }
        flips.iter().for_each(|&(place, byte)| table[place] = byte);
        let (host, mut analyzer) = process_of(&program_with(b"", &section, &table), Limits::default());
        for other in [0, 0x800] {
            let callers: Vec<u64> = places.iter().map(|&place| at(place ^ other)).collect();
            let (_, frames) = take(&mut analyzer, &sample(&callers, true, &[]));
            prop_assert!(!frames.is_empty() && frames.len() <= callers.len() + 2);
            let file = std::fs::OpenOptions::new().write(true).open(host.path("r", "/bin/x")).unwrap();
            file.set_len(left).unwrap();
        }
    }

    #[test]
    fn any_section_registers_and_stack_end_in_bounded_depth(
        instructions in proptest::collection::vec(any::<u8>(), 0..24),
        words in proptest::collection::vec(prop_oneof![
            any::<u64>(), 0u64..0x40, AT.0..AT.1, JIT.0..JIT.1, STACK..STACK + 0x200, Just(0)
        ], 0..48),
        [ip, sp, fp, lr] in prop::array::uniform4(prop_oneof![
            any::<u64>(), 0u64..0x40, AT.0..AT.1, STACK..STACK + 0x200, Just(u64::MAX)
        ]),
        full: bool,
    ) {
        let limits = Limits { depth: 32, ..Limits::default() };
        let section = cfi::section(EH_FRAME, 0x1000, 0x2000, &instructions);
        let (_host, mut analyzer) = process(&section, limits);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let callchain = [&[USER], &words[..]].concat();
        for ip in [ip, AT.0] {
            let user = Some((Registers { ip, sp, fp, lr }, bytes.clone(), full));
            let (_, frames) = take(&mut analyzer, &Stack { ip, pid: 7, tid: 7, callchain: callchain.clone(), user });
            prop_assert!(frames.len() <= 33 || words.is_empty() || bytes.is_empty());
        }
    }
}
