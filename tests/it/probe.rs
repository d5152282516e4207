//! `perf-exporter probe` and the output of `list` about fields, as a user runs them: on a simulated host, on programs compiled here, and on
//! the BTF of the running kernel.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use perf_exporter::config::{self, Config};
use perf_exporter::event::format::Format;
use perf_exporter::host::{Roots, read_text};
use perf_exporter::plan::configured_probes;
use perf_exporter::probe::install::Installer;
use serde_json::Value;

use crate::program::{Outcome, repository, run};

/// A host with kprobes and uprobes, whose probe lists are ordinary files. Definitions are appended to them.
struct Host(tempfile::TempDir);

const SYMBOLS: &str = "\
ffffffff81000100 T tcp_sendmsg
ffffffff81000140 t tcp_sendmsg_locked
ffffffff81000150 t _inner
ffffffff81000190 t shown
ffffffff81000200 t shown
ffffffff81000280 t do_int3
ffffffffc0000000 t nf_in\t[nf_conntrack]
";

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.write("proc/kallsyms", SYMBOLS);
        host.write("sys/kernel/debug/kprobes/blacklist", "0xffffffff81000280-0xffffffff81000290\tdo_int3\n");
        host.write("sys/kernel/tracing/kprobe_events", "");
        host.write("sys/kernel/tracing/uprobe_events", "");
        host.write("sys/bus/event_source/devices/kprobe/type", "8\n");
        fs::create_dir_all(host.path("sys/kernel/tracing/events")).unwrap();
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Returns the definitions of user probes written to the kernel.
    fn told(&self) -> String {
        read_text(&self.path("sys/kernel/tracing/uprobe_events")).unwrap()
    }

    /// Runs `perf-exporter probe` on this host.
    fn probe(&self, arguments: &[&str]) -> Outcome {
        let root = self.0.path().to_str().unwrap();
        run([&["--host-root", root, "probe"], arguments].concat())
    }

    fn list(&self, arguments: &[&str]) -> Outcome {
        let root = self.0.path().to_str().unwrap();
        run([&["--host-root", root, "list", "--no-open"], arguments].concat())
    }

    /// Adds the BTF of the running kernel, if it has BTF.
    fn has_types(&self) -> bool {
        let types = Path::new("/sys/kernel/btf");
        if !types.join("vmlinux").exists() {
            eprintln!("skipped: this kernel has no BTF");
            return false;
        }
        symlink(types, self.path("sys/kernel/btf")).unwrap();
        true
    }

    /// Adds a C program with a USDT probe.
    fn program(&self) -> &'static str {
        let source = repository("tests/data/programs/probed.c");
        let mut gcc = Command::new("gcc");
        assert!(gcc.arg("-O1").arg("-o").arg(self.path("probed")).arg(source).status().unwrap().success());
        "/probed"
    }
}

fn said(outcome: Outcome) -> String {
    assert_eq!((outcome.code, &*outcome.stderr), (0, ""), "{}", outcome.stdout);
    outcome.stdout
}

fn refused(outcome: &Outcome, code: i32, told: &str) {
    assert_eq!((outcome.code, &*outcome.stdout), (code, ""));
    assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Parses entries of a section as a configuration. Two entries may have the same name.
fn loaded<'y>(section: &str, entries: impl IntoIterator<Item = &'y str>) -> Config {
    let mut yaml = format!("{section}:\n");
    for (number, entry) in entries.into_iter().enumerate() {
        yaml += &format!("  e{number}_{}\n", entry.trim_start_matches('_'));
    }
    let (config, warnings) =
        config::load(yaml.as_bytes(), "f").unwrap_or_else(|error| panic!("{yaml}{error:?}"));
    assert_eq!(warnings, [], "{yaml}");
    config
}

/// Asserts that each entry is a valid configuration and can be resolved on the host.
fn assert_placed<'y>(host: &Host, entries: impl IntoIterator<Item = &'y str>) {
    let configured_probes = configured_probes(&loaded("probes", entries).traced, &[]);
    assert!(!configured_probes.is_empty());
    for look in Installer::new(&Roots::under(host.0.path()), 1).look(&configured_probes) {
        look.ways.unwrap_or_else(|refusal| panic!("{}: {refusal}", look.entry.1));
    }
}

#[test]
fn functions_of_the_kernel_are_shown_as_they_are_written() {
    let host = Host::new();
    let shown = said(host.probe(&[]));
    assert_eq!(
        shown,
        "nf_conntrack:nf_in\ntcp_sendmsg\ntcp_sendmsg_locked\n\n\
         In the configuration: probes: {nf_in: {kprobe: \"nf_conntrack:nf_in\"}}\n\
         Its variables: perf-exporter probe --vars nf_conntrack:nf_in\n"
    );
    assert!(said(host.probe(&["-F", "_in*"])).starts_with("_inner\n"));
    assert!(said(host.probe(&["-F", "nf_conntrack:*"])).starts_with("nf_conntrack:nf_in\n"));
    let all = rows(&said(host.probe(&["--output", "json"])));
    assert_placed(&host, all.iter().map(|row| row["yaml"].as_str().unwrap()));
}

#[test]
fn a_function_that_cannot_be_probed_is_told_why() {
    let host = Host::new();
    for (pattern, told) in [
        ("tcp_sendmgs", "did you mean tcp_sendmsg?; for a function of a program, add -x FILE"),
        ("shown", "the kernel has 2 functions named shown"),
        ("do_int3", "the kernel does not allow probes on do_int3"),
        ("x*", "no kernel function matches \"x*\""),
    ] {
        refused(&host.probe(&["-F", pattern]), 1, told);
    }
    fs::remove_file(host.path("sys/kernel/tracing/kprobe_events")).unwrap();
    let outcome = host.probe(&["--limit", "1"]);
    assert_eq!(
        outcome.stderr,
        format!(
            "perf-exporter: 2 more rows are not shown: give a PATTERN or a higher --limit\n\
             perf-exporter: this host can only count hits, without arguments and filters: absent: this kernel has no \
             kprobes: {} does not exist; use a kernel with CONFIG_KPROBE_EVENTS\n",
            host.path("sys/kernel/tracing/kprobe_events").display()
        )
    );
}

#[test]
fn what_a_function_of_the_kernel_takes_is_shown_by_its_types() {
    let host = Host::new();
    if !host.has_types() {
        return;
    }
    let shown = said(host.probe(&["--vars", "tcp_sendmsg"]));
    assert!(
        shown.starts_with("int tcp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size)\n"),
        "{shown}"
    );
    let taken = |name: &str| {
        let line = shown.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("{name}: {shown}")).split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(taken("size"), "$arg3:u64");
    assert_eq!(taken("$retval:s32"), "$retval:s32");
    let found = said(host.probe(&["--vars", "tcp_sendmsg", "skc_dport", "--output", "json"]));
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["variables"].as_array().unwrap().len(), 1);
    assert_eq!(found["variables"][0]["variable"], "sk->__sk_common.skc_dport");
    assert_eq!(found["variables"][0]["type"], "__be16");
    let yaml = found["yaml"].as_array().unwrap();
    assert_placed(&host, yaml.iter().map(|entry| entry.as_str().unwrap()));
    refused(&host.probe(&["--vars", "tcp_sendmsg", "nosuch"]), 1, "no variable matches \"nosuch\"");
}

/// Every variable that the command lists can be used as an argument of a probe.
#[test]
fn variables_that_are_shown_can_be_added() {
    let host = Host::new();
    if !host.has_types() {
        return;
    }
    let shown = said(host.probe(&["--vars", "tcp_sendmsg", "--output", "json"]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let mut tried = 0;
    for row in shown["variables"].as_array().unwrap() {
        let (variable, Some(taken)) = (row["variable"].as_str().unwrap(), row["taken"].as_str()) else {
            continue;
        };
        let place = if row["at_return"] == true { "tcp_sendmsg%return" } else { "tcp_sendmsg" };
        // More variables of the same kind would test nothing new.
        if tried < 12 {
            let line = said(host.probe(&["--dry-run", "--add", &format!("{place} x={variable}")]));
            assert!(line.ends_with(&format!("tcp_sendmsg x={taken}\n")), "{variable}: {line}");
            tried += 1;
        }
    }
    assert!(tried > 2, "{shown}");
}

#[test]
fn functions_and_markers_of_a_program_are_shown_as_they_are_written() {
    let host = Host::new();
    let program = host.program();
    let all = rows(&said(host.probe(&["-x", program, "--output", "json"])));
    let names = |kind: &str| -> Vec<&str> {
        all.iter().filter(|row| row["kind"] == kind).map(|row| row["probe"].as_str().unwrap()).collect()
    };
    assert_eq!(names("marker"), ["%live:step"]);
    assert!(names("function").contains(&"takes"), "{all:?}");
    assert_placed(&host, all.iter().map(|row| row["yaml"].as_str().unwrap()));
    let markers = said(host.probe(&["-x", program, "--markers"]));
    assert!(markers.starts_with("%live:step  ") && markers.lines().count() == 4, "{markers}");
    assert!(!said(host.probe(&["-x", program, "--funcs"])).contains('%'));
    let offset = all.iter().find(|row| row["name"] == "takes").unwrap()["offset"].as_u64().unwrap();
    for place in ["takes", "%live:step", "%step", &format!("{offset:#x}")] {
        let shown = said(host.probe(&["-x", program, "--vars", place, "--output", "json"]));
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert!(shown["variables"][0]["variable"] == "$arg1", "{shown}");
        let yaml = shown["yaml"].as_array().unwrap();
        assert_placed(&host, yaml.iter().map(|entry| entry.as_str().unwrap()));
    }
    refused(&host.probe(&["-x", program, "--vars", "0x1"]), 1, "offset 0x1 is not in the code of");
    refused(&host.probe(&["-x", program, "-F", "taeks"]), 1, "similar names: takes");
    refused(&host.probe(&["-x", program, "--vars", "%stop"]), 1, "has no USDT probe stop");
    refused(&host.probe(&["-x", "/nosuch"]), 1, "nosuch does not exist");
    refused(&host.probe(&["-x", "/proc/kallsyms"]), 1, "is not an ELF file");
}

#[test]
fn what_is_added_is_told_to_the_kernel_in_its_words() {
    let host = Host::new();
    let program = host.program();
    let request =
        ["-x", program, "--add", "takes size=%di:u64 $comm", "--add", "back=takes%return $retval:s64"];
    let dry = said(host.probe(&[&request[..], &["--dry-run"]].concat()));
    assert_eq!(host.told(), "");
    let done = said(host.probe(&request));
    assert_eq!(host.told(), dry.trim_end());
    let lines: Vec<&str> = dry.lines().collect();
    let path = host.path("probed");
    let place = lines[0].strip_prefix("p:perf_exporter/takes ").unwrap().split(' ').next().unwrap();
    assert!(place.starts_with(&format!("{}:0x", path.canonicalize().unwrap().display())), "{place}");
    assert_eq!(lines[0], format!("p:perf_exporter/takes {place} size=%di:u64 arg2=$comm"));
    assert_eq!(lines[1], format!("r:perf_exporter/back {place} arg1=$retval:s64"));
    assert!(done.contains("perf record -e perf_exporter:takes -a"), "{done}");
    let listed = rows(&said(host.probe(&["--list", "--output", "json"])));
    assert_eq!(listed.len(), 2);
    assert_eq!((&listed[1]["event"], &listed[1]["owner"]), (&"perf_exporter:back".into(), &"person".into()));
    let marker = said(host.probe(&["-x", program, "-n", "-a", "x=%sdt_live:step $arg2"]));
    // Location of the probe, and of its semaphore.
    assert!(marker.starts_with("p:perf_exporter/x ") && marker.contains("(0x"), "{marker}");
    assert!(marker.trim_end().ends_with(":s32"), "{marker}");
    let kernel = said(host.probe(&["-n", "-a", "nf_conntrack:nf_in+0x10 %si"]));
    assert_eq!(kernel, "p:perf_exporter/nf_in nf_conntrack:nf_in+16 arg1=%si\n");
}

#[test]
fn a_request_that_cannot_be_is_refused_and_the_others_are_made() {
    let host = Host::new();
    let program = host.program();
    for (request, told) in [
        ("takes:12", "this is a source line\n  takes:12\n  ^ source lines are not supported"),
        ("probe:x=takes", "probes are always added to the group perf_exporter"),
        ("takes $retval", "use a uretprobe"),
        ("", "the probe location is missing"),
    ] {
        refused(&host.probe(&["-x", program, "--add", request]), 2, told);
    }
    let outcome = host.probe(&["-x", program, "-a", "taeks", "-a", "hit", "-a", "hit %nosuch"]);
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.stderr.contains("--add taeks: absent: ") && outcome.stderr.contains("similar names: takes")
    );
    assert!(outcome.stderr.contains("the kernel has no register %nosuch"), "{}", outcome.stderr);
    assert_eq!(host.told().lines().count(), 1);
    refused(&host.probe(&["--add", "do_int3"]), 1, "the kernel does not allow a probe in do_int3");
    refused(&host.probe(&["--dry-run"]), 2, "only valid with --add or --del");
    refused(
        &host.probe(&["--in", "moon", "-x", "/x"]),
        2,
        "expected pid:4711 or cgroup:/system.slice/nginx.service",
    );
    refused(&host.probe(&["/bin/sh"]), 2, "/bin/sh is a file: use -x FILE");
    refused(&host.probe(&["--add", "x", "--list"]), 2, "cannot be used with");
}

#[test]
fn only_what_a_person_added_is_removed() {
    let host = Host::new();
    let probes = "p:perf_exporter/one /bin/sh:0x0000000000001000 a=%di\n\
                  p:perf_exporter/other /bin/sh:0x0000000000002000\n\
                  p:perf_exporter_7_70/mine /bin/sh:0x0000000000001000\n\
                  r:probe_libc/free /lib/libc.so.6:0x0000000000000010(0x20)\n";
    host.write("sys/kernel/tracing/uprobe_events", probes);
    let listed = said(host.probe(&["-l"]));
    assert!(listed.contains("uprobe    /bin/sh:0x1000 with a=%di\n"), "{listed}");
    assert!(
        listed.contains("probe_libc:free                          uretprobe /lib/libc.so.6:0x10(0x20)\n")
    );
    assert!(listed.contains("its state is not visible from this PID namespace"), "{listed}");
    for (event, told) in [
        (
            "free",
            "probe_libc:free was not created by perf-exporter; for a probe of perf, give its group: --del probe_libc:free",
        ),
        ("perf_exporter_*:*", "perf_exporter_7_70:mine belongs to an exporter"),
        ("mine", "perf_exporter_7_70:mine belongs to an exporter"),
        ("nosuch", "the group perf_exporter has no such probe"),
        ("[", "is not a pattern"),
    ] {
        refused(&host.probe(&["--del", event]), 1, told);
    }
    assert_eq!(host.told(), probes.trim_end());
    assert_eq!(said(host.probe(&["-n", "-d", "o*"])), "-:perf_exporter/one\n-:perf_exporter/other\n");
    assert_eq!(host.told(), probes.trim_end());
    assert_eq!(said(host.probe(&["-d", "perf_exporter:o*e"])), "Removed perf_exporter:one\n");
    assert_eq!(host.told(), format!("{probes}-:perf_exporter/one"));
    // A group of perf, as for perf probe.
    assert_eq!(said(host.probe(&["-n", "-d", "probe_libc:*"])), "-:probe_libc/free\n");
    assert_eq!(said(host.probe(&["-n", "-d", "p*_libc:f*"])), "-:probe_libc/free\n");
}

#[test]
fn words_without_an_option_are_one_probe_to_add() {
    let host = Host::new();
    let program = host.program();
    let by_option = said(host.probe(&["-x", program, "-n", "--add", "takes size=%di:u64"]));
    assert_eq!(said(host.probe(&["-x", program, "-n", "takes", "size=%di:u64"])), by_option);
    let done = said(host.probe(&["-x", program, "takes"]));
    assert!(done.starts_with("Added perf_exporter:takes: p:perf_exporter/takes "), "{done}");
    assert!(host.told().starts_with("p:perf_exporter/takes "), "{}", host.told());
    refused(&host.probe(&["-x", program, "taeks"]), 1, "similar names: takes");
    refused(&host.probe(&["-x", program, "ta*"]), 2, "to list the functions that match, write -F 'ta*'");
}

/// Adds a C program with debug information, which has `tests/data/programs/typed.c` as its source.
fn typed(host: &Host) -> &'static str {
    let source = repository("tests/data/programs/typed.c");
    fs::create_dir_all(host.path("src")).unwrap();
    fs::copy(&source, host.path("src/typed.c")).unwrap();
    let dir = host.path("src").canonicalize().unwrap();
    let mut gcc = Command::new("gcc");
    gcc.current_dir(&dir).args(["-g", "-O1", "-o", "../typed", "typed.c"]);
    gcc.arg(format!("-fdebug-prefix-map={}=/src", dir.display()));
    assert!(gcc.status().unwrap().success());
    "/typed"
}

#[test]
fn variables_of_a_program_have_the_types_of_its_source() {
    let host = Host::new();
    let program = typed(&host);
    let shown = said(host.probe(&["-x", program, "-V", "add"]));
    assert!(shown.starts_with("int add(int n, const char *name, struct point *p, double d)\n"), "{shown}");
    let row = |name: &str| -> Vec<String> {
        let mut found = shown.lines().filter(|line| line.split_whitespace().next() == Some(name));
        found
            .next()
            .unwrap()
            .split("  ")
            .map(|cell| cell.trim().to_owned())
            .filter(|cell| !cell.is_empty())
            .collect()
    };
    assert_eq!(row("n")[..2], ["n", "int"]);
    assert_eq!(row("name")[..2], ["name", "const char *"]);
    assert_eq!(row("d")[..2], ["d", "double"]);
    assert!(!shown.contains("local"), "{shown}");
    let range = said(host.probe(&["-x", program, "-V", "add", "--range"]));
    assert!(range.contains("[VAL] @<add+[0-"), "{range}");
    assert!(range.lines().any(|line| line.trim_start().starts_with("local  ")), "{range}");
    refused(&host.probe(&["-x", host.program(), "-V", "takes", "--range"]), 1, "compile it with -g");
}

#[test]
fn lines_of_a_program_are_numbered_where_a_statement_begins() {
    let host = Host::new();
    let program = typed(&host);
    let shown = said(host.probe(&["-x", program, "-L", "add"]));
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("<add@/") && lines[0].ends_with("typed.c:0>"), "{shown}");
    assert!(lines[1].starts_with("      0  __attribute__((noinline)) int add("), "{shown}");
    assert_eq!(lines[2], "         {");
    let part = said(host.probe(&["-x", program, "-L", "typed.c:4-6"]));
    assert_eq!(part.lines().count(), 4, "{part}");
    refused(&host.probe(&["-x", program, "-L", "nosuch"]), 1, "nosuch");
    refused(&host.probe(&["-x", program, "-L", "absent.c:1-2"]), 1, "was not compiled from absent.c");
    refused(&host.probe(&["-x", host.program(), "-L", "takes"]), 1, "has no debug information");
}

/// Strips the program and installs its debug file as a distribution does: compressed, by its build id.
fn separate(host: &Host, program: &str) {
    let path = host.path(program.trim_start_matches('/'));
    let debug = path.with_extension("debug");
    let objcopy = |arguments: &[&str], from: &Path, to: &Path| {
        assert!(Command::new("objcopy").args(arguments).args([from, to]).status().unwrap().success());
    };
    objcopy(&["--only-keep-debug", "--compress-debug-sections=zlib"], &path, &debug);
    objcopy(&["--strip-all"], &path, &path);
    let notes = Command::new("readelf").arg("-n").arg(&path).output().unwrap();
    let notes = String::from_utf8(notes.stdout).unwrap();
    let id = notes.split("Build ID: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let dir = host.path("usr/lib/debug/.build-id").join(&id[..2]);
    fs::create_dir_all(&dir).unwrap();
    fs::rename(debug, dir.join(format!("{}.debug", &id[2..]))).unwrap();
}

#[test]
fn debug_information_in_a_separate_file_is_that_of_the_program() {
    let host = Host::new();
    let program = typed(&host);
    let shown = || ["-V", "-L", "-n", "-F"].map(|option| said(host.probe(&["-x", program, option, "add"])));
    let whole = shown();
    separate(&host, program);
    assert_eq!(shown(), whole);
    fs::remove_dir_all(host.path("usr/lib/debug/.build-id")).unwrap();
    refused(
        &host.probe(&["-x", program, "-L", "add"]),
        1,
        "install its debug file (/usr/lib/debug/.build-id/",
    );
}

#[test]
fn each_wrong_argument_of_a_definition_has_its_message() {
    let host = Host::new();
    let program = host.program();
    let syntax = host.probe(&["-x", program, "takes", "a=%di", "b=", "c=+0(%si:u8"]);
    refused(&syntax, 2, "\n  b=\n");
    refused(&syntax, 2, "\n  c=+0(%si:u8\n");
    let meaning = host.probe(&["-x", program, "takes", "a=%zz", "b=%di", "c=%yy"]);
    refused(&meaning, 1, "\"a=%zz\"");
    refused(&meaning, 1, "\"c=%yy\"");
}

#[test]
fn no_probes_are_told_from_no_place_for_them() {
    let host = Host::new();
    assert_eq!(said(host.probe(&["--list"])), "no probes\n");
    fs::remove_dir_all(host.path("sys/kernel/tracing")).unwrap();
    fs::create_dir(host.path("sys/kernel/tracing")).unwrap();
    refused(&host.probe(&["--list"]), 1, "tracefs is not mounted");
}

/// Adds the tracepoints under `tests/data/formats` to a host.
fn with_formats(host: &Host) -> Vec<String> {
    let names = perf_exporter::host::list(&repository("tests/data/formats")).unwrap();
    for name in &names {
        let text = read_text(&repository("tests/data/formats").join(name)).unwrap();
        let dir = format!("sys/kernel/tracing/events/{}", name.replace(':', "/"));
        host.write(&format!("{dir}/format"), &text);
        host.write(&format!("{dir}/id"), &Format::parse(&text).unwrap().id().to_string());
    }
    names
}

#[test]
fn the_fields_of_a_tracepoint_are_shown_with_what_a_label_shows() {
    let host = Host::new();
    with_formats(&host);
    let shown = said(host.list(&["irq:softirq_entry"]));
    let fields = shown.split_once("\n\n").unwrap().1;
    assert_eq!(
        fields,
        "In the configuration: counters: {mine: {events: [\"irq:softirq_entry\"]}}\n\n\
         Fields, declarations and the content of a label:\n  \
           vec                      unsigned int vec                     names: HI, TIMER, NET_TX, NET_RX, BLOCK, \
         IRQ_POLL, TASKLET, SCHED, …\n\n\
         With labels, in the configuration: tracepoints: {softirq_entry: {event: \"irq:softirq_entry\", labels: [vec]}}\n"
    );
    refused(&host.list(&["irq:softirq_enrty"]), 1, "did you mean irq:softirq_entry?");
}

#[test]
fn every_tracepoint_is_shown_with_an_entry_that_the_configuration_takes() {
    let host = Host::new();
    for name in with_formats(&host) {
        let row = rows(&said(host.list(&[&name, "--output", "json"])));
        let row = row.iter().find(|row| row["event"] == *name).unwrap();
        assert!(!row["records"]["fields"].as_array().unwrap().is_empty(), "{name}");
        let entry = row["records"]["yaml"].as_str().unwrap();
        assert_eq!(loaded("tracepoints", [entry]).traced[0].labels.len(), 1, "{name}: {entry}");
    }
}
