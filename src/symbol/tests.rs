//! Frames of programs that are built here, of this test itself, and of processes in fixture directories.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use proptest::prelude::*;

use super::jitdump::testing as jitdump;
use super::*;
use crate::clock::Timestamp;
use crate::files::{Files, Opened};
use crate::host::Roots;
use crate::probe::Root;
use crate::stack::{Module, Process, Truncation};

mod large;
mod limits;
mod lines;
mod node;
mod other_tables;
mod owners;

/// A host in a directory, with one process whose process ID is 7 on the host and 1 in its container.
struct Machine {
    dir: tempfile::TempDir,
    clock: Clock,
    code: Code,
}

const PROCESS: ProcessId = ProcessId(0);

impl Machine {
    fn new() -> Self {
        let machine = Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Clock::manual(Timestamp(1_000_000)),
            code: Code { modules: Vec::new(), processes: vec![Process { pid: 7, own_pid: 1 }] },
        };
        let uid = fs::metadata(machine.dir.path()).unwrap().uid();
        machine.write("proc/7/status", format!("Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"));
        machine.write("proc/7/root/tmp/.keep", "");
        machine.write("proc/kallsyms", KERNEL);
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn append(&self, path: &str, content: impl AsRef<[u8]>) {
        let file = fs::OpenOptions::new().append(true).open(self.path(path));
        file.unwrap().write_all(content.as_ref()).unwrap();
    }

    fn roots(&self) -> Roots {
        Roots::under(self.dir.path())
    }

    /// Adds a module of the process, opened in its container.
    fn module(&mut self, path: &str) -> ModuleId {
        let opened = Files::here(&self.roots()).open(&Root::Process(7), path, None);
        self.add(path, opened.map_err(|error| error.to_string().into()))
    }

    fn add(&mut self, path: &str, file: Result<Opened, Arc<str>>) -> ModuleId {
        let (path, file) = (path.into(), file.map(Arc::new));
        self.code.modules.push(Module { path, build_id: None, process: PROCESS, file });
        ModuleId(u32::try_from(self.code.modules.len() - 1).unwrap())
    }

    fn symbolizer(&self) -> Symbolizer {
        self.symbolizer_with(Options::default())
    }

    fn symbolizer_with(&self, options: Options) -> Symbolizer {
        Symbolizer::new(&self.roots(), self.clock.clone(), options)
    }

    fn later(&self) {
        self.clock.advance(Duration::from_secs(60));
    }
}

const KERNEL: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 T tcp_sendmsg
ffffffff81000300 D _sdata
ffffffffc0000000 t nf_in\t[nf_conntrack]
ffffffffc0000100 d table\t[nf_conntrack]
";

fn memory(address: u64) -> Frame {
    Frame::Memory { process: PROCESS, address }
}

fn shown(named: &Named) -> String {
    match (&*named.lines, &named.unknown) {
        ([line], None) => line.name.to_string(),
        ([], Some(text)) => text.to_string(),
        _ => panic!("{named:?}"),
    }
}

/// Returns the displayed text of one frame.
fn ask(symbolizer: &mut Symbolizer, code: &Code, frame: Frame) -> String {
    shown(&symbolizer.resolve(&[frame], code)[0])
}

fn run(tool: &str, arguments: &[&Path]) {
    assert!(Command::new(tool).args(arguments).status().unwrap().success(), "{tool}");
}

/// Returns a C program, built once.
fn program() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (path, source) = (dir.path().join("program"), dir.path().join("program.c"));
        fs::write(
            &source,
            r#"
            __attribute__((noinline)) int work(int n) { return n * 2 + 1; }
            __attribute__((noinline, alias("work"))) int __work_alias(int n);
            __attribute__((noinline)) static int hidden(int n) { return work(n) + 3; }
            __asm__(".text\nsized: nop\nnop\nwithin: nop\nnop\n.type sized,@function\n.size sized,4\n"
                    "unsized: nop\n\"$x\": nop\n.type unsized,@function\n"
                    ".section .other,\"ax\"\nnop\nnop\n.text\n");
            int main(int argc, char **argv) { return hidden(argc); }
            "#,
        )
        .unwrap();
        let flags = ["-Wl,--build-id", "-Wl,-Ttext-segment=0x10000000", "-no-pie", "-o"].map(Path::new);
        run("gcc", &[&flags[..], &[&path, &source]].concat());
        crate::host::read(&path).unwrap()
    })
}

/// Returns the location of a function of a file: its offset, size and, by `nm`, its address.
fn place(path: &Path, name: &str) -> (u64, u64, u64) {
    let binary = crate::probe::binary::Binary::read(fs::File::open(path).unwrap(), path).unwrap();
    let symbol = binary.symbol(name).unwrap();
    let nm = Command::new("nm").arg(path).output().unwrap();
    let nm = String::from_utf8(nm.stdout).unwrap();
    let line = nm.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
    (symbol.offset, symbol.size, u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap())
}

#[test]
fn a_place_in_a_program_has_the_name_of_its_function() {
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", program());
    let path = machine.path("proc/7/root/bin/program");
    let module = machine.module("/bin/program");
    let mut symbolizer = machine.symbolizer();
    for name in ["main", "work", "hidden"] {
        let (offset, size, address) = place(&path, name);
        for into in [0, size - 1] {
            let frame = Frame::File { module, offset: offset + into };
            let named = &symbolizer.resolve(&[frame], &machine.code)[0];
            assert_eq!(shown(named), name);
            assert_eq!((named.origin, named.address), (Origin::Native, address + into));
            let segment = named.segment.as_ref().unwrap();
            assert_eq!((&*segment.path, segment.named), ("/bin/program", true));
            assert!((segment.start..segment.limit).contains(&named.address));
            assert_eq!(named.address - segment.start + segment.offset, offset + into);
        }
    }
    assert_eq!(symbolizer.accounts().named, 6);
}

/// `$x` is a mapping symbol on Arm.
#[test]
fn a_label_in_a_function_is_not_its_end_and_a_function_without_size_ends_with_its_section() {
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", program());
    let path = machine.path("proc/7/root/bin/program");
    let module = machine.module("/bin/program");
    let mut symbolizer = machine.symbolizer();
    let mut name = |offset| ask(&mut symbolizer, &machine.code, Frame::File { module, offset });
    let (sized, size, _) = place(&path, "sized");
    assert_eq!(size, 4);
    assert_eq!([name(sized), name(sized + 3)], ["sized", "sized"]);
    assert_eq!([name(sized + 4), name(sized + 5)], ["unsized", "unsized"]);
    let sections = Command::new("readelf").arg("-SW").arg(&path).output().unwrap();
    let sections = String::from_utf8(sections.stdout).unwrap();
    let other = sections.lines().find(|line| line.contains(" .other ")).unwrap();
    let offset = other.split_whitespace().rev().nth(6).unwrap();
    let offset = u64::from_str_radix(offset, 16).unwrap();
    let after = name(offset);
    assert!(after.starts_with("program+0x"), "{after}: {other}");
    assert_eq!(symbolizer.accounts().of(Reason::Between), 1);
}

/// A function that the test looks up in itself.
#[inline(never)]
fn looked_for_in_this_test(number: u64) -> u64 {
    std::hint::black_box(number) * 3
}

#[test]
fn functions_of_this_test_have_their_names() {
    let pointer: fn(u64) -> u64 = looked_for_in_this_test;
    let address = pointer as usize as u64;
    let maps = crate::host::read_text(Path::new("/proc/self/maps")).unwrap();
    let (path, offset) = maps
        .lines()
        .find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = words[0].split_once('-')?;
            let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
            let offset = u64::from_str_radix(words[2], 16).ok()?;
            (start..end).contains(&address).then(|| (words[5].to_owned(), address - start + offset))
        })
        .unwrap();
    let mut machine = Machine::new();
    let module =
        machine.add(&path, Ok(Files::here(&Roots::default()).open(&Root::Host, &path, None).unwrap()));
    let mut symbolizer = machine.symbolizer();
    let named = &symbolizer.resolve(&[Frame::File { module, offset }], &machine.code)[0];
    assert_eq!(shown(named), "perf_exporter::symbol::tests::looked_for_in_this_test");
    assert!(named.lines[0].linkage.starts_with("_"), "{named:?}");
    println!("{} bytes in use", symbolizer.bytes());
}

#[test]
fn what_the_kernel_maps_into_every_process_has_names() {
    let mut machine = Machine::new();
    let module = machine.add("[vdso]", Err("it is not a file".into()));
    let mut symbolizer = Symbolizer::new(&Roots::default(), machine.clock.clone(), Options::default());
    let frames: Vec<Frame> = (0..0x3000).step_by(16).map(|offset| Frame::File { module, offset }).collect();
    let named = symbolizer.resolve(&frames, &machine.code);
    let time = named.iter().find(|named| shown(named).contains("clock_gettime"));
    assert!(time.is_some_and(|named| &*named.segment.as_ref().unwrap().path == "[vdso]"), "{named:?}");
}

/// Returns a program without symbols, and its debug file.
fn stripped(dir: &Path, arguments: &[&str]) -> (PathBuf, PathBuf) {
    let (path, debug, bare) = (dir.join("whole"), dir.join("program.debug"), dir.join("program"));
    fs::write(&path, program()).unwrap();
    run("objcopy", &[Path::new("--only-keep-debug"), &path, &debug]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    let arguments = arguments.iter().map(Path::new);
    let arguments: Vec<&Path> = arguments.chain([Path::new("--strip-all"), Path::new(&link)]).collect();
    run("objcopy", &[&arguments[..], &[&path, &bare]].concat());
    (bare, debug)
}

#[test]
fn a_stripped_program_gets_its_names_from_its_debug_file() {
    let dir = tempfile::tempdir().unwrap();
    // With a build id, and without, so that the checksum is used.
    for (arguments, by_id) in [(&[][..], true), (&["--remove-section=.note.gnu.build-id"][..], false)] {
        let (bare, debug) = stripped(dir.path(), arguments);
        let whole = dir.path().join("whole");
        let (offset, ..) = place(&whole, "hidden");
        let build_id = crate::probe::binary::Binary::read(fs::File::open(&whole).unwrap(), &whole).unwrap();
        let build_id = build_id.build_id().unwrap();
        let by_build_id = format!("usr/lib/debug/.build-id/{}/{}.debug", &build_id[..2], &build_id[2..]);
        let places = [
            ("proc/7/root/bin/program.debug", true),
            ("proc/7/root/bin/.debug/program.debug", true),
            ("proc/7/root/usr/lib/debug/bin/program.debug", true),
            ("usr/lib/debug/bin/program.debug", true),
            (&*format!("proc/7/root/{by_build_id}"), by_id),
            (&*by_build_id, by_id),
            ("proc/7/root/bin/other.debug", false),
        ];
        for (place, is_found) in places {
            let mut machine = Machine::new();
            machine.write("proc/7/root/bin/program", crate::host::read(&bare).unwrap());
            machine.write(place, crate::host::read(&debug).unwrap());
            let module = machine.module("/bin/program");
            let mut symbolizer = machine.symbolizer();
            let name = ask(&mut symbolizer, &machine.code, Frame::File { module, offset });
            assert_eq!(name == "hidden", is_found, "{place}, by id {by_id}: {name}");
            assert_eq!(symbolizer.accounts().of(Reason::NoSymbols), u64::from(!is_found));
        }
    }
}

#[test]
fn a_debug_file_has_names_after_the_process_ended_that_it_was_found_through() {
    let dir = tempfile::tempdir().unwrap();
    let (bare, debug) = stripped(dir.path(), &[]);
    let (offset, ..) = place(&dir.path().join("whole"), "hidden");
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", crate::host::read(&bare).unwrap());
    machine.write("usr/lib/debug/bin/program.debug", crate::host::read(&debug).unwrap());
    fs::create_dir_all(machine.path("proc/7/root/usr/lib/debug/bin")).unwrap();
    let [host, process] =
        ["usr", "proc/7/root/usr"].map(|root| machine.path(root).join("lib/debug/bin/program.debug"));
    fs::hard_link(host, process).unwrap();
    let module = machine.module("/bin/program");
    let mut symbolizer = machine.symbolizer();
    // The file is found, but no name is read yet.
    ask(&mut symbolizer, &machine.code, Frame::File { module, offset: 0 });
    fs::remove_dir_all(machine.path("proc/7")).unwrap();
    assert_eq!(ask(&mut symbolizer, &machine.code, Frame::File { module, offset }), "hidden");
}

#[test]
fn a_debug_file_of_another_build_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let (bare, debug) = stripped(dir.path(), &["--remove-section=.note.gnu.build-id"]);
    let (offset, ..) = place(&dir.path().join("whole"), "hidden");
    let mut other = crate::host::read(&debug).unwrap();
    other.push(0);
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", crate::host::read(&bare).unwrap());
    machine.write("proc/7/root/bin/program.debug", other);
    let module = machine.module("/bin/program");
    let mut symbolizer = machine.symbolizer();
    let name = ask(&mut symbolizer, &machine.code, Frame::File { module, offset });
    assert!(name.starts_with("program+0x1000"), "{name}");
}

#[test]
fn what_has_no_name_says_what_is_known_and_is_counted() {
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/script", "#!/bin/sh\n");
    machine.write("proc/7/root/bin/cut", &program()[..100]);
    let script = machine.module("/bin/script");
    let cut = machine.module("/bin/cut");
    let absent = machine.module("/lib/absent\n.so");
    let frames = [
        Frame::File { module: script, offset: 0x1234 },
        Frame::File { module: cut, offset: 0x10 },
        Frame::File { module: absent, offset: 0x20 },
        Frame::File { module: ModuleId(99), offset: 0x30 },
        Frame::Nowhere(0x7f00),
        memory(0x8f00),
        Frame::Kernel(0xffff_ffff_8100_0400),
        Frame::Truncation(Truncation::Deep),
        Frame::Kernel(0xffff_ffff_8100_0110),
    ];
    let mut symbolizer = machine.symbolizer();
    let named = symbolizer.resolve(&frames, &machine.code);
    let texts: Vec<String> = named.iter().map(|named| shown(named)).collect();
    let expected = [
        "script+0x1234",
        "cut+0x10",
        "absent\\n.so+0x20",
        "[unknown file]+0x30",
        "[unmapped] 0x7f00",
        "[anon] 0x8f00",
        "[kernel] 0xffffffff81000400",
        "[truncated: depth_limit]",
        "tcp_sendmsg",
    ];
    assert_eq!(texts, expected);
    let reasons = [
        (Reason::NotElf, 1),
        (Reason::Damaged, 1),
        (Reason::NoFile, 2),
        (Reason::Unmapped, 1),
        (Reason::MapMissing, 1),
        (Reason::KernelUnknown, 1),
    ];
    for (reason, count) in reasons {
        assert_eq!(symbolizer.accounts().of(reason), count, "{reason:?}");
    }
    let accounts = symbolizer.accounts();
    let unnamed: u64 = Reason::ALL.into_iter().map(|reason| accounts.of(reason)).sum();
    assert_eq!((unnamed, accounts.named, accounts.cut), (7, 1, 1));
}

#[test]
fn a_bad_file_is_not_read_again() {
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", "not yet");
    let module = machine.module("/bin/program");
    let mut symbolizer = machine.symbolizer();
    let frame = |offset| Frame::File { module, offset };
    ask(&mut symbolizer, &machine.code, frame(0));
    machine.write("proc/7/root/bin/program", program());
    let (offset, ..) = place(&machine.path("proc/7/root/bin/program"), "main");
    machine.later();
    assert!(ask(&mut symbolizer, &machine.code, frame(offset)).starts_with("program+0x"));
    assert_eq!(symbolizer.accounts().of(Reason::NotElf), 2);
    // The same file, opened again, is another module.
    machine.code.modules.clear();
    machine.module("/bin/program");
    assert_eq!(ask(&mut symbolizer, &machine.code, frame(offset)), "main");
}

#[test]
fn names_that_are_kept_outlive_the_file_they_come_from() {
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", program());
    let (offset, ..) = place(&machine.path("proc/7/root/bin/program"), "work");
    let kept = Frame::File { module: machine.module("/bin/program"), offset };
    let forgotten = Frame::File { module: machine.module("/bin/program"), offset };
    let mut symbolizer = machine.symbolizer();
    symbolizer.keep(&[kept, Frame::Kernel(0xffff_ffff_8100_0100), memory(0x5000)], &machine.code);
    symbolizer.resolve(&[forgotten], &machine.code);
    assert_eq!(symbolizer.accounts().named, 1, "kept frames are not counted");
    // The process has exited, and its file is closed.
    machine.code.modules.iter_mut().for_each(|module| module.file = Err("it was closed".into()));
    fs::remove_dir_all(machine.path("proc/7")).unwrap();
    for _ in 0..60 {
        machine.later();
        symbolizer.keep(&[kept], &machine.code);
    }
    assert_eq!(ask(&mut symbolizer, &machine.code, kept), "work");
    assert!(ask(&mut symbolizer, &machine.code, forgotten).starts_with("program+0x"));
}

#[test]
fn a_file_that_is_overwritten_gives_no_names_that_are_not_its_own() {
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", program());
    let path = machine.path("proc/7/root/bin/program");
    let [main, work] = ["main", "work"].map(|name| place(&path, name).0);
    let module = machine.module("/bin/program");
    let mut symbolizer = machine.symbolizer();
    let frame = |offset| Frame::File { module, offset };
    assert_eq!(ask(&mut symbolizer, &machine.code, frame(main)), "main");
    machine.write("proc/7/root/bin/program", [b'x'; 20_000]);
    assert!(ask(&mut symbolizer, &machine.code, frame(work)).starts_with("program+0x1000"));
    assert_eq!(symbolizer.accounts().of(Reason::Changed), 1);
    assert_eq!(ask(&mut symbolizer, &machine.code, frame(main)), "main");
}

#[test]
fn code_that_a_process_made_has_the_names_that_it_tells() {
    let machine = Machine::new();
    machine.write("proc/7/root/tmp/perf-1.map", "1000 10 LazyCompile:*foo /app/x.js:12\nbad\n2000 10 cu");
    // The map of another process, and one with the process ID on the host.
    machine.write("proc/7/root/tmp/perf-7.map", "1000 10 wrong\n");
    machine.write("tmp/perf-1.map", "1000 10 wrong\n");
    let mut symbolizer = machine.symbolizer();
    let ask = |symbolizer: &mut Symbolizer, address| ask(symbolizer, &machine.code, memory(address));
    assert_eq!(ask(&mut symbolizer, 0x1008), "LazyCompile:*foo /app/x.js:12");
    assert_eq!(ask(&mut symbolizer, 0x2008), "[anon] 0x2008");
    machine.append("proc/7/root/tmp/perf-1.map", "t short\n1000 10 again\n");
    assert_eq!(ask(&mut symbolizer, 0x2008), "[anon] 0x2008", "the file is not read for every request");
    machine.later();
    assert_eq!(ask(&mut symbolizer, 0x2008), "cut short");
    assert_eq!(ask(&mut symbolizer, 0x1008), "again");
    assert_eq!(symbolizer.accounts().malformed, 1);
    assert_eq!(symbolizer.accounts().of(Reason::NotInMap), 2);
}

#[test]
fn a_list_that_is_written_anew_replaces_what_was_read() {
    let machine = Machine::new();
    let path = "proc/7/root/tmp/perf-1.map";
    let mut symbolizer = machine.symbolizer();
    let contents = [
        ("1000 10 first\n", "first"),
        // Shorter, longer, and in another file at the same path.
        ("1000 10 a\n", "a"),
        ("2000 10 longer than before\n1000 10 b\n", "b"),
        ("", "[anon] 0x1000"),
        ("1000 10 c\n", "c"),
    ];
    for (content, expected) in contents {
        machine.write(path, content);
        machine.later();
        assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), expected);
    }
    fs::remove_file(machine.path(path)).unwrap();
    machine.later();
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), "c", "names that were read stay valid");
    machine.write(path, "1000 10 d\n");
    machine.later();
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), "d");
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let machine = Machine::new();
    let path = machine.path("proc/7/root/tmp/perf-1.map");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut symbolizer = machine.symbolizer();
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), "[anon] 0x1000");
    assert_eq!(symbolizer.accounts().of(Reason::MapUnreadable), 1);
}

#[test]
fn a_process_that_has_ended_keeps_the_names_that_it_told_in_time() {
    let machine = Machine::new();
    let path = "proc/7/root/tmp/perf-1.map";
    machine.write(path, "1000 10 first\n");
    let (mut noticed, mut late) = (machine.symbolizer(), machine.symbolizer());
    noticed.notice(PROCESS, &machine.code);
    // The process writes more, its file is removed, and it exits.
    machine.append(path, "2000 10 last\n");
    fs::remove_dir_all(machine.path("proc/7")).unwrap();
    noticed.end(PROCESS);
    // Another process gets its process ID.
    machine.write(path, "1000 10 wrong\n2000 10 wrong\n");
    machine.later();
    assert_eq!(ask(&mut noticed, &machine.code, memory(0x1000)), "first");
    assert_eq!(ask(&mut noticed, &machine.code, memory(0x2000)), "last");
    fs::remove_dir_all(machine.path("proc/7")).unwrap();
    assert_eq!(ask(&mut late, &machine.code, memory(0x1000)), "[anon] 0x1000");
    assert_eq!(late.accounts().of(Reason::MapMissing), 1);
}

#[test]
fn a_jitdump_that_a_process_has_mapped_comes_before_its_list() {
    let mut machine = Machine::new();
    let lines = jitdump::lines(0x1000, &[(0x1000, 3, b"/app/x.js")]);
    let dump = [jitdump::header(), lines, jitdump::load(0x1000, 16, "*foo")].concat();
    machine.write("proc/7/root/app/jit-1.dump", dump);
    machine.write("proc/7/root/tmp/perf-1.map", "1000 10 foo\n2000 10 bar\n");
    machine.module("/app/jit-1.dump");
    let mut symbolizer = machine.symbolizer();
    let named = symbolizer.resolve(&[memory(0x1008), memory(0x2000), memory(0x3000)], &machine.code);
    let line = &named[0].lines[0];
    assert_eq!((&*line.name, line.file.as_deref(), line.line), ("*foo", Some("/app/x.js"), 3));
    assert_eq!((named[0].origin, shown(&named[1])), (Origin::Jit, "bar".to_owned()));
    assert_eq!(named[2].reason, Some(Reason::NotInMap));
    machine.append("proc/7/root/app/jit-1.dump", jitdump::load(0x3000, 16, "late"));
    machine.later();
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x3000)), "late");
}

#[test]
fn a_program_of_bpf_has_its_name_as_soon_as_the_kernel_tells_it() {
    let machine = Machine::new();
    let mut symbolizer = machine.symbolizer();
    let frame = Frame::Kernel(0xffff_ffff_c100_0010);
    assert_eq!(ask(&mut symbolizer, &machine.code, frame), "[kernel] 0xffffffffc1000010");
    let (address, name) = (0xffff_ffff_c100_0000, &b"bpf_prog_6deef7357e7b4530_x"[..]);
    symbolizer.apply_ksymbol(&Ksymbol { address, length: 64, removed: false, name });
    assert_eq!(ask(&mut symbolizer, &machine.code, frame), "bpf_prog_6deef7357e7b4530_x");
}

/// Generates the bytes of a program, with some of them changed.
fn broken() -> impl Strategy<Value = Vec<u8>> {
    let length = program().len();
    let place = prop_oneof![0..64usize, 64..800usize, length - 2500..length, 0..length];
    proptest::collection::vec((place, any::<u8>()), 0..8).prop_map(|changes| {
        let mut bytes = program().to_vec();
        for (place, byte) in changes {
            bytes[place] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_program_of_any_bytes_is_read_or_refused(bytes in broken(), offsets: Vec<u16>, far: u64) {
        let mut machine = Machine::new();
        machine.write("proc/7/root/bin/program", bytes);
        let module = machine.module("/bin/program");
        let mut symbolizer = machine.symbolizer();
        let offsets = offsets.into_iter().map(u64::from).chain([far]);
        let frames: Vec<Frame> = offsets.map(|offset| Frame::File { module, offset }).collect();
        prop_assert_eq!(symbolizer.resolve(&frames, &machine.code).len(), frames.len());
    }

    #[test]
    fn an_answer_does_not_depend_on_what_else_is_asked(
        frames in proptest::collection::vec(prop_oneof![
            (0u64..0x3000).prop_map(|offset| Frame::File { module: ModuleId(0), offset }),
            (0xffff_ffff_8100_0000u64..0xffff_ffff_8100_0400).prop_map(Frame::Kernel),
            (0x1000u64..0x1020).prop_map(memory),
            any::<u64>().prop_map(Frame::Nowhere),
        ], 0..20)
    ) {
        let mut machine = Machine::new();
        machine.write("proc/7/root/bin/program", program());
        machine.write("proc/7/root/tmp/perf-1.map", "1000 10 foo\n");
        machine.module("/bin/program");
        let (mut one, mut all) = (machine.symbolizer(), machine.symbolizer());
        let together = all.resolve(&frames, &machine.code);
        let alone: Vec<_> =
            frames.iter().map(|frame| Arc::clone(&one.resolve(&[*frame], &machine.code)[0])).collect();
        prop_assert_eq!(&together, &alone);
        prop_assert_eq!(&all.resolve(&frames, &machine.code), &together);
        prop_assert_eq!(one.accounts().named * 2, all.accounts().named);
    }
}
