//! Selections of cgroups and processes: patterns that cannot be compiled, and those that can never match.

use std::collections::BTreeSet;

use super::decode::At;
use super::file::{Cgroups, DEPTH_MAX, PID_MAX, ProcessRule, Processes};
use super::problem::shown;
use super::report::Report;
use super::value::List;
use crate::target::{self, Attribution, CgroupSelection, Glob, ProcessSelection};

/// The bytes of a command name that the kernel keeps (`TASK_COMM_LEN` less the final NUL).
const COMM_LEN: usize = 15;

/// The most patterns or rules in one list: each cgroup and process that appears is held against all of them.
const PATTERN_LIMIT: usize = 256;
/// The longest pattern, in bytes; the kernel's paths end at 4096, and nobody writes them out.
const PATTERN_LEN: usize = 1024;

/// Whom entries count for that say nothing about it themselves.
#[derive(Debug)]
pub(super) struct Selections {
    pub(super) cgroups: CgroupSelection,
    pub(super) processes: ProcessSelection,
}

impl Selections {
    /// Nobody.
    pub(super) fn none() -> Self {
        Self {
            cgroups: CgroupSelection {
                include: vec![],
                exclude: vec![],
                depth: None,
                descendants: false,
                attribution: Attribution::Auto,
            },
            processes: ProcessSelection {
                include: vec![],
                exclude: vec![],
                by: vec![],
                attribution: Attribution::Auto,
            },
        }
    }
}

/// A number from 1 to `max`.
pub(super) fn number<N: TryFrom<u64>>(
    written: Option<&At<u64>>,
    max: u64,
    report: &mut Report<'_>,
) -> Option<N> {
    let At { node, value } = written?;
    if !(1..=max).contains(value) {
        report.error(*node, format!("{value} is not between 1 and {max}"), None);
    }
    N::try_from(*value).ok()
}

/// The selection of cgroups; what is not written is as in `base`.
pub(super) fn cgroups(
    written: Option<&At<Cgroups>>,
    base: &CgroupSelection,
    report: &mut Report<'_>,
) -> CgroupSelection {
    let Some(At { value: Cgroups { include, exclude, depth, descendants, attribution }, .. }) = written
    else {
        return base.clone();
    };
    let hint = "to count for none, take `cgroup` out of every `per`";
    let (include, exclude) = patterns(include.as_ref(), exclude.as_ref(), hint, report);
    CgroupSelection {
        include: include.unwrap_or_else(|| base.include.clone()),
        exclude: exclude.unwrap_or_else(|| base.exclude.clone()),
        depth: number(depth.as_ref(), DEPTH_MAX, report).or(base.depth),
        descendants: descendants.map_or(base.descendants, |at| at.value),
        attribution: attribution.map_or(base.attribution, |at| at.value),
    }
}

/// The patterns of cgroups that are written. `hint` says what to write for none.
pub(super) fn patterns(
    include: Option<&At<List<String>>>,
    exclude: Option<&At<List<String>>>,
    hint: &str,
    report: &mut Report<'_>,
) -> (Option<Vec<Glob>>, Option<Vec<Glob>>) {
    not_empty(include, "selects no cgroup", hint, report);
    shadowed(include, exclude, report);
    let mut globs = |patterns: &At<List<String>>| -> Vec<Glob> {
        bounded(patterns, report).iter().filter_map(|pattern| path(pattern, Path::Cgroup, report)).collect()
    };
    (include.map(&mut globs), exclude.map(&mut globs))
}

/// The rules for processes that are written. `hint` says what to write for none.
pub(super) fn rules(
    include: Option<&At<List<ProcessRule>>>,
    exclude: Option<&At<List<ProcessRule>>>,
    hint: &str,
    report: &mut Report<'_>,
) -> (Option<Vec<target::ProcessRule>>, Option<Vec<target::ProcessRule>>) {
    not_empty(include, "selects no process", hint, report);
    let mut rules = |list: &At<List<ProcessRule>>| -> Vec<target::ProcessRule> {
        bounded(list, report).iter().map(|rule| process_rule(rule, report)).collect()
    };
    (include.map(&mut rules), exclude.map(&mut rules))
}

/// Patterns that `exclude` takes back.
fn shadowed(include: Option<&At<List<String>>>, exclude: Option<&At<List<String>>>, report: &mut Report<'_>) {
    let Some(exclude) = exclude else { return };
    for pattern in exclude.iter() {
        if matches!(&*pattern.value, "**" | "/**") {
            report.error(pattern.node, "this excludes every cgroup", Some("leave it out".into()));
        }
    }
    let excluded: BTreeSet<&str> = exclude.iter().map(|pattern| &*pattern.value).collect();
    for pattern in include.map(|at| &at.value[..]).unwrap_or_default() {
        if excluded.contains(&*pattern.value) {
            let message = format!("{} is in `exclude` too, which is stronger", shown(pattern));
            report.warning(pattern.node, message, Some("leave it out of one of them".into()));
        }
    }
}

/// The selection of processes; what is not written is as in `base`.
pub(super) fn processes(
    written: Option<&At<Processes>>,
    base: &ProcessSelection,
    report: &mut Report<'_>,
) -> ProcessSelection {
    let Some(At { value: Processes { include, exclude, by, attribution }, .. }) = written else {
        return base.clone();
    };
    let hint = "to count for none, take `process` out of every `per`";
    not_empty(by.as_ref(), "leaves no label to tell series apart", "write `by: comm`", report);
    let (include, exclude) = rules(include.as_ref(), exclude.as_ref(), hint, report);
    ProcessSelection {
        include: include.unwrap_or_else(|| base.include.clone()),
        exclude: exclude.unwrap_or_else(|| base.exclude.clone()),
        by: by.as_ref().map_or_else(|| base.by.clone(), |by| once(by, report)),
        attribution: attribution.map_or(base.attribution, |at| at.value),
    }
}

/// The values without repetitions, which are reported.
pub(super) fn once<T: Copy + PartialEq>(list: &[At<T>], report: &mut Report<'_>) -> Vec<T> {
    let mut values = Vec::new();
    for At { node, value } in list {
        if values.contains(value) {
            report.warning(*node, "this stands in the list twice", Some("leave one out".into()));
        } else {
            values.push(*value);
        }
    }
    values
}

/// Reports a list without items, unless it has none because they were refused.
pub(super) fn not_empty<T>(list: Option<&At<List<T>>>, so: &str, hint: &str, report: &mut Report<'_>) {
    if let Some(list) = list.filter(|list| list.is_empty() && !report.blames(list.node)) {
        report.error(list.node, format!("an empty list {so}"), Some(hint.into()));
    }
}

/// The items of a list of patterns that are looked at.
fn bounded<'l, T>(list: &'l At<List<T>>, report: &mut Report<'_>) -> &'l [At<T>] {
    if list.len() > PATTERN_LIMIT {
        let message = format!("{} patterns, and at most {PATTERN_LIMIT} are taken", list.len());
        report.error(list.node, message, Some("use wider ones: `*`, `**`, {a,b}".into()));
    }
    list.get(..PATTERN_LIMIT).unwrap_or(list)
}

fn process_rule(rule: &At<ProcessRule>, report: &mut Report<'_>) -> target::ProcessRule {
    let At { node, value: ProcessRule { comm: name, exe, cgroup, pid, kernel } } = rule;
    let conditions = name.is_some() || exe.is_some() || cgroup.is_some() || pid.is_some() || kernel.is_some();
    if !conditions && !report.blames(*node) {
        let hint = "for every process write {comm: \"**\"}; otherwise give comm, exe, cgroup, pid or kernel";
        report.error(*node, "a rule without conditions", Some(hint.into()));
    }
    if let (Some(exe), Some(At { value: true, .. })) = (exe, kernel) {
        let message = "this never matches beside `kernel: true`: threads of the kernel have no executable";
        report.error(exe.node, message, Some("leave out one of the two".into()));
    }
    target::ProcessRule {
        comm: name.as_ref().and_then(|pattern| comm(pattern, report)),
        exe: exe.as_ref().and_then(|pattern| path(pattern, Path::Exe, report)),
        cgroup: cgroup.as_ref().and_then(|pattern| path(pattern, Path::Cgroup, report)),
        pid: number(pid.as_ref(), PID_MAX, report),
        kernel: kernel.map(|at| at.value),
    }
}

/// What a pattern of paths is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Cgroup,
    Exe,
}

/// A pattern of absolute paths.
fn path(pattern: &At<String>, of: Path, report: &mut Report<'_>) -> Option<Glob> {
    let text = &*pattern.value;
    let what = if of == Path::Cgroup { "paths of cgroups" } else { "paths of executables" };
    let mounted = text.strip_prefix("/sys/fs/cgroup").filter(|_| of == Path::Cgroup);
    let rooted = text.starts_with(['/', '{']) || text.starts_with("**/") || text == "**";
    let (message, hint) = if let Some(below) = mounted {
        let below = below.strip_prefix("/unified").unwrap_or(below);
        let below = if below.is_empty() { "/" } else { below };
        (
            format!("{} never matches: {what} begin below the mount point", shown(text)),
            format!("write `{below}`"),
        )
    } else if text.is_empty() {
        ("an empty pattern matches nothing".to_owned(), "leave it out".to_owned())
    } else if !rooted {
        let bare = text.trim_start_matches('*').trim_end_matches('/');
        let better =
            if text.starts_with('*') { format!("`**/*{bare}`") } else { format!("`/{bare}` or `**/{bare}`") };
        (format!("{} never matches: {what} begin with a slash", shown(text)), format!("write {better}"))
    } else if text.len() > 1 && text.ends_with('/') {
        let better = text.trim_end_matches('/');
        let message = format!("{} never matches: {what} do not end with a slash", shown(text));
        (message, format!("write `{better}`, or `{better}/**` for what is below it"))
    } else {
        return glob(pattern, report);
    };
    report.error(pattern.node, message, Some(hint));
    None
}

/// A pattern of command names.
fn comm(pattern: &At<String>, report: &mut Report<'_>) -> Option<Glob> {
    let text = &*pattern.value;
    let (message, hint) = if text.is_empty() {
        ("an empty pattern matches nothing".to_owned(), "leave it out".to_owned())
    } else if text.starts_with('/') {
        let message = format!("{} is a path, and command names have none", shown(text));
        (message, format!("write `exe: {text}`"))
    } else if shortest_match(text) > COMM_LEN {
        let message =
            format!("{} never matches: the kernel cuts command names to {COMM_LEN} bytes", shown(text));
        let fits = text.char_indices().take_while(|(at, c)| at + c.len_utf8() <= COMM_LEN);
        let cut: String = fits.map(|(_, c)| c).collect();
        let hint = if cut.contains(['*', '?']) { "shorten it".to_owned() } else { format!("write `{cut}`") };
        (message, hint)
    } else {
        return glob(pattern, report);
    };
    report.error(pattern.node, message, Some(hint));
    None
}

/// The length in bytes of the shortest name that a pattern can match; 0 if it holds alternatives, which are not
/// looked into.
fn shortest_match(pattern: &str) -> usize {
    if pattern.contains(['[', '{']) { 0 } else { pattern.len() - pattern.matches('*').count() }
}

fn glob(pattern: &At<String>, report: &mut Report<'_>) -> Option<Glob> {
    if pattern.len() > PATTERN_LEN {
        let message = format!("the pattern has {} bytes, and at most {PATTERN_LEN} are taken", pattern.len());
        report.error(pattern.node, message, Some("use a shorter one".into()));
        return None;
    }
    Glob::new(pattern)
        .inspect_err(|error| {
            let hint = "close every [ and {; a bracket that is meant as such is written [[]";
            report.error(pattern.node, error.to_string(), Some(hint.into()));
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::tests::{good, report};
    use crate::target::{Attribution, Targets};

    /// The report about one pattern of `cgroups.include`, without its place.
    fn cgroup(pattern: &str) -> String {
        report(&format!("cgroups: {{include: ['{pattern}']}}")).replace("1:21: cgroups.include[0]: ", "")
    }

    /// The report about one rule of `processes.include`, without its place.
    fn rule(rule: &str) -> String {
        let report = report(&format!("processes: {{include: {rule}}}"));
        report.split_once(": processes.include").map(|(_, text)| text.to_owned()).unwrap_or_default()
    }

    #[test]
    fn patterns_of_paths_that_never_match_are_errors() {
        for (pattern, better) in [
            ("system.slice/*", "begin with a slash; write `/system.slice/*` or `**/system.slice/*`"),
            ("*.service", "begin with a slash; write `**/*.service`"),
            ("**.service", "begin with a slash; write `**/*.service`"),
            (
                "/system.slice/",
                "do not end with a slash; write `/system.slice`, or `/system.slice/**` for what is below it",
            ),
            ("/sys/fs/cgroup/a", "begin below the mount point; write `/a`"),
            ("/sys/fs/cgroup/unified/a", "begin below the mount point; write `/a`"),
            ("/sys/fs/cgroup", "begin below the mount point; write `/`"),
        ] {
            assert_eq!(cgroup(pattern), format!("`{pattern}` never matches: paths of cgroups {better}"));
        }
        assert_eq!(cgroup(""), "an empty pattern matches nothing; leave it out");
    }

    #[test]
    fn patterns_of_paths_that_can_match_are_taken() {
        for pattern in ["/", "/**", "**", "**/a", "{/a,/b}/*", r"/a\x2db"] {
            assert_eq!(cgroup(pattern), "", "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_is_none_says_what_is_open() {
        assert!(cgroup("/a[").starts_with("\"/a[\" is not a pattern: unclosed character class"));
    }

    #[test]
    fn patterns_are_bounded_in_number_and_length() {
        let many = report(&format!("cgroups: {{include: [{}]}}", "/a,".repeat(300)));
        assert!(many.contains("cgroups.include: 300 patterns, and at most 256 are taken;"), "{many}");
        assert!(cgroup(&format!("/{}", "a".repeat(1024))).starts_with("the pattern has 1025 bytes"));
    }

    #[test]
    fn an_include_that_is_excluded_again_is_reported() {
        assert_eq!(
            report("cgroups: {exclude: '/**'}"),
            "1:20: cgroups.exclude: this excludes every cgroup; leave it out"
        );
        assert!(
            report("cgroups: {include: [/a, /b], exclude: [/b]}")
                .contains("1:25: warning: cgroups.include[1]: ")
        );
        assert_eq!(report("cgroups: {exclude: []}"), "");
    }

    #[test]
    fn lists_that_select_nobody_are_errors() {
        assert!(
            report("cgroups: {include: []}")
                .starts_with("1:11: cgroups.include: an empty list selects no cgroup;")
        );
        assert!(report("processes: {include: []}").contains("an empty list selects no process;"));
        assert!(
            report("processes: {by: []}").contains("leaves no label to tell series apart; write `by: comm`")
        );
    }

    #[test]
    fn command_names_are_cut_to_fifteen_bytes_so_longer_patterns_never_match() {
        let cut = "never matches: the kernel cuts command names to 15 bytes";
        assert_eq!(
            rule("{comm: kube-controller-manager}"),
            format!(".comm: `kube-controller-manager` {cut}; write `kube-controller`")
        );
        assert_eq!(
            rule("{comm: 'kube-controller-manager*'}"),
            format!(".comm: `kube-controller-manager*` {cut}; write `kube-controller`")
        );
        assert_eq!(
            rule("{comm: '*-controller-manager'}"),
            format!(".comm: `*-controller-manager` {cut}; shorten it")
        );
        for fits in ["kube-controller", "kube-controll*", "[k]ube-controller", "kworker/**"] {
            assert_eq!(rule(&format!("{{comm: '{fits}'}}")), "", "{fits}");
        }
    }

    #[test]
    fn rules_that_say_nothing_or_the_impossible_are_errors() {
        assert!(rule("[{}]").starts_with("[0]: a rule without conditions; for every process write"));
        assert_eq!(
            rule("{comm: /usr/bin/x}"),
            ".comm: `/usr/bin/x` is a path, and command names have none; write `exe: /usr/bin/x`"
        );
        assert_eq!(
            rule("{exe: x}"),
            ".exe: `x` never matches: paths of executables begin with a slash; write `/x` or `**/x`"
        );
        assert_eq!(rule("{pid: 0}"), ".pid: 0 is not between 1 and 4194303");
        assert_eq!(rule("{pid: x}").lines().count(), 1);
    }

    #[test]
    fn a_rule_about_the_kernel_is_a_truth_value_that_no_executable_fits() {
        assert_eq!(rule("[{kernel: true}, {kernel: false, exe: /a}, {kernel: true, comm: 'kworker*'}]"), "");
        assert_eq!(
            rule("[{kernel: true, exe: '/**'}]"),
            "[0].exe: this never matches beside `kernel: true`: threads of the kernel have no executable; \
             leave out one of the two"
        );
        assert!(rule("{kernel: yes}").contains("; write `true`"));
        let config = good("processes: {exclude: [{kernel: true}]}");
        let Targets::Processes(processes) = &config.counters[2].per[2] else { panic!("{config:?}") };
        assert_eq!(processes.exclude[0].kernel, Some(true));
    }

    #[test]
    fn the_attribution_is_inherited_like_everything_else() {
        let text = |file: &str, entry: &str| {
            format!(
                "cgroups: {{{file}}}\nprocesses: {{{file}}}\ncounters: {{a: {{events: cycles, \
                 per: [cgroup, process], cgroups: {{{entry}}}, processes: {{{entry}}}}}}}"
            )
        };
        for (file, entry, expected) in [
            ("", "", Attribution::Auto),
            ("attribution: stream", "", Attribution::Stream),
            ("attribution: stream", "attribution: dedicated", Attribution::Dedicated),
            ("attribution: dedicated", "attribution: auto", Attribution::Auto),
        ] {
            let Config { counters, .. } = good(&text(file, entry));
            let [Targets::Cgroups(cgroups), Targets::Processes(processes)] = &counters[0].per[..] else {
                panic!("{counters:?}")
            };
            assert_eq!((cgroups.attribution, processes.attribution), (expected, expected), "{file} {entry}");
        }
        assert_eq!(
            report("cgroups: {attribution: dedicate}"),
            "1:24: cgroups.attribution: expected `auto`, `stream` or `dedicated`, found `dedicate`; \
             did you mean `dedicated`?"
        );
        assert!(report("processes: {attribution: true}").ends_with("or `dedicated`, found `true`"));
    }

    #[test]
    fn what_an_entry_overrides_inherits_the_rest_from_the_file() {
        let entry = "counters: {a: {events: cycles, per: process, processes: {include: {comm: x}}}}";
        let Config { counters, .. } = good(&format!("processes: {{by: [pid, exe]}}\n{entry}"));
        let [Targets::Processes(processes)] = &counters[0].per[..] else { panic!("{counters:?}") };
        assert_eq!(processes.include.len(), 1);
        assert_eq!(processes.by, [crate::target::GroupBy::Pid, crate::target::GroupBy::Exe]);
    }
}
