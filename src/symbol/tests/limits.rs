//! The memory that is used for files, and for how long.

use super::*;

#[test]
fn tables_make_room_for_each_other() {
    let mut machine = Machine::new();
    let mut frames = Vec::new();
    for number in 0..20 {
        let path = format!("/bin/program{number}");
        machine.write(&format!("proc/7/root{path}"), program());
        let (offset, ..) = place(&machine.path(&format!("proc/7/root{path}")), "work");
        frames.push(Frame::File { module: machine.module(&path), offset });
    }
    let memory = 40_000;
    let mut symbolizer = machine.symbolizer_with(Options { memory, ..Options::default() });
    for _ in 0..3 {
        let named = symbolizer.resolve(&frames, &machine.code);
        assert!(named.iter().all(|named| shown(named) == "work"), "{named:?}");
        assert!(symbolizer.bytes() < memory, "{}", symbolizer.bytes());
    }
}

#[test]
fn a_file_with_more_functions_than_there_is_room_for_says_so() {
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", program());
    let module = machine.module("/bin/program");
    let mut symbolizer = machine.symbolizer_with(Options { memory: 400, ..Options::default() });
    ask(&mut symbolizer, &machine.code, Frame::File { module, offset: 0x1100 });
    assert_eq!(symbolizer.accounts().of(Reason::TooLarge), 1);
}

/// Builds a library with this many functions of one byte each. Returns the offset of the first one.
fn large(machine: &Machine, functions: u64) -> u64 {
    let mut source = String::from(".text\n");
    for number in 0..functions {
        let name = format!("function_with_a_usual_name_{number}");
        source += &format!(".globl {name}\n.type {name},@function\n{name}: nop\n.size {name},1\n");
    }
    machine.write("large.s", source);
    machine.write("proc/7/root/lib/.keep", "");
    let library = machine.path("proc/7/root/lib/large.so");
    let flags = ["-shared", "-nostdlib", "-o"].map(Path::new);
    run("gcc", &[&flags[..], &[&library, &machine.path("large.s")]].concat());
    place(&library, "function_with_a_usual_name_0").0
}

#[test]
fn a_file_whose_table_is_larger_than_the_memory_has_all_its_names() {
    let mut machine = Machine::new();
    let functions = 20_000;
    let first = large(&machine, functions);
    let module = machine.module("/lib/large.so");
    let memory = 100_000;
    let mut symbolizer = machine.symbolizer_with(Options { memory, ..Options::default() });
    let frames: Vec<Frame> =
        (0..functions).step_by(97).map(|number| Frame::File { module, offset: first + number }).collect();
    let named = symbolizer.resolve(&frames, &machine.code);
    for (number, named) in (0..functions).step_by(97).zip(&named) {
        assert_eq!(shown(named), format!("function_with_a_usual_name_{number}"));
    }
    assert!(symbolizer.bytes() <= memory, "{:?}", symbolizer.held());
    symbolizer.set_limit(50_000);
    assert!(symbolizer.bytes() <= 50_000, "{:?}", symbolizer.held());
    assert_eq!(shown(&symbolizer.resolve(&frames[5..6], &machine.code)[0]), "function_with_a_usual_name_485");
}

#[test]
fn names_that_nobody_asks_for_are_dropped_after_a_while() {
    let mut machine = Machine::new();
    let first = large(&machine, 20_000);
    machine.write("proc/7/root/bin/program", program());
    let work = place(&machine.path("proc/7/root/bin/program"), "work").0;
    let (large, small) = (machine.module("/lib/large.so"), machine.module("/bin/program"));
    let mut symbolizer = machine.symbolizer();
    let frames: Vec<Frame> =
        (0..20_000).step_by(97).map(|number| Frame::File { module: large, offset: first + number }).collect();
    symbolizer.resolve(&frames, &machine.code);
    let before = symbolizer.bytes();
    for _ in 0..3 {
        machine.clock.advance(AGE);
        let frame = Frame::File { module: small, offset: work };
        assert_eq!(ask(&mut symbolizer, &machine.code, frame), "work");
    }
    assert!(symbolizer.bytes() < before / 10, "{} of {before}", symbolizer.bytes());
    assert_eq!(shown(&symbolizer.resolve(&frames[5..6], &machine.code)[0]), "function_with_a_usual_name_485");
}

#[test]
fn functions_that_a_process_made_go_when_its_number_is_given_to_another_one() {
    let machine = Machine::new();
    machine.write("proc/7/root/tmp/perf-1.map", "1000 100 made\n");
    let mut symbolizer = machine.symbolizer();
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), "made");
    let held = symbolizer.held().jits;
    symbolizer.forget(PROCESS, &Process { pid: 8, own_pid: 1 });
    assert_eq!(symbolizer.held().jits, held, "the number already belongs to another process");
    symbolizer.forget(PROCESS, &machine.code.processes[0]);
    assert_eq!(symbolizer.held().jits, 0);
}

#[test]
fn no_file_is_held_open_and_names_that_were_found_outlive_their_file() {
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", program());
    let path = machine.path("proc/7/root/bin/program");
    let [main, work] = ["main", "work"].map(|name| place(&path, name).0);
    let module = machine.module("/bin/program");
    let mut symbolizer = machine.symbolizer();
    let frame = |offset| Frame::File { module, offset };
    assert_eq!(ask(&mut symbolizer, &machine.code, frame(main)), "main");
    let opened = Arc::clone(machine.code.modules[0].file.as_ref().unwrap());
    // Here, and in the list of modules.
    assert_eq!(Arc::strong_count(&opened), 2);
    machine.code.modules[0].file = Err("the file was closed".into());
    assert_eq!(ask(&mut symbolizer, &machine.code, frame(main + 1)), "main");
    assert!(ask(&mut symbolizer, &machine.code, frame(work)).starts_with("program+0x"));
    assert_eq!(symbolizer.accounts().of(Reason::NoFile), 1);
    // The same file, opened again.
    machine.module("/bin/program");
    machine.code.modules.remove(0);
    assert_eq!(ask(&mut symbolizer, &machine.code, frame(work)), "work");
}

#[test]
fn tables_are_read_no_faster_than_they_may_and_names_come_later() {
    let mut machine = Machine::new();
    machine.write("proc/7/root/bin/program", program());
    let path = machine.path("proc/7/root/bin/program");
    let module = machine.module("/bin/program");
    let mut symbolizer = machine.symbolizer();
    symbolizer.files.work.refill(machine.clock.monotonic());
    symbolizer.files.work.take(u64::MAX);
    let frame = Frame::File { module, offset: place(&path, "work").0 };
    assert!(ask(&mut symbolizer, &machine.code, frame).starts_with("program+0x"));
    assert_eq!(symbolizer.accounts().of(Reason::Postponed), 1);
    machine.later();
    assert_eq!(ask(&mut symbolizer, &machine.code, frame), "work");
}

/// Measures the memory of the functions of large programs, and the time to read them: those in the variable `PROGRAMS`, separated by
/// colons.
#[test]
#[ignore = "it measures"]
fn large_programs_are_measured() {
    let mut machine = Machine::new();
    let programs = std::env::var("PROGRAMS").unwrap_or_default();
    let clock = Clock::system();
    let memory = Options { memory: 256 << 20, ..Options::default() };
    for path in programs.split(':').filter(|path| !path.is_empty()) {
        let module =
            machine.add(path, Ok(Files::here(&Roots::default()).open(&Root::Host, path, None).unwrap()));
        let size = fs::metadata(path).unwrap().len();
        for (step, options) in [(4096, memory.clone()), (65536, Options::default())] {
            let mut symbolizer = Symbolizer::new(&Roots::default(), clock.clone(), options);
            let frames: Vec<Frame> =
                (0..size).step_by(step).map(|offset| Frame::File { module, offset }).collect();
            let before = clock.monotonic();
            symbolizer.resolve(&frames, &machine.code);
            let took = clock.monotonic().since(before);
            let accounts = symbolizer.accounts();
            let lost = [Reason::TooLarge, Reason::Postponed].map(|reason| accounts.of(reason));
            println!(
                "{path}: {} frames, {took:?}, {} named, {lost:?}, {:?}",
                frames.len(),
                accounts.named,
                symbolizer.held()
            );
        }
    }
    let mut kernel = Symbolizer::new(&Roots::default(), clock.clone(), Options::default());
    let before = clock.monotonic();
    kernel.resolve(&[Frame::Kernel(0xffff_ffff_8100_1000)], &machine.code);
    println!("kernel: {:?} {:?}", clock.monotonic().since(before), kernel.held());
}

/// Without optimization, 1000 names are read in 30 ms, and found again in 1 ms.
#[test]
#[ignore = "it measures"]
fn a_hundred_thousand_functions_are_read() {
    let mut machine = Machine::new();
    let first = large(&machine, 100_000);
    let module = machine.module("/lib/large.so");
    let mut symbolizer = machine.symbolizer();
    let clock = Clock::system();
    let mut timed = |what: &str, frames: &[Frame]| {
        let before = clock.monotonic();
        let named = symbolizer.resolve(frames, &machine.code);
        let took = clock.monotonic().since(before);
        println!("{what}: {took:?}, {} bytes in use", symbolizer.bytes());
        named
    };
    let frame = |number| Frame::File { module, offset: first + number };
    let named = timed("the table and one name", &[frame(99_999)]);
    assert_eq!(shown(&named[0]), "function_with_a_usual_name_99999");
    let frames: Vec<Frame> = (0..1000).map(|number| frame(number * 97)).collect();
    timed("1000 names", &frames);
    timed("the same", &frames);
}
