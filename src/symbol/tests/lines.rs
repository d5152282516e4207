//! Source lines and inlined functions of programs that are built here.

use super::*;

const SOURCE: &str = "\
volatile int sink;
static inline __attribute__((always_inline)) void inlined(int n) {
  sink += n;
}
__attribute__((noinline)) void work(int n) {
  inlined(n);
}
int main(int argc, char **argv) { work(argc); return sink; }
";

/// The path of the program on the fake host, inside the container.
const PATH: &str = "proc/7/root/bin/inlining";

/// Returns a fake host with a program, and every offset of the function into which another is inlined.
fn machine(options: &[&str]) -> (Machine, Vec<Frame>) {
    let mut machine = Machine::new();
    machine.write("program.c", SOURCE);
    machine.write("proc/7/root/bin/.keep", "");
    let (source, path) = (machine.path("program.c"), machine.path(PATH));
    let options = ["-O2", "-Wl,--build-id", "-o"].iter().chain(options).map(Path::new);
    let options: Vec<&Path> = options.collect();
    let (first, rest) = options.split_at(3);
    run("gcc", &[first, &[&path, &source], rest].concat());
    let (offset, size, _) = place(&path, "work");
    let module = machine.module("/bin/inlining");
    let frames = (offset..offset + size).map(|offset| Frame::File { module, offset }).collect();
    (machine, frames)
}

fn lines(machine: &Machine) -> Lines {
    Lines::new(&machine.roots(), 64 << 20)
}

fn refined(lines: &mut Lines, machine: &Machine, frames: &[Frame]) -> Vec<Arc<Named>> {
    let mut named = machine.symbolizer().resolve(frames, &machine.code);
    lines.refine(frames, &mut named, &machine.code);
    named
}

/// Returns function and line of each level.
fn levels(named: &Named) -> Vec<(&str, u32)> {
    named.lines.iter().map(|line| (&*line.name, line.line)).collect()
}

fn has_inlined(named: &[Arc<Named>]) -> bool {
    named.iter().any(|named| levels(named) == [("inlined", 3), ("work", 6)])
}

#[test]
fn a_frame_has_its_line_and_what_was_inlined_there() {
    for options in [&["-g"][..], &["-g", "-gz=zlib"], &["-gdwarf-4"]] {
        let (machine, frames) = machine(options);
        let mut lines = lines(&machine);
        let named = refined(&mut lines, &machine, &frames);
        assert!(has_inlined(&named), "{options:?}: {named:?}");
        for named in &named {
            let outermost = named.lines.last().unwrap();
            assert_eq!((&*outermost.name, named.lines.len() <= 2), ("work", true));
            assert!(outermost.file.as_ref().unwrap().ends_with("/program.c"), "{named:?}");
        }
        assert_eq!(lines.accounts().found, frames.len() as u64);
    }
}

#[test]
fn without_debug_information_there_are_the_names_and_a_reason() {
    let (machine, frames) = machine(&["-g0"]);
    let mut lines = lines(&machine);
    let named = refined(&mut lines, &machine, &frames);
    assert!(named.iter().all(|named| levels(named) == [("work", 0)]), "{named:?}");
    assert_eq!(lines.accounts().of(LineReason::NoDebugInfo), frames.len() as u64);
}

#[test]
fn debug_information_that_was_moved_to_another_file_is_found() {
    let (machine, frames) = machine(&["-g"]);
    let (path, debug) = (machine.path(PATH), machine.path("proc/7/root/bin/inlining.debug"));
    run("objcopy", &[Path::new("--only-keep-debug"), &path, &debug]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run("objcopy", &[Path::new("--strip-all"), Path::new(&link), &path]);
    let mut machine = machine;
    let module = machine.module("/bin/inlining");
    let moved = |frame: &Frame| match *frame {
        Frame::File { offset, .. } => Frame::File { module, offset },
        other => other,
    };
    let frames: Vec<Frame> = frames.iter().map(moved).collect();
    let named = refined(&mut lines(&machine), &machine, &frames);
    assert!(has_inlined(&named), "{named:?}");
}

#[test]
fn what_cannot_be_read_has_its_reason() {
    let cases: [(&[&str], u64, LineReason); 3] = [
        (&["-g"], 100, LineReason::TooLarge),
        (&["-g", "-gsplit-dwarf"], 64 << 20, LineReason::Split),
        (&["-g", "-gz=zlib-gnu"], 64 << 20, LineReason::Compressed),
    ];
    for (options, limit, reason) in cases {
        let (machine, frames) = machine(options);
        let mut lines = Lines::new(&machine.roots(), limit);
        let named = refined(&mut lines, &machine, &frames);
        assert!(
            named.iter().all(|named| named.lines.len() == 1 && &*named.lines[0].name == "work"),
            "{named:?}"
        );
        assert_eq!(lines.accounts().of(reason), frames.len() as u64, "{reason:?}: {:?}", lines.accounts());
        if reason == LineReason::Split {
            assert!(named.iter().all(|named| named.lines[0].line > 0), "it has lines: {named:?}");
        }
    }
}

#[test]
fn what_one_profile_leaves_out_the_next_has() {
    let (mut machine, frames) = machine(&["-g"]);
    let size = {
        let path = machine.path(PATH);
        let file = fs::File::open(&path).unwrap();
        crate::probe::binary::Binary::read(file, &path).unwrap().debug_info(u64::MAX).unwrap().size()
    };
    let Frame::File { offset, .. } = frames[0] else { panic!() };
    let mut all = vec![frames[0]];
    for number in 0..6 {
        let path = format!("/bin/copy{number}");
        let content = crate::host::read(&machine.path(PATH)).unwrap();
        machine.write(&format!("proc/7/root{path}"), content);
        all.push(Frame::File { module: machine.module(&path), offset });
    }
    // The limit for all files is four times that of one file.
    let mut lines = Lines::new(&machine.roots(), size);
    let known = |lines: &mut Lines| {
        let named = refined(lines, &machine, &all);
        named.iter().filter(|named| named.lines[0].line > 0).count()
    };
    assert_eq!([known(&mut lines), known(&mut lines)], [4, 7]);
    assert_eq!(lines.accounts().of(LineReason::Postponed), 3);
    assert!(lines.bytes() < 100_000, "{}", lines.bytes());
}

#[test]
fn what_was_found_stays_when_its_file_is_gone_and_what_changes_is_not_believed() {
    let (machine, frames) = machine(&["-g"]);
    let mut lines = lines(&machine);
    let before = refined(&mut lines, &machine, &frames[..1]);
    machine.append(PATH, "x");
    assert_eq!(refined(&mut lines, &machine, &frames[..1])[0].lines[0].line, before[0].lines[0].line);
    refined(&mut lines, &machine, &frames[1..2]);
    assert_eq!(lines.accounts().of(LineReason::Changed), 1);
}

#[test]
fn other_frames_stay_what_they_are() {
    let (machine, frames) = machine(&["-g"]);
    let all = [Frame::Kernel(0xffff_ffff_8100_0110), frames[0], Frame::Nowhere(7), memory(0x1000)];
    let mut lines = lines(&machine);
    let names = machine.symbolizer().resolve(&all, &machine.code);
    let named = refined(&mut lines, &machine, &all);
    for place in [0, 2, 3] {
        assert_eq!(named[place], names[place]);
    }
    assert_eq!(lines.accounts().found, 1);
}
