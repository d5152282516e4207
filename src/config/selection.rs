//! Checks of cgroup and process selections: invalid patterns, and patterns that can never match.

use std::collections::BTreeSet;

use super::decode::At;
use super::file::{Cgroups, DEPTH_MAX, File, PID_MAX, PodsOrRules, ProcessRule, Processes};
use super::patterns::{Lists, glob, lists};
use super::pods;
use super::problem::shown;
use super::report::Report;
use super::value::List;
use crate::health::Scope;
use crate::targets::{self, CgroupSelection, Glob, PodSelection, ProcessSelection, Targets};

/// Length of a command name in the kernel, in bytes (`TASK_COMM_LEN` less the final NUL).
const COMM_LEN: usize = 15;

/// The keys `cgroups`, `pods` and `processes` of the file or of an entry.
#[derive(Clone, Copy)]
pub(super) struct WrittenSelections<'f> {
    pub(super) cgroups: &'f Option<At<Cgroups>>,
    pub(super) pods: &'f Option<At<PodsOrRules>>,
    pub(super) processes: &'f Option<At<Processes>>,
}

impl File {
    /// Returns the selections of the file.
    pub(super) fn selections(&self) -> WrittenSelections<'_> {
        let Self { cgroups, pods, processes, .. } = self;
        WrittenSelections { cgroups, pods, processes }
    }
}

/// Selections that entries without their own inherit.
#[derive(Debug, Default)]
pub(super) struct Selections {
    pub(super) cgroups: CgroupSelection,
    pub(super) processes: ProcessSelection,
}

impl Selections {
    /// Returns the written selections, with the values of `base` for omitted keys.
    pub(super) fn over(written: WrittenSelections<'_>, base: &Self, report: &mut Report<'_>) -> Self {
        Self {
            cgroups: cgroups(written.cgroups, written.pods, &base.cgroups, report),
            processes: processes(written.processes, &base.processes, report),
        }
    }

    /// Returns the targets of a scope.
    pub(super) fn of(&self, scope: Scope) -> Targets {
        Targets::new(scope, &self.cgroups, &self.processes)
    }
}

/// Returns the selection of cgroups, with the values of `base` for omitted keys. Patterns of paths and rules for pods to include replace
/// those of `base` together.
fn cgroups(
    written: &Option<At<Cgroups>>,
    written_pods: &Option<At<PodsOrRules>>,
    base: &CgroupSelection,
    report: &mut Report<'_>,
) -> CgroupSelection {
    let nothing = Cgroups::default();
    let Cgroups { include, exclude, depth, descendants, attribution } =
        written.as_ref().map_or(&nothing, |at| &at.value);
    let hint = "to count no cgroups, remove `cgroup` from every `per`";
    let (include, exclude) = patterns(include, exclude, hint, report);
    let (pods_include, pods_exclude) = pods::selection(written_pods, report);
    let base_include = match (&include, &pods_include) {
        (None, None) => (base.include.clone(), base.pods.include.clone()),
        _ => Default::default(),
    };
    CgroupSelection {
        include: include.unwrap_or(base_include.0),
        exclude: exclude.unwrap_or_else(|| base.exclude.clone()),
        pods: PodSelection {
            include: pods_include.unwrap_or(base_include.1),
            exclude: pods_exclude.unwrap_or_else(|| base.pods.exclude.clone()),
        },
        depth: report.number(depth, DEPTH_MAX).or(base.depth),
        descendants: descendants.map_or(base.descendants, |at| at.value),
        attribution: attribution.map_or(base.attribution, |at| at.value),
    }
}

/// Returns the written patterns of cgroups. `hint` is the correction for an empty list.
pub(super) fn patterns(
    include: &Option<At<List<String>>>,
    exclude: &Option<At<List<String>>>,
    hint: &str,
    report: &mut Report<'_>,
) -> Lists<Glob> {
    shadowed(include, exclude, report);
    lists(include, exclude, ("selects no cgroup", hint), report, |pattern, report| {
        path(pattern, Path::Cgroup, report)
    })
}

/// Returns the written rules for processes. `hint` is the correction for an empty list.
pub(super) fn rules(
    include: &Option<At<List<ProcessRule>>>,
    exclude: &Option<At<List<ProcessRule>>>,
    hint: &str,
    report: &mut Report<'_>,
) -> Lists<targets::ProcessRule> {
    lists(include, exclude, ("selects no process", hint), report, |rule, report| {
        Some(process_rule(rule, report))
    })
}

/// Reports patterns that `exclude` makes ineffective.
fn shadowed(include: &Option<At<List<String>>>, exclude: &Option<At<List<String>>>, report: &mut Report<'_>) {
    let Some(exclude) = exclude else { return };
    for pattern in exclude.iter() {
        if matches!(&*pattern.value, "**" | "/**") {
            report.error(pattern.node, "this excludes every cgroup", "leave it out");
        }
    }
    let excluded: BTreeSet<&str> = exclude.iter().map(|pattern| &*pattern.value).collect();
    for pattern in include.iter().flat_map(|at| at.value.iter()) {
        if excluded.contains(&*pattern.value) {
            let message = format!("{} is also in `exclude`, which takes precedence", shown(pattern));
            report.warning(pattern.node, message, "remove it from one of them");
        }
    }
}

/// Returns the selection of processes, with the values of `base` for omitted keys.
fn processes(
    written: &Option<At<Processes>>,
    base: &ProcessSelection,
    report: &mut Report<'_>,
) -> ProcessSelection {
    let Some(At { value: Processes { include, exclude, by, attribution }, .. }) = written else {
        return base.clone();
    };
    let hint = "to count no processes, remove `process` from every `per`";
    report.not_empty(by.as_ref(), "leaves no label to distinguish series", "write `by: comm`");
    let (include, exclude) = rules(include, exclude, hint, report);
    ProcessSelection {
        include: include.unwrap_or_else(|| base.include.clone()),
        exclude: exclude.unwrap_or_else(|| base.exclude.clone()),
        by: by
            .as_ref()
            .map_or_else(|| base.by.clone(), |by| report.once(by).iter().map(|at| at.value).collect()),
        attribution: attribution.map_or(base.attribution, |at| at.value),
    }
}

fn process_rule(rule: &At<ProcessRule>, report: &mut Report<'_>) -> targets::ProcessRule {
    let At { node, value: ProcessRule { comm: name, exe, cgroup, pid, kernel } } = rule;
    let conditions = name.is_some() || exe.is_some() || cgroup.is_some() || pid.is_some() || kernel.is_some();
    if !conditions && !report.blames(*node) {
        let hint = "for every process write {comm: \"**\"}; otherwise give comm, exe, cgroup, pid or kernel";
        report.error(*node, "a rule without conditions", hint);
    }
    if let (Some(exe), Some(At { value: true, .. })) = (exe, kernel) {
        let message = "this never matches with `kernel: true`: kernel threads have no executable";
        report.error(exe.node, message, "remove one of the two");
    }
    targets::ProcessRule {
        comm: name.as_ref().and_then(|pattern| comm(pattern, report)),
        exe: exe.as_ref().and_then(|pattern| path(pattern, Path::Exe, report)),
        cgroup: cgroup.as_ref().and_then(|pattern| path(pattern, Path::Cgroup, report)),
        pid: report.number(pid, PID_MAX),
        kernel: kernel.map(|at| at.value),
    }
}

/// Kind of path that a pattern matches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    Cgroup,
    Exe,
}

/// Returns a path relative to the mount point of cgroups, if the text begins with the mount point.
pub(super) fn below_mount(text: &str) -> Option<&str> {
    let below = text.strip_prefix("/sys/fs/cgroup")?;
    Some(below.strip_prefix("/unified").unwrap_or(below))
        .map(|below| if below.is_empty() { "/" } else { below })
}

/// Compiles a pattern of absolute paths.
pub(super) fn path(pattern: &At<String>, of: Path, report: &mut Report<'_>) -> Option<Glob> {
    let text = &*pattern.value;
    let what = if of == Path::Cgroup { "paths of cgroups" } else { "paths of executables" };
    let mounted = below_mount(text).filter(|_| of == Path::Cgroup);
    let rooted = text.starts_with(['/', '{']) || text.starts_with("**/") || text == "**";
    let (message, hint) = if let Some(below) = mounted {
        (
            format!("{} never matches: {what} are relative to the mount point", shown(text)),
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
        (message, format!("write `{better}`, or `{better}/**` for everything below it"))
    } else {
        return glob(pattern, report);
    };
    report.error(pattern.node, message, hint);
    None
}

/// Compiles a pattern of command names.
fn comm(pattern: &At<String>, report: &mut Report<'_>) -> Option<Glob> {
    let text = &*pattern.value;
    let (message, hint) = if text.is_empty() {
        ("an empty pattern matches nothing".to_owned(), "leave it out".to_owned())
    } else if text.starts_with('/') {
        let message = format!("{} is a path, but command names contain no path", shown(text));
        (message, format!("write `exe: {text}`"))
    } else if shortest_match(text) > COMM_LEN {
        let message =
            format!("{} never matches: the kernel truncates command names to {COMM_LEN} bytes", shown(text));
        let fits = text.char_indices().take_while(|(at, c)| at + c.len_utf8() <= COMM_LEN);
        let cut: String = fits.map(|(_, c)| c).collect();
        let hint = if cut.contains(['*', '?']) { "shorten it".to_owned() } else { format!("write `{cut}`") };
        (message, hint)
    } else {
        return glob(pattern, report);
    };
    report.error(pattern.node, message, hint);
    None
}

/// Returns the length in bytes of the shortest name that a pattern can match; 0 if it contains alternatives, which are not analyzed.
fn shortest_match(pattern: &str) -> usize {
    if pattern.contains(['[', '{']) { 0 } else { pattern.len() - pattern.matches('*').count() }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::tests::{good, report};
    use crate::targets::{Attribution, Targets};

    /// Returns the report about one pattern of `cgroups.include`, without the position.
    fn cgroup(pattern: &str) -> String {
        report(&format!("cgroups: {{include: ['{pattern}']}}")).replace("1:21: cgroups.include[0]: ", "")
    }

    /// Returns the report about one rule of `processes.include`, without the position.
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
                "do not end with a slash; write `/system.slice`, or `/system.slice/**` for everything below it",
            ),
            ("/sys/fs/cgroup/a", "are relative to the mount point; write `/a`"),
            ("/sys/fs/cgroup/unified/a", "are relative to the mount point; write `/a`"),
            ("/sys/fs/cgroup", "are relative to the mount point; write `/`"),
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
        assert!(many.contains("cgroups.include: 300 patterns, at most 256 are allowed;"), "{many}");
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
            report("processes: {by: []}").contains("leaves no label to distinguish series; write `by: comm`")
        );
    }

    #[test]
    fn command_names_are_cut_to_fifteen_bytes_so_longer_patterns_never_match() {
        let cut = "never matches: the kernel truncates command names to 15 bytes";
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
            ".comm: `/usr/bin/x` is a path, but command names contain no path; write `exe: /usr/bin/x`"
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
            "[0].exe: this never matches with `kernel: true`: kernel threads have no executable; \
             remove one of the two"
        );
        assert!(rule("{kernel: yes}").contains("; write `true`"));
        let config = good("processes: {exclude: [{kernel: true}]}");
        let Targets::Processes(processes) = &config.counters[3].per[0] else { panic!("{config:?}") };
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
        assert_eq!(processes.by, [crate::targets::GroupBy::Pid, crate::targets::GroupBy::Exe]);
    }
}
