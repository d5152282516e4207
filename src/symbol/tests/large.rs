//! Perf maps that are larger than one round of reading, and than the memory limit.

use super::*;

/// Returns a perf map as written by node, with functions of 64 bytes from 0 on.
fn node_map(functions: u64) -> String {
    let line =
        |number: u64| format!("{:x} 40 LazyCompile:*f{number} /app/{}.js:1\n", number * 64, "x".repeat(100));
    (0..functions).map(line).collect()
}

#[test]
fn a_large_list_is_read_in_rounds_and_says_so_until_its_end() {
    let machine = Machine::new();
    machine.write("proc/7/root/tmp/perf-1.map", node_map(30_000));
    let mut symbolizer = machine.symbolizer();
    let mut ask = |function: u64| ask(&mut symbolizer, &machine.code, memory(function * 64));
    assert!(ask(0).starts_with("LazyCompile:*f0 "));
    assert_eq!(ask(29_999), "[anon] 0x1d4bc0");
    let mut rounds = 1;
    while !ask(29_999).starts_with("LazyCompile:*f29999 ") {
        machine.clock.advance(Duration::from_millis(100));
        rounds += 1;
        assert!(rounds < 100);
    }
    assert!(rounds > 3, "{rounds}");
    assert!(symbolizer.accounts().of(Reason::MapBehind) >= 3);
    assert_eq!(symbolizer.accounts().of(Reason::NotInMap), 0);
}

#[test]
fn the_list_of_a_process_that_has_ended_is_read_to_its_end_or_given_up() {
    let machine = Machine::new();
    for (functions, is_read) in [(30_000, true), (200_000, false)] {
        machine.write("proc/7/root/tmp/perf-1.map", node_map(functions));
        let mut symbolizer = machine.symbolizer();
        symbolizer.notice(PROCESS, &machine.code);
        symbolizer.end(PROCESS);
        for _ in 0..50 {
            machine.clock.advance(Duration::from_millis(101));
            symbolizer.notice(ProcessId(1), &machine.code);
        }
        let found = ask(&mut symbolizer, &machine.code, memory((functions - 1) * 64));
        assert_eq!(found.starts_with("LazyCompile:"), is_read, "{functions}: {found}");
        assert_eq!(symbolizer.accounts().of(Reason::MapBehind), u64::from(!is_read));
    }
}

#[test]
fn functions_that_were_dropped_for_their_number_are_counted_as_such() {
    let machine = Machine::new();
    machine.write("proc/7/root/tmp/perf-1.map", node_map(5_000));
    let mut symbolizer = machine.symbolizer_with(Options { memory: 1 << 20, ..Options::default() });
    assert!(ask(&mut symbolizer, &machine.code, memory(4_999 * 64)).starts_with("LazyCompile:*f4999 "));
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0)), "[anon] 0x0");
    assert_eq!(symbolizer.accounts().of(Reason::MapFull), 1);
    assert!(symbolizer.accounts().dropped > 3_000);
}
