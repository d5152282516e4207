//! Stacks from records and samples.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::testing::{Host, KERNEL, NO_FILE, USER, frame_at, inode_of, mmap, program, take, take_by};
use super::{Analyzer, Frame, Limits, Loss, ModuleId, ProcessId, StackLimits, Truncation, Unwind};
use crate::ring::testing::Stack;
use crate::ring::{Comm, MappedFile, Record, Task};

const AT: (u64, u64) = (0x7000_0000, 0x7000_2000);

fn fork(pid: u32, parent_pid: u32) -> Record<'static> {
    Record::Fork(Task { pid, parent_pid, tid: pid, parent_tid: parent_pid, time: 0 })
}

fn exit(pid: u32, tid: u32) -> Record<'static> {
    Record::Exit(Task { pid, parent_pid: 1, tid, parent_tid: 1, time: 0 })
}

fn exec(pid: u32) -> Record<'static> {
    Record::Comm(Comm { pid, tid: pid, name: b"x", exec: true })
}

fn module_of(frame: Frame) -> ModuleId {
    match frame {
        Frame::File { module, .. } => module,
        other => panic!("{other:?}"),
    }
}

/// Returns the reason why a file is not open.
fn why(analyzer: &Analyzer, frame: Frame) -> String {
    let file = &analyzer.code().modules[module_of(frame).0 as usize].file;
    file.as_ref().expect_err("the file is open").to_string()
}

#[test]
fn an_analyzer_can_move_to_another_thread() {
    fn moves<T: Send>(_: &T) {}
    moves(&Host::new().analyzer());
}

#[test]
fn a_mapped_file_is_opened_in_the_root_of_its_process_and_known_by_its_build_id() {
    let host = Host::new();
    host.process(7, "container", "");
    host.file("container", "/bin/x", &program(b"12345678", &[]));
    let mut analyzer = host.analyzer();
    analyzer.apply_record(&exec(7));
    let file = inode_of(&host.path("container", "/bin/x"));
    analyzer.apply_record(&mmap(7, AT, file, b"/bin/x"));
    let frame = frame_at(&mut analyzer, 7, 0x7000_0010);
    assert_eq!(frame, Frame::File { module: ModuleId(0), offset: 0x1010 });
    assert_eq!(frame_at(&mut analyzer, 7, 0x7000_2000), Frame::Nowhere(0x7000_2000));
    let code = analyzer.code();
    let module = &code.modules[0];
    assert_eq!(
        (&*module.path, module.build_id.as_ref().unwrap().to_string()),
        ("/bin/x", "3132333435363738".into())
    );
    assert!(module.file.is_ok(), "{:?}", module.file);
    let process = &code.processes[module.process.0 as usize];
    assert_eq!((process.pid, process.own_pid), (7, 1007));
}

#[test]
fn what_ran_before_us_is_read_when_a_sample_needs_it() {
    let host = Host::new();
    let device = host.file("r", "/bin/x", &program(b"", &[]));
    let maps = format!(
        "70000000-70002000 r-xp 00001000 {device} /bin/x\n70002000-70003000 rw-p 00003000 {device} /bin/x\n\
         80000000-80001000 r-xp 00000000 00:00 0 \n"
    );
    host.process(7, "r", &maps);
    let mut analyzer = host.analyzer();
    assert_eq!(frame_at(&mut analyzer, 7, 0x7000_0010), Frame::File { module: ModuleId(0), offset: 0x1010 });
    assert_eq!(frame_at(&mut analyzer, 7, 0x7000_2010), Frame::Nowhere(0x7000_2010), "not executable");
    let Frame::Memory { process, address: 0x8000_0010 } = frame_at(&mut analyzer, 7, 0x8000_0010) else {
        panic!()
    };
    assert_eq!(analyzer.code().processes[process.0 as usize].pid, 7);
    // A record makes no difference: it is the same file.
    analyzer.apply_record(&mmap(
        7,
        (0x9000_0000, 0x9000_1000),
        inode_of(&host.path("r", "/bin/x")),
        b"/bin/x",
    ));
    assert_eq!(module_of(frame_at(&mut analyzer, 7, 0x9000_0000)), ModuleId(0));
}

#[test]
fn a_process_whose_first_thread_ended_has_what_its_others_have() {
    let host = Host::new();
    host.process(7, "r", "");
    let task = host.roots.proc.join("7/task/9");
    fs::create_dir_all(&task).unwrap();
    fs::write(task.join("maps"), "80000000-80001000 r-xp 00000000 00:00 0 \n").unwrap();
    let mut analyzer = host.analyzer();
    let stack = Stack { pid: 7, tid: 9, callchain: vec![USER, 0x8000_0000], ..Stack::default() };
    assert!(matches!(take(&mut analyzer, &stack).1[..], [Frame::Memory { .. }]));
}

#[test]
fn a_child_has_what_its_parent_had_and_changes_nothing_for_it() {
    let host = Host::new();
    let mut analyzer = host.analyzer();
    analyzer.apply_record(&exec(7));
    analyzer.apply_record(&mmap(7, AT, NO_FILE, b"//anon"));
    analyzer.apply_record(&fork(8, 7));
    analyzer.apply_record(&mmap(8, (0x9000_0000, 0x9000_1000), NO_FILE, b"//anon"));
    let at = |analyzer: &mut Analyzer, pid, address| {
        matches!(frame_at(analyzer, pid, address), Frame::Memory { .. })
    };
    assert!(at(&mut analyzer, 8, 0x7000_0000) && at(&mut analyzer, 8, 0x9000_0000));
    assert!(at(&mut analyzer, 7, 0x7000_0000) && !at(&mut analyzer, 7, 0x9000_0000));
    let own = |analyzer: &mut Analyzer, pid| frame_at(analyzer, pid, 0x7000_0000);
    assert_ne!(own(&mut analyzer, 7), own(&mut analyzer, 8), "memory belongs to one process");
}

#[test]
fn a_child_that_ended_soon_has_what_a_parent_that_ran_before_has() {
    let host = Host::new();
    host.process(7, "r", "80000000-80001000 r-xp 00000000 00:00 0 \n");
    let mut analyzer = host.analyzer();
    analyzer.apply_record(&fork(8, 7));
    assert!(matches!(frame_at(&mut analyzer, 8, 0x8000_0000), Frame::Memory { .. }));
    // The mappings of a running child are read, because its parent may have executed another program.
    host.process(9, "r", "90000000-90001000 r-xp 00000000 00:00 0 \n");
    host.process(10, "r", "70000000-70001000 r-xp 00000000 00:00 0 \n");
    analyzer.apply_record(&fork(9, 10));
    assert!(matches!(frame_at(&mut analyzer, 9, 0x9000_0000), Frame::Memory { .. }));
}

#[test]
fn another_program_has_nothing_of_the_one_before() {
    let host = Host::new();
    let mut analyzer = host.analyzer();
    analyzer.apply_record(&exec(7));
    analyzer.apply_record(&mmap(7, AT, NO_FILE, b"//anon"));
    let Frame::Memory { process, .. } = frame_at(&mut analyzer, 7, AT.0) else { panic!() };
    analyzer.apply_record(&exec(7));
    assert_eq!(frame_at(&mut analyzer, 7, AT.0), Frame::Nowhere(AT.0));
    analyzer.apply_record(&mmap(7, AT, NO_FILE, b"//anon"));
    let Frame::Memory { process: other, .. } = frame_at(&mut analyzer, 7, AT.0) else { panic!() };
    assert_ne!(process, other);
}

#[test]
fn a_process_that_ended_is_known_until_its_records_are_through() {
    let host = Host::new();
    let mut analyzer = host.analyzer();
    analyzer.apply_record(&exec(7));
    analyzer.apply_record(&mmap(7, AT, NO_FILE, b"//anon"));
    analyzer.apply_record(&exit(7, 8));
    analyzer.retain([], []);
    assert_eq!(analyzer.processes(), 1, "one thread of several");
    analyzer.apply_record(&exit(7, 7));
    assert!(matches!(frame_at(&mut analyzer, 7, AT.0), Frame::Memory { .. }));
    analyzer.retain([], []);
    assert_eq!((analyzer.processes(), frame_at(&mut analyzer, 7, AT.0)), (0, Frame::Nowhere(AT.0)));
}

#[test]
fn after_a_loss_everything_is_read_again_and_who_is_the_same_keeps_its_number() {
    let host = Host::new();
    let memory = |at: u64| format!("{at:x}-{:x} r-xp 00000000 00:00 0 \n", at + 0x1000);
    host.process(7, "r", &memory(0x7000_0000));
    let mut analyzer = host.analyzer();
    let Frame::Memory { process: first, .. } = frame_at(&mut analyzer, 7, 0x7000_0000) else { panic!() };
    host.process(7, "r", &[memory(0x7000_0000), memory(0x9000_0000)].concat());
    assert!(matches!(frame_at(&mut analyzer, 7, 0x9000_0000), Frame::Nowhere(_)));
    analyzer.apply_record(&Record::Lost { id: 1, count: 9 });
    let Frame::Memory { process: same, .. } = frame_at(&mut analyzer, 7, 0x9000_0000) else { panic!() };
    assert_eq!(first, same);
    // No mapping is the same: another program.
    host.process(7, "r", &memory(0x5000_0000));
    analyzer.records_lost();
    let wait = |analyzer: &mut Analyzer| {
        assert!(matches!(frame_at(analyzer, 7, 0x6000_0000), Frame::Nowhere(_)));
        (0..super::space::MIN_RESYNC_INTERVAL).for_each(|_| _ = frame_at(analyzer, 0, 0x1000));
    };
    assert!(matches!(frame_at(&mut analyzer, 7, 0x9000_0000), Frame::Memory { .. }), "losses come in bursts");
    wait(&mut analyzer);
    let Frame::Memory { process: other, .. } = frame_at(&mut analyzer, 7, 0x5000_0000) else { panic!() };
    assert_ne!(first, other);
    // The process has exited: the known mappings are all there is.
    host.end(7);
    analyzer.records_lost();
    wait(&mut analyzer);
    assert!(matches!(frame_at(&mut analyzer, 7, 0x5000_0000), Frame::Memory { .. }));
    assert_eq!(analyzer.accounts().lost(Loss::MapsGone), 1);
}

#[test]
fn too_many_mappings_and_processes_are_counted() {
    let host = Host::new();
    let lines: String = (1..=5).map(|n| format!("{n}000-{n}800 r-xp 0 00:00 0 \n")).collect();
    host.process(7, "r", &lines);
    let limits = Limits { mappings: 3, processes: 2, ..Limits::default() };
    let mut analyzer = Analyzer::new(&host.roots, limits);
    assert!(matches!(frame_at(&mut analyzer, 7, 0x3000), Frame::Memory { .. }));
    assert!(matches!(frame_at(&mut analyzer, 7, 0x4000), Frame::Nowhere(_)));
    assert_eq!(analyzer.accounts().lost(Loss::MapsCut), 1);
    analyzer.apply_record(&mmap(7, AT, NO_FILE, b"//anon"));
    assert_eq!(analyzer.accounts().lost(Loss::MapsCut), 2);
    (8..=10).for_each(|pid| analyzer.apply_record(&exec(pid)));
    assert!(analyzer.processes() <= 2 && analyzer.accounts().lost(Loss::ProcessesFull) > 0);
    // A dropped process is read again when needed.
    assert!(matches!(frame_at(&mut analyzer, 7, 0x3000), Frame::Memory { .. }));
    // The list itself is too long.
    let limits = Limits { maps_bytes: 30, ..Limits::default() };
    let mut analyzer = Analyzer::new(&host.roots, limits);
    frame_at(&mut analyzer, 7, 0x3000);
    assert_eq!(analyzer.accounts().lost(Loss::MapsCut), 1);
}

#[test]
fn another_file_at_the_path_is_not_taken_for_the_one_that_was_mapped() {
    let host = Host::new();
    host.process(7, "r", "");
    host.file("r", "/bin/old", b"old");
    host.file("r", "/bin/x", b"new");
    let mut analyzer = host.analyzer();
    analyzer.apply_record(&exec(7));
    analyzer.apply_record(&mmap(7, AT, inode_of(&host.path("r", "/bin/old")), b"/bin/x"));
    let frame = frame_at(&mut analyzer, 7, AT.0);
    let text = why(&analyzer, frame);
    assert!(text.contains("/bin/x is not the file that was mapped"), "{text}");
    assert_eq!(analyzer.accounts().lost(Loss::FileReplaced), 1);
}

#[test]
fn a_file_that_was_deleted_is_reached_through_its_mapping_if_that_is_allowed() {
    let host = Host::new();
    host.process(7, "r", "");
    host.file("r", "/kept", b"x");
    let mut analyzer = host.analyzer();
    analyzer.apply_record(&exec(7));
    let file = inode_of(&host.path("r", "/kept"));
    analyzer.apply_record(&mmap(7, AT, file, b"/bin/x (deleted)"));
    let frame = frame_at(&mut analyzer, 7, AT.0);
    let text = why(&analyzer, frame);
    assert!(text.contains("/bin does not exist") && text.contains("map_files does not lead"), "{text}");
    assert_eq!(analyzer.accounts().lost(Loss::FileGone), 1);
    // Another process maps the file, and there it can be opened.
    host.process(8, "r", "");
    let links = host.roots.proc.join("8/map_files");
    fs::create_dir_all(&links).unwrap();
    symlink(host.path("r", "/kept"), links.join("70000000-70002000")).unwrap();
    analyzer.apply_record(&exec(8));
    analyzer.apply_record(&mmap(8, AT, file, b"/bin/x (deleted)"));
    assert_eq!(frame_at(&mut analyzer, 8, AT.0), frame);
    let module = &analyzer.code().modules[module_of(frame).0 as usize];
    assert!(module.file.is_ok(), "{:?}", module.file);
    assert_eq!(&*module.path, "/bin/x");
}

#[test]
fn a_process_that_ended_before_its_file_was_opened_is_named() {
    let host = Host::new();
    let mut analyzer = host.analyzer();
    analyzer.apply_record(&exec(7));
    let file = MappedFile { major: 8, minor: 1, inode: 4711 };
    analyzer.apply_record(&mmap(7, AT, file, b"/bin/x\n\x1b[2J\xff"));
    let frame = frame_at(&mut analyzer, 7, AT.0);
    assert_eq!(
        why(&analyzer, frame),
        "process 7, which had mapped /bin/x\\n\\u{1b}[2J\u{fffd}, exited before the file was opened"
    );
}

#[test]
fn containers_of_one_image_share_its_files() {
    let host = Host::new();
    let image = program(b"12345678", &[]);
    let mut analyzer = host.analyzer();
    for (pid, root) in [(7, "one"), (8, "two")] {
        host.file(root, "/bin/x", &image);
        host.file(root, "/bin/y", &image);
        host.process(pid, root, "");
        analyzer.apply_record(&exec(pid));
        analyzer.apply_record(&mmap(pid, AT, inode_of(&host.path(root, "/bin/x")), b"/bin/x"));
    }
    assert_eq!(frame_at(&mut analyzer, 7, AT.0), frame_at(&mut analyzer, 8, AT.0));
    assert_eq!(analyzer.code().modules.len(), 1);
    // With another path it is another file: a program may depend on its name.
    analyzer.apply_record(&mmap(8, AT, inode_of(&host.path("two", "/bin/y")), b"/bin/y"));
    assert_eq!(module_of(frame_at(&mut analyzer, 8, AT.0)), ModuleId(1));
}

#[test]
fn what_is_used_is_held_open_and_no_more_than_the_limit() {
    let host = Host::new();
    host.process(7, "r", "");
    let limits = Limits { files: 2, modules: 3, ..Limits::default() };
    let mut analyzer = Analyzer::new(&host.roots, limits);
    analyzer.apply_record(&exec(7));
    for n in 0..4u64 {
        let path = format!("/lib/{n}");
        host.file("r", &path, b"x");
        let at = (n << 32, (n << 32) + 0x1000);
        analyzer.apply_record(&mmap(7, at, inode_of(&host.path("r", &path)), path.as_bytes()));
    }
    let open = |analyzer: &Analyzer| {
        let files = analyzer.code().modules.iter().map(|module| module.file.is_ok());
        files.collect::<Vec<_>>()
    };
    assert_eq!(open(&analyzer), [false, true, true]);
    // The table is full, so that the fourth file is not added.
    assert_eq!(frame_at(&mut analyzer, 7, 3 << 32), Frame::Nowhere(3 << 32));
    assert_eq!(analyzer.accounts().lost(Loss::ModulesFull), 1);
    let first = frame_at(&mut analyzer, 7, 0);
    assert_eq!(open(&analyzer), [true, false, true]);
    assert_eq!(module_of(first), ModuleId(0));
    let closed = analyzer.code().modules[1].file.as_ref().unwrap_err();
    assert_eq!(&**closed, "/lib/1 is not open, because 2 others were used more recently");
}

#[test]
fn what_nobody_wants_is_forgotten_and_its_numbers_are_given_again() {
    let host = Host::new();
    let mut analyzer = host.analyzer();
    let start = |analyzer: &mut Analyzer, pid: u32| {
        let path = format!("/bin/{pid}");
        host.process(pid, "r", "");
        host.file("r", &path, b"x");
        analyzer.apply_record(&exec(pid));
        analyzer.apply_record(&mmap(pid, AT, inode_of(&host.path("r", &path)), path.as_bytes()));
        analyzer.apply_record(&mmap(pid, (0x1000, 0x2000), NO_FILE, b""));
        let callchain = vec![USER, AT.0, 0x1001];
        take(analyzer, &Stack { pid, tid: pid, callchain, ..Stack::default() })
    };
    let ((one, frames), (two, _)) = (start(&mut analyzer, 7), start(&mut analyzer, 8));
    (7..=8).for_each(|pid| analyzer.apply_record(&exit(pid, pid)));
    let kept = analyzer.retain([one.stack], []);
    assert_eq!((kept.modules, kept.processes), (vec![ModuleId(1)], vec![two.process]));
    assert_eq!(kept.stacks.get(two.stack), None);
    let stack = kept.stacks.get(one.stack).unwrap();
    assert!(analyzer.stacks().frames(stack).eq(frames));
    assert!(analyzer.code().modules[0].file.is_ok() && analyzer.code().modules[1].file.is_err());
    // A third file, in the slot of the second.
    let (three, frames) = start(&mut analyzer, 9);
    assert_eq!((three.process, module_of(frames[0])), (two.process, ModuleId(1)));
    assert_eq!(&*analyzer.code().modules[1].path, "/bin/9");
    // A process in `processes` stays, even without a stack.
    analyzer.apply_record(&exit(9, 9));
    let kept = analyzer.retain([], [three.process]);
    assert_eq!(kept.processes, [one.process]);
}

#[test]
fn kernel_frames_stand_before_those_of_the_program() {
    let host = Host::new();
    let mut analyzer = host.analyzer();
    analyzer.apply_record(&exec(7));
    let inside = 0xffff_ffff_8100_0010;
    let callchain = vec![KERNEL, inside, inside + 5, USER, 0x1000, 0x2000];
    let (taken, frames) = take(&mut analyzer, &Stack { ip: inside, pid: 7, tid: 7, callchain, user: None });
    let expected =
        [Frame::Kernel(inside), Frame::Kernel(inside + 4), Frame::Nowhere(0x1000), Frame::Nowhere(0x1fff)];
    assert_eq!(frames, expected);
    assert!(taken.kernel && taken.cut.is_none());
    // The idle task, and a process of another namespace.
    for pid in [0, u32::MAX] {
        let callchain = vec![KERNEL, inside];
        let (taken, frames) = take(&mut analyzer, &Stack { pid, tid: 0, callchain, ..Stack::default() });
        assert_eq!((taken.process, &frames[..]), (ProcessId(0), &expected[..1]));
    }
    let (taken, frames) = take(&mut analyzer, &Stack { pid: 7, tid: 7, ..Stack::default() });
    assert_eq!((taken.kernel, frames.len(), analyzer.accounts().lost(Loss::NoStack)), (false, 0, 1));
}

#[test]
fn a_chain_that_fills_the_kernels_room_is_marked_at_its_end() {
    let host = Host::new();
    fs::write(host.roots.proc.join("sys/kernel/perf_event_max_stack"), "3").unwrap();
    let mut analyzer = host.analyzer();
    let callchain = vec![USER, 1, 2, 3];
    let (taken, frames) = take(&mut analyzer, &Stack { pid: 7, tid: 7, callchain, ..Stack::default() });
    assert_eq!(
        (taken.cut, frames.last()),
        (Some(Truncation::Deep), Some(&Frame::Truncation(Truncation::Deep)))
    );
    assert_eq!(analyzer.accounts().cut(Truncation::Deep), 1);
}

#[test]
fn without_room_a_stack_says_so() {
    let host = Host::new();
    let stacks = StackLimits { frames: 2, ..StackLimits::default() };
    let mut analyzer = Analyzer::new(&host.roots, Limits { stacks, ..Limits::default() });
    for _ in 0..2 {
        let callchain = vec![USER, 1, 2, 3];
        let (taken, frames) = take(&mut analyzer, &Stack { pid: 7, tid: 7, callchain, ..Stack::default() });
        assert_eq!(
            (taken.cut, &frames[..]),
            (Some(Truncation::Full), &[Frame::Truncation(Truncation::Full)][..])
        );
    }
}

/// Generated test input, in small numbers.
#[derive(Debug, Clone)]
enum TestInput {
    Mmap(u32, u64, u64, Vec<u8>),
    Fork(u32, u32),
    Exec(u32),
    Lost,
    Sample(u32, Vec<u64>, Option<(u64, u64, Vec<u8>)>),
}

fn told() -> impl Strategy<Value = TestInput> {
    let pid = || 1u32..5;
    let path = prop_oneof![Just(b"//anon".to_vec()), Just(b"[vdso]".to_vec()), any::<Vec<u8>>()];
    let address = || prop_oneof![0u64..0x40, any::<u64>(), Just(USER), Just(KERNEL)];
    let user = (address(), address(), proptest::collection::vec(any::<u8>(), 0..64));
    prop_oneof![
        (pid(), address(), 0u64..0x40, path)
            .prop_map(|(pid, at, size, path)| TestInput::Mmap(pid, at, size, path)),
        (pid(), pid()).prop_map(|(pid, parent)| TestInput::Fork(pid, parent)),
        pid().prop_map(TestInput::Exec),
        Just(TestInput::Lost),
        (pid(), proptest::collection::vec(address(), 0..8), proptest::option::of(user))
            .prop_map(|(pid, chain, user)| TestInput::Sample(pid, chain, user)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_records_leave_stacks_with_as_many_frames_as_there_were_addresses(all in proptest::collection::vec(told(), 0..40)) {
        let host = Host::new();
        let mut analyzer = Analyzer::new(&host.roots, Limits::default());
        for one in all {
            match one {
                TestInput::Mmap(pid, at, size, path) => {
                    analyzer.apply_record(&mmap(pid, (at.min(u64::MAX - size), at.min(u64::MAX - size) + size), NO_FILE, &path));
                }
                TestInput::Fork(pid, parent) => analyzer.apply_record(&fork(pid, parent)),
                TestInput::Exec(pid) => analyzer.apply_record(&exec(pid)),
                TestInput::Lost => analyzer.records_lost(),
                TestInput::Sample(pid, callchain, user) => {
                    let user = user.map(|(ip, sp, stack)| {
                        (crate::sys::Registers { ip, sp, fp: sp ^ 8, lr: ip }, stack, true)
                    });
                    let addresses = callchain.iter().filter(|&&address| address < -4095i64 as u64).count();
                    let stack = Stack { ip: 0, pid, tid: pid, callchain, user };
                    let (taken, frames) = take_by(Unwind::FramePointers, &mut analyzer, &stack);
                    prop_assert_eq!(frames.len(), addresses);
                    prop_assert_eq!(taken.cut, None);
                }
            }
        }
    }
}
