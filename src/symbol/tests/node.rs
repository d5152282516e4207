//! Functions that node reports for the code that it generates.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use super::*;

/// Compiles a function with a known name, and waits until its standard input is closed.
const SCRIPT: &str = "
function looked_for(n) { let sum = 0; for (let i = 0; i < n; i++) sum += Math.sqrt(i) % 7; return sum; }
let all = 0;
for (let i = 0; i < 3000; i++) all += looked_for(1000);
console.log('ready', all);
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
";

struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
        // A process that is already gone is fine.
        fs::remove_file(format!("/tmp/perf-{}.map", self.0.id())).ok();
    }
}

fn node(dir: &Path) -> Option<Node> {
    let mut command = Command::new("node");
    command.args(["--perf-basic-prof", "--perf-prof", "-e", SCRIPT]).current_dir(dir);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready"), "{line}");
    Some(Node(child))
}

#[test]
fn functions_of_node_have_the_names_of_its_list_and_of_its_jitdump() {
    let dir = tempfile::tempdir().unwrap();
    let Some(node) = node(dir.path()) else { return println!("skipped: node is not installed") };
    let pid = node.0.id();
    let list = crate::host::read_text(Path::new(&format!("/tmp/perf-{pid}.map"))).unwrap();
    let entry = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let start = words.next()?.trim_start_matches("0x");
        Some((u64::from_str_radix(start, 16).ok()?, words.nth(1)?.to_owned()))
    };
    let entries: Vec<(u64, String)> =
        list.lines().filter(|line| line.contains("looked_for")).filter_map(entry).collect();
    let (start, name) = entries.last().unwrap();

    let mut machine = Machine::new();
    machine.code.processes = vec![Process { pid, own_pid: pid }];
    let roots = Roots::default();
    let resolve = |machine: &Machine, start: u64| {
        let mut symbolizer = Symbolizer::new(&roots, machine.clock.clone(), Options::default());
        let mut named = symbolizer.resolve(&[memory(start + 4)], &machine.code);
        // Large files are read in rounds.
        for _ in 0..300 {
            if named[0].reason != Some(Reason::MapBehind) {
                break;
            }
            machine.clock.advance(Duration::from_millis(100));
            named = symbolizer.resolve(&[memory(start + 4)], &machine.code);
        }
        // node may be writing a line at this moment.
        assert!(symbolizer.accounts().malformed <= 1 && symbolizer.accounts().dropped == 0);
        println!("{} bytes in use: {:?}", symbolizer.bytes(), named[0]);
        Arc::clone(&named[0])
    };
    assert_eq!(shown(&resolve(&machine, *start)), *name);

    // Now without the perf map.
    fs::remove_file(format!("/tmp/perf-{pid}.map")).unwrap();
    let path = dir.path().join(format!("jit-{pid}.dump"));
    let path = path.to_str().unwrap();
    machine.add(
        path,
        Files::here(&roots).open(&Root::Host, path, None).map_err(|error| error.to_string().into()),
    );
    // node writes the two files at different times, so that the newest function may be in only one of them.
    let named: Vec<_> = entries.iter().map(|(start, _)| resolve(&machine, *start)).collect();
    assert!(named.iter().any(|named| shown(named).contains("looked_for")), "{named:?}");
}
