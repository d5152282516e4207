//! The requested part of a profile.

use std::sync::Arc;

use super::{Line, Location, Mode, Profile, Sample, Task};
use crate::host::is_within;
use crate::targets::{Glob, GlobError};

/// Conditions on tasks and modes. `None` selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// The name of the thread.
    pub comm: Option<Glob>,
    /// The name of the process, which is that of its main thread.
    pub program: Option<Glob>,
    /// The process ID, on the host.
    pub pid: Option<u32>,
    /// The cgroup. A task whose cgroup is unknown does not match.
    pub cgroup: Option<Cgroups>,
    /// The namespace of the pod. A task without a known container does not match; the same holds for the next two fields.
    pub namespace: Option<Glob>,
    /// The name of the pod.
    pub pod: Option<Glob>,
    /// The name of the container.
    pub container: Option<Glob>,
    /// The mode of the task.
    pub mode: Option<Mode>,
    /// Whether samples are attributed to CPUs. This is no condition.
    pub by_cpu: bool,
}

/// A cgroup with all cgroups below it, or a pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups(Shape);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    Below(Box<str>),
    Pattern(Glob),
}

impl Cgroups {
    /// Parses a path or a pattern. `/system.slice` selects this cgroup and all below it. A text with `*`, `?`, `[` or `{` is a [`Glob`] of
    /// whole paths, where `**` also matches slashes: `/kubepods/**`.
    ///
    /// # Errors
    /// When the pattern is invalid.
    pub fn new(text: &str) -> Result<Self, GlobError> {
        Ok(Self(match text.contains(['*', '?', '[', '{']) {
            true => Shape::Pattern(Glob::new(text)?),
            false => return Ok(Self::below(text)),
        }))
    }

    /// Selects the cgroup at `path` and all below it, whatever characters its name contains.
    pub fn below(path: &str) -> Self {
        Self(Shape::Below(path.trim_end_matches('/').into()))
    }

    /// Reports whether the cgroup at `path` is selected.
    pub fn matches(&self, path: &str) -> bool {
        match &self.0 {
            Shape::Pattern(glob) => glob.matches(path),
            Shape::Below(root) => is_within(path, root),
        }
    }

    /// Returns the text as it was written, without a trailing slash.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Shape::Pattern(glob) => glob.as_str(),
            Shape::Below(root) if root.is_empty() => "/",
            Shape::Below(root) => root,
        }
    }
}

impl Selection {
    /// Reports whether everything is selected.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// Reports whether samples of `task` in this mode are selected.
    pub fn takes(&self, task: &Task, mode: Mode) -> bool {
        self.mode.is_none_or(|wanted| wanted == mode) && self.takes_of(task)
    }

    /// Reports whether samples of `task` are selected in a selected mode.
    fn takes_of(&self, task: &Task) -> bool {
        let Self { comm, program, pid, cgroup, namespace, pod, container, mode: _, by_cpu: _ } = self;
        let identity = task.container.as_deref();
        let named = |wanted: &Option<Glob>, name: Option<&Arc<str>>| {
            wanted.as_ref().is_none_or(|wanted| name.is_some_and(|name| wanted.matches_name(name)))
        };
        let of_pod = identity.and_then(|identity| identity.pod.as_ref());
        pid.is_none_or(|pid| pid == task.pid)
            && comm.as_ref().is_none_or(|comm| comm.matches_name(&task.comm))
            && program.as_ref().is_none_or(|program| program.matches_name(&task.program))
            && cgroup
                .as_ref()
                .is_none_or(|cgroup| task.cgroup.as_ref().is_some_and(|path| cgroup.matches(path)))
            && named(namespace, of_pod.map(|pod| &pod.namespace))
            && named(pod, of_pod.map(|pod| &pod.name))
            && named(container, identity.and_then(|identity| identity.container.as_ref()))
    }
}

impl Profile {
    /// Returns the profile with only the selected samples and the table entries that they use. Losses stay: they cannot be attributed to
    /// tasks.
    #[must_use]
    pub fn select(&self, selection: &Selection) -> Self {
        let tasks: Vec<bool> = self.tasks.iter().map(|task| selection.takes_of(task)).collect();
        let selected = |sample: &&Sample| {
            tasks.get(sample.task as usize) == Some(&true)
                && selection.mode.is_none_or(|mode| mode == sample.mode)
        };
        let samples: Vec<Sample> = self.samples.iter().filter(selected).copied().collect();
        self.with(&samples)
    }

    /// Returns the profile with other samples of its own stacks and tasks. References to missing entries are left out.
    fn with(&self, samples: &[Sample]) -> Self {
        let stacks = KeptEntries::new(self.stacks.len(), samples.iter().map(|sample| sample.stack));
        let tasks = KeptEntries::new(self.tasks.len(), samples.iter().map(|sample| sample.task));
        let places = stacks.of(&self.stacks).flat_map(|stack| stack.iter().copied());
        let locations = KeptEntries::new(self.locations.len(), places);
        let kept = || locations.of(&self.locations);
        let mappings = KeptEntries::new(self.mappings.len(), kept().filter_map(|location| location.mapping));
        let lines = kept().flat_map(|location| location.lines.iter().map(|line| line.function));
        let functions = KeptEntries::new(self.functions.len(), lines);

        let moved = |location: &Location| Location {
            mapping: location.mapping.and_then(|place| mappings.place(place)),
            lines: (location.lines.iter())
                .filter_map(|line| Some(Line { function: functions.place(line.function)?, ..*line }))
                .collect(),
            ..location.clone()
        };
        Self {
            kind: self.kind.clone(),
            start: self.start,
            duration: self.duration,
            samples: (samples.iter())
                .filter_map(|sample| {
                    let (stack, task) = (stacks.place(sample.stack)?, tasks.place(sample.task)?);
                    Some(Sample { stack, task, ..*sample })
                })
                .collect(),
            stacks: (stacks.of(&self.stacks))
                .map(|stack| stack.iter().filter_map(|&place| locations.place(place)).collect())
                .collect(),
            locations: kept().map(moved).collect(),
            functions: functions.of(&self.functions).cloned().collect(),
            mappings: mappings.of(&self.mappings).cloned().collect(),
            tasks: tasks.of(&self.tasks).cloned().collect(),
            lost: self.lost.clone(),
        }
    }
}

/// The kept entries of a table, with their new indexes.
struct KeptEntries(Vec<Option<u32>>);

impl KeptEntries {
    /// Keeps the entries at `places` of a table of `length` entries, in order.
    fn new(length: usize, places: impl Iterator<Item = u32>) -> Self {
        let mut kept = vec![None; length];
        for place in places {
            if let Some(entry) = kept.get_mut(place as usize) {
                *entry = Some(0);
            }
        }
        for (new, entry) in (0..).zip(kept.iter_mut().filter_map(Option::as_mut)) {
            *entry = new;
        }
        Self(kept)
    }

    /// Returns the new index of an entry.
    fn place(&self, old: u32) -> Option<u32> {
        self.0.get(old as usize).copied().flatten()
    }

    /// Returns the kept entries of `table`.
    fn of<'t, T>(&self, table: &'t [T]) -> impl Iterator<Item = &'t T> {
        table.iter().zip(&self.0).filter(|(_, kept)| kept.is_some()).map(|(entry, _)| entry)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::sample_profiles::{any_profile, example};
    use super::*;

    fn comm(pattern: &str) -> Selection {
        Selection { comm: Some(Glob::new(pattern).unwrap()), ..Selection::default() }
    }

    fn cgroup(pattern: &str) -> Selection {
        Selection { cgroup: Some(Cgroups::new(pattern).unwrap()), ..Selection::default() }
    }

    /// Returns the content of a profile independently of the order of its tables: values by task, mode and names.
    fn said(profile: &Profile) -> BTreeMap<String, (u64, u64)> {
        let mut said = BTreeMap::<_, (u64, u64)>::new();
        for sample in &profile.samples {
            let task = &profile.tasks[sample.task as usize];
            let names: Vec<_> = (profile.locations_of(sample.stack))
                .map(|location| (profile.names(location), profile.module(location), location.address))
                .collect();
            let entry = said.entry(format!("{task:?} {:?} {names:?}", sample.mode)).or_default();
            *entry = (entry.0 + sample.count, entry.1 + sample.value);
        }
        said
    }

    #[test]
    fn everything_is_selected_where_nothing_is_asked() {
        let profile = example();
        assert!(Selection::default().is_everything());
        assert_eq!(profile.select(&Selection::default()), profile);
    }

    #[test]
    fn a_selection_takes_with_it_only_what_it_needs() {
        let profile = example();
        let selected = profile.select(&comm("node"));
        assert!(!selected.samples.is_empty());
        assert!(selected.tasks.iter().all(|task| &*task.comm == "node"));
        assert!(selected.functions.len() < profile.functions.len());
        assert!(selected.mappings.iter().all(|mapping| !mapping.path.contains("nginx")));
        assert_eq!(selected.lost, profile.lost);
    }

    #[test]
    fn a_program_is_selected_with_all_its_threads() {
        let mut profile = example();
        let threads = profile.tasks.len();
        (profile.tasks[0].program, profile.tasks[1].program) = ("server".into(), "server".into());
        profile.tasks[2].comm = "server".into();
        let program =
            |pattern: &str| Selection { program: Some(Glob::new(pattern).unwrap()), ..Selection::default() };
        let selected = profile.select(&program("server"));
        assert_eq!(selected.tasks, profile.tasks[..2]);
        assert_eq!(profile.select(&program("*")).tasks.len(), threads);
    }

    #[test]
    fn a_path_is_a_cgroup_and_all_below_it() {
        let matches = |pattern: &str, path| Cgroups::new(pattern).unwrap().matches(path);
        assert!(matches("/system.slice", "/system.slice") && matches("/system.slice/", "/system.slice/a/b"));
        assert!(!matches("/system.slice", "/system.slice2") && !matches("/system.slice/a", "/system.slice"));
        assert!(matches("/", "/") && matches("/", "/x"));
        assert!(matches("/kubepods/**", "/kubepods/a/b") && !matches("/system.slice/*", "/system.slice/a/b"));
        assert!(matches(r"/system.slice/a\x2db.service", r"/system.slice/a\x2db.service"));
        assert!(Cgroups::new("/a[").is_err());
    }

    #[test]
    fn who_is_in_no_known_cgroup_is_not_below_the_root() {
        let mut profile = example();
        profile.tasks[0].cgroup = None;
        let selected = profile.select(&cgroup("/"));
        assert!(selected.tasks.iter().all(|task| task.cgroup.is_some()));
        assert_eq!(selected.tasks.len(), profile.tasks.len() - 1);
    }

    #[test]
    fn a_pod_is_selected_by_patterns_of_its_names() {
        let mut profile = example();
        let pod = crate::container::Pod { namespace: "shop".into(), name: "web-0".into(), uid: "u-1".into() };
        let identity = crate::container::Identity {
            pod: Some(pod),
            container: Some("app".into()),
            ..crate::container::Identity::default()
        };
        profile.tasks[0].container = Some(identity.into());
        let glob = |text| Some(Glob::new(text).unwrap());
        let selected = |selection: Selection| profile.select(&selection).tasks.len();
        let everything = Selection::default();
        for (selection, expected) in [
            (Selection { pod: glob("web-*"), ..everything.clone() }, 1),
            (Selection { pod: glob("web"), ..everything.clone() }, 0),
            (Selection { namespace: glob("shop"), container: glob("app"), ..everything.clone() }, 1),
            (Selection { namespace: glob("other"), container: glob("app"), ..everything.clone() }, 0),
            (Selection { container: glob("*"), ..everything.clone() }, 1),
        ] {
            assert_eq!(selected(selection.clone()), expected, "{selection:?}");
        }
    }

    #[test]
    fn all_that_is_asked_must_hold() {
        let profile = example();
        let pid = profile.tasks[0].pid;
        let both = Selection { pid: Some(pid), mode: Some(Mode::Kernel), ..comm("nginx*") };
        let selected = profile.select(&both);
        assert!(!selected.samples.is_empty());
        assert!(selected.samples.iter().all(|sample| sample.mode == Mode::Kernel));
        assert!(selected.tasks.iter().all(|task| task.pid == pid));
        let nobody = Selection { pid: Some(pid), ..comm("node") };
        let none = profile.select(&nobody);
        assert_eq!((none.samples.len(), none.stacks.len(), none.functions.len()), (0, 0, 0));
    }

    #[test]
    fn what_refers_to_nothing_is_left_out() {
        let mut profile = example();
        profile.samples[0].stack = u32::MAX;
        profile.samples[1].task = u32::MAX;
        profile.locations[0].lines = vec![Line { function: u32::MAX, line: 1 }];
        let selected = profile.select(&Selection::default());
        assert_eq!(selected.samples.len(), profile.samples.len() - 2);
    }

    proptest! {
        #[test]
        fn parts_are_the_whole(profile in any_profile()) {
            let parts = Mode::ALL.map(|mode| profile.select(&Selection { mode: Some(mode), ..Selection::default() }));
            prop_assert_eq!(parts.iter().map(Profile::total).sum::<u64>(), profile.total());
            let mut all = BTreeMap::new();
            parts.iter().for_each(|part| all.extend(said(part)));
            prop_assert_eq!(all, said(&profile));
        }

        #[test]
        fn selecting_twice_changes_nothing(profile in any_profile(), pid in 1u32..5) {
            let selection = Selection { pid: Some(pid), ..Selection::default() };
            let once = profile.select(&selection);
            prop_assert_eq!(once.select(&selection), once);
        }
    }
}
