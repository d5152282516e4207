use std::fs;
use std::path::Path;

use super::*;
use crate::health::Cause;
use crate::host::Roots;
use crate::probe::argument::Argument;
use crate::probe::{Location, ProbeKind, Within};

/// Returns a host with these files, in a temporary directory.
fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::under(dir.path());
    for (path, content) in files {
        let (root, path) = path.split_once('/').unwrap();
        let root = [("proc", &roots.proc), ("sys", &roots.sys), ("tracing", &roots.tracing)]
            .into_iter()
            .find_map(|(name, dir)| (name == root).then_some(dir));
        let path = root.unwrap().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, content).unwrap();
    }
    (dir, roots)
}

const SYMBOLS: (&str, &str) =
    ("proc/kallsyms", "ffffffff81000100 T tcp_sendmsg\nffffffff81000200 T tcp_recvmsg\n");
const FUNCTION: (&str, &str) = ("tracing/events/ftrace/function/id", "1\n");

fn configured(location: &str, arguments: &[&str]) -> ConfiguredProbe {
    let arguments = arguments.iter().map(|text| Argument::parse(text).unwrap()).collect();
    let location = Location::parse(ProbeKind::Kprobe, location).unwrap();
    ConfiguredProbe {
        section: "probes",
        name: "sends".into(),
        definition: Definition { location, within: Within::default(), arguments },
        timed: false,
        filtered: false,
    }
}

fn placed(roots: &Roots, configured: &ConfiguredProbe) -> Result<Vec<Placed>, Refusal> {
    Installer::new(roots, 1).place(std::slice::from_ref(configured)).remove(&configured.entry()).unwrap()
}

#[test]
fn without_arguments_a_kprobe_is_an_event_of_the_pmu() {
    let (_dir, roots) = host(&[SYMBOLS, FUNCTION, ("sys/bus/event_source/devices/kprobe/type", "8\n")]);
    let placed = placed(&roots, &configured("tcp_sendmsg+4", &[])).unwrap();
    let event = &placed[0].event;
    assert_eq!((event.selector.kind, event.filter.clone(), &placed[0].format), (8, None, &None));
    let point = event.probe.as_ref().unwrap();
    assert_eq!((point.place.to_str(), point.offset), (Ok("tcp_sendmsg"), 4));
}

#[test]
fn where_there_are_no_kprobes_a_function_is_counted_by_function_tracing() {
    let functions = ("tracing/available_filter_functions", "tcp_sendmsg\n");
    for files in [&[SYMBOLS, FUNCTION, functions][..], &[SYMBOLS, FUNCTION]] {
        let (_dir, roots) = host(files);
        let placed = placed(&roots, &configured("tcp_sendmsg", &[])).unwrap();
        let event = &placed[0].event;
        assert_eq!((event.selector.kind, event.selector.config[0]), (2, 1));
        assert_eq!(event.filter.as_deref(), Some("ip == tcp_sendmsg"));
        assert_eq!(placed.len(), 1);
    }
}

#[test]
fn what_function_tracing_cannot_do_is_refused_for_want_of_kprobes() {
    let functions = ("tracing/available_filter_functions", "tcp_recvmsg\n");
    let (_dir, roots) = host(&[SYMBOLS, FUNCTION, functions]);
    let no_kprobes = "this kernel has no kprobes";
    for (configured, says) in [
        (configured("tcp_sendmsg", &[]), "its function tracing does not support the function"),
        (configured("tcp_recvmsg", &["n=%si"]), "kprobe_events does not exist"),
        (configured("tcp_recvmsg+4", &[]), "kprobe_events does not exist"),
        (
            ConfiguredProbe { filtered: true, ..configured("tcp_recvmsg", &[]) },
            "kprobe_events does not exist",
        ),
        (ConfiguredProbe { timed: true, ..configured("tcp_recvmsg", &[]) }, "kprobe_events does not exist"),
    ] {
        let refusal = placed(&roots, &configured).unwrap_err();
        assert_eq!(refusal.cause, Cause::Absent, "{refusal:?}");
        assert!(refusal.reason.contains(no_kprobes) && refusal.reason.contains(says), "{refusal:?}");
    }
    let (_dir, roots) = host(&[SYMBOLS, ("tracing/events/sched/enable", "")]);
    let refusal = placed(&roots, &configured("tcp_sendmsg", &[])).unwrap_err();
    assert!(
        refusal.remedy.as_deref().is_some_and(|text| text.contains("CONFIG_KPROBE_EVENTS")),
        "{refusal:?}"
    );
}

#[test]
fn many_probes_are_told_apart_by_one_look_at_the_symbols() {
    let (_dir, roots) = host(&[
        SYMBOLS,
        ("sys/bus/event_source/devices/kprobe/type", "8\n"),
        ("sys/kernel/debug/kprobes/blacklist", "0x01-0x02\ttcp_recvmsg\n"),
    ]);
    let configured_probes = ["tcp_sendmsg", "tcp_sendmsgs", "tcp_recvmsg", "module:anything"]
        .map(|function| ConfiguredProbe { name: function.into(), ..configured(function, &[]) });
    let placements = Installer::new(&roots, 1).place(&configured_probes);
    let said = |name: &str| {
        let placed = &placements[&("probes", name.into())];
        placed.as_ref().map(Vec::len).map_err(|refusal| &*refusal.reason)
    };
    assert_eq!(said("tcp_sendmsg"), Ok(1));
    assert_eq!(
        said("tcp_sendmsgs"),
        Err("the kernel has no function tcp_sendmsgs; did you mean tcp_sendmsg?")
    );
    assert!(said("tcp_recvmsg").unwrap_err().contains("does not allow a probe"));
    assert_eq!(said("module:anything"), Ok(1), "the kernel answers when it is opened");
}
