//! Names that any user of the machine can choose, of programs, of their files and of cgroups, in each output of the service.

use std::collections::BTreeSet;
use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::folded::Folded;
use crate::support::program::{Program, Running};
use crate::support::service::{Service, get, get_binary, get_bytes, get_path};
use crate::support::{Feature, eventually, lacks};

/// Name of a program and of its file: control sequences of terminals, a line feed, and characters with a meaning in each format.
const PROGRAM: &str = "\u{1b}[2J\n\"<q7>';\\\u{7}";

/// Name of a cgroup: without a line feed, which the kernel rejects, and with a character that reverses the direction of text.
const CGROUP: &str = "\u{1b}[2J\u{202e}\"<q7>';\\\u{7}";

/// A part of the names that each output shows as it is.
const MARK: &str = "q7";

const PROTOBUF: &str =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

const FORMATS: [&str; 2] = ["text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"];

/// Asserts that the text has no command to a terminal, and no markup from the names.
fn is_inert(place: &str, kind: &str, text: &str) {
    let control = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None, "{place}: {text}");
    if kind.starts_with("text/html") || kind.starts_with("image/svg") {
        assert!(!text.contains("<q7>") && !text.contains('\u{202e}'), "{place}: {text}");
    }
    if kind.starts_with("application/json") {
        serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{place}: {error}: {text}"));
    }
}

/// Asserts the same of a binary format, which may contain any byte outside of its texts.
fn has_no_command(place: &str, bytes: &[u8]) {
    assert!(!bytes.windows(3).any(|part| part == b"\x1b[2"), "{place}");
    assert!(bytes.windows(MARK.len()).any(|part| part == MARK.as_bytes()), "{place} shows the name");
}

/// Requests a page, checks it, and returns it.
fn page(service: &Service, path: &str) -> String {
    let (kind, text) = get_path(&service.address, path);
    is_inert(path, &kind, &text);
    text
}

/// Returns the links of a page that contain a name.
fn links(page: &str) -> BTreeSet<String> {
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    links.map(|(link, _)| link.replace("&amp;", "&")).filter(|link| link.contains(MARK)).collect()
}

#[test]
fn names_of_programs_and_cgroups_are_inert_in_every_output() {
    if [Feature::Compiler, Feature::Software, Feature::Cgroup].into_iter().any(lacks) {
        return;
    }
    let cgroup = TestCgroup::new(CGROUP);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(PROGRAM);
    Program::compile_hot("hot", &[]).copy_to(&file);
    let mut program = Running::by(&mut std::process::Command::new(&file));
    cgroup.take(program.pid());
    program.told("spins 3600000");
    let mut service = Service::start(
        "collection: {interval: 1s, freshness: 0s}\n\
         counters: {os: {events: [task-clock], per: [cpu, cgroup, process]}}\n\
         processes: {by: [comm, exe]}\n\
         scheduler: {per: [host, cgroup, process]}\n\
         profiles: {cpu: {event: cpu-clock, frequency: 99}}\n",
    );
    eventually("the program is sampled", || page(&service, "/folded").contains(MARK).then_some(()));
    for accept in FORMATS {
        let (kind, text) = get(&service.address, accept);
        is_inert(accept, &kind, &text);
        assert!(text.matches(MARK).count() >= 2, "{accept}: {text}");
    }
    Exposition::parse(&get(&service.address, FORMATS[0]).1).unwrap();
    has_no_command("protobuf", &get_binary(&service.address, PROTOBUF));
    let mut pprof = Vec::new();
    let compressed = get_bytes(&service.address, "/debug/pprof/profile");
    MultiGzDecoder::new(&*compressed).read_to_end(&mut pprof).unwrap();
    has_no_command("pprof", &pprof);
    assert!(Folded::of(&service, "type=cpu").total() > 0.0, "each line has a number");
    for path in ["/flamegraph", "/flamegraph?format=svg", "/folded?by=cgroup"] {
        assert!(page(&service, path).contains(MARK), "{path} shows the name");
    }
    for path in
        ["/status", "/api/v1/status", "/api/v1/history", "/top", "/top?format=text", "/top?format=json"]
    {
        page(&service, path);
    }
    let subjects = eventually("the overview lists the cgroup and the program", || {
        let links = links(&page(&service, "/"));
        let has = |start: &str| links.iter().any(|link| link.starts_with(start));
        (has("/cgroup?") && has("/program?")).then_some(links)
    });
    let mut linked = BTreeSet::new();
    for link in &subjects {
        linked.extend(links(&page(&service, link)));
    }
    println!("{} pages of the names, with {} links", subjects.len(), linked.len());
    for link in linked.difference(&subjects) {
        page(&service, link);
    }
    is_inert("the log", "text/plain", &service.log());
}
