//! The samples of a profile, as tables: functions, modules, threads and their groups; callers and callees of a function. Without I/O.

use std::collections::HashMap;
use std::sync::Arc;

use crate::clean::{NAME, UNKNOWN, clean, function_name};
use crate::export::flamegraph::{lost, nothing, title};
use crate::export::numbered::Numbered;
use crate::export::page::figures::{count, duration, plain};
use crate::export::sums::{StackSums, by_code, by_task, frames, of_locations, of_stacks};
use crate::export::top::{basename, value};
use crate::named_enum::named_enum;
use crate::profile::{Profile, Task, Unit};

/// Maximum number of threads of one name whose counters are opened.
const THREADS: usize = 64;

named_enum! {
    /// What a table has a row for, in the order of the key `g`. The names are those of the line of groups and of headings.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Group {
        Function = "function",
        Module = "module",
        Comm = "comm",
        Cgroup = "cgroup",
        Thread = "thread",
    }
}

impl Group {
    /// Reports whether a row is a group of tasks. Otherwise it is code.
    pub(super) const fn of_tasks(self) -> bool {
        matches!(self, Self::Comm | Self::Cgroup | Self::Thread)
    }
}

/// Identity of a row, which is the same in the tables of different profiles. Names are as the program or the kernel reports them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    Function { name: Arc<str>, module: Arc<str>, origin: &'static str },
    Module(Arc<str>),
    Comm(Arc<str>),
    Cgroup(Arc<str>),
    Thread { pid: u32, tid: u32, comm: Arc<str> },
}

impl Key {
    /// Returns the name to show, without characters that a terminal interprets.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Function { name, .. } => function_name(name).into_owned(),
            Self::Module(name) | Self::Comm(name) | Self::Cgroup(name) => clean(name, NAME).into_owned(),
            Self::Thread { pid, tid, comm } => format!("{} (pid {pid}, tid {tid})", clean(comm, NAME)),
        }
    }

    /// Returns the name of the module of a function to show; empty for other keys.
    pub(super) fn module(&self) -> String {
        match self {
            Self::Function { module, .. } => clean(basename(module), NAME).into_owned(),
            _ => String::new(),
        }
    }

    /// Returns the mark of the kind of code, as in `perf top`.
    pub(super) fn mark(&self) -> &'static str {
        match self {
            Self::Function { origin: "kernel", .. } => "[k]",
            Self::Function { origin: "jit", .. } => "[j]",
            Self::Function { .. } => "[.]",
            _ => "",
        }
    }

    /// Returns the group of the row.
    pub(super) const fn group(&self) -> Group {
        match self {
            Self::Function { .. } => Group::Function,
            Self::Module(_) => Group::Module,
            Self::Comm(_) => Group::Comm,
            Self::Cgroup(_) => Group::Cgroup,
            Self::Thread { .. } => Group::Thread,
        }
    }

    /// Returns the row of a group to which samples of `task` belong; `None` for groups of code.
    fn of_task(group: Group, task: &Task) -> Option<Self> {
        Some(match group {
            Group::Function | Group::Module => return None,
            Group::Comm => Self::Comm(Arc::clone(&task.comm)),
            Group::Cgroup => Self::Cgroup(task.cgroup.clone().unwrap_or_else(|| UNKNOWN.into())),
            Group::Thread => Self::Thread { pid: task.pid, tid: task.tid, comm: Arc::clone(&task.comm) },
        })
    }

    /// Reports whether samples of `task` belong to the row. Always true for code.
    fn takes(&self, task: &Task) -> bool {
        Self::of_task(self.group(), task).is_none_or(|key| key == *self)
    }
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) key: Key,
    /// Name and module to show.
    pub(super) name: String,
    pub(super) module: String,
    /// Sum of the stacks in which the function, or a function of the module, is innermost. For tasks the sum of their samples. In
    /// [`Neighbors`] the same as `total`.
    pub(super) own: u64,
    /// Sum of the stacks that contain the function or the module.
    pub(super) total: u64,
}

impl Row {
    fn new(key: Key, own: u64, total: u64) -> Self {
        Self { name: key.name(), module: key.module(), key, own, total }
    }
}

/// A function with its direct callers and callees. The value of a caller or a callee is the sum of the stacks that contain this call,
/// counted once per stack.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Neighbors {
    pub(super) callers: Vec<Row>,
    pub(super) function: Row,
    pub(super) callees: Vec<Row>,
}

/// A profile that is prepared for tables.
#[derive(Debug, Default)]
pub(super) struct Samples {
    profile: Profile,
    /// The functions, each once.
    functions: Vec<Key>,
    /// For each location its functions, innermost first: indexes into `functions`.
    of_locations: Vec<Vec<u32>>,
    /// Sum of all values.
    total: u64,
}

impl Samples {
    /// Prepares a profile.
    pub(super) fn new(profile: Profile) -> Self {
        let mut functions = Numbered::default();
        let of_locations = of_locations(&profile, &mut functions, |location, name| Key::Function {
            name: name.into(),
            module: profile.module(location).into(),
            origin: location.origin.as_str(),
        });
        let total = profile.total();
        Self { profile, functions: functions.values, of_locations, total }
    }

    /// Returns the sum of all values.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Formats a sum, with its unit.
    pub(super) fn value(&self, sum: u64) -> String {
        plain(&value(sum, self.profile.kind.value.unit))
    }

    /// Returns the heading of the column of values.
    pub(super) fn unit(&self) -> &'static str {
        match self.profile.kind.value.unit {
            Unit::Nanoseconds => "Time",
            Unit::Count => "Count",
        }
    }

    /// Returns a sum in percent of all values.
    pub(super) fn percent(&self, sum: u64) -> f64 {
        if self.total == 0 { 0.0 } else { 100.0 * sum as f64 / self.total as f64 }
    }

    /// Describes the profile: quantity, duration, samples, losses.
    pub(super) fn describe(&self) -> String {
        let profile = &self.profile;
        let (what, span) = (title(profile), duration(profile.duration));
        let (total, samples) = (self.value(self.total), count(profile.taken()));
        let lost = lost(profile).map(|lost| format!("; lost: {lost}")).unwrap_or_default();
        plain(&format!("{what} in {span}: {total}, {samples} samples{lost}"))
    }

    /// Returns why a profile without samples has none.
    pub(super) fn nothing(&self) -> String {
        plain(&nothing(&self.profile, 0))
    }

    /// Returns the rows of a group. `within` is a row of another group: for tasks only their samples are counted, for a module only its
    /// functions are returned.
    pub(super) fn rows(&self, group: Group, within: Option<&Key>) -> Vec<Row> {
        let Self { profile, functions, of_locations: of_functions, .. } = self;
        let mut keys = Numbered::default();
        let (keys, sums) = match group {
            Group::Function => {
                (functions.clone(), by_code(profile, &self.values(within), of_functions, functions.len()))
            }
            Group::Module => {
                let key = |location, _: &str| Key::Module(profile.module(location).into());
                let of_modules = of_locations(profile, &mut keys, key);
                let sums = by_code(profile, &self.values(within), &of_modules, keys.values.len());
                (keys.values, sums)
            }
            Group::Comm | Group::Cgroup | Group::Thread => {
                let key = |task: &Task| Key::of_task(group, task).filter(|_| takes(within, task));
                let sums = by_task(profile, &mut keys, key);
                (keys.values, sums)
            }
        };
        let shown = |key: &Key| match (within, key) {
            (Some(Key::Module(of)), Key::Function { module, .. }) => of == module,
            _ => true,
        };
        let rows = keys.into_iter().zip(sums).filter(|(key, sum)| sum.total > 0 && shown(key));
        rows.map(|(key, sum)| Row::new(key, sum.own, sum.total)).collect()
    }

    /// Returns the direct callers and callees of a function, in the samples of `within`.
    pub(super) fn neighbors(&self, function: &Key, within: Option<&Key>) -> Neighbors {
        let wanted = (0..).zip(&self.functions).find(|(_, key)| *key == function).map(|(number, _)| number);
        let is_wanted = |frame: &u32| Some(*frame) == wanted;
        let (mut own, mut total) = (0_u64, 0_u64);
        let count = self.functions.len();
        let (mut callers, mut callees) = (StackSums::new(count), StackSums::new(count));
        for (stack, value) in self.values(within).into_iter().enumerate().filter(|(_, value)| *value > 0) {
            let places = self.profile.stacks.get(stack).map_or(&[][..], |places| places);
            let frames: Vec<u32> = frames(places, &self.of_locations).collect();
            for (callee, caller) in frames.iter().zip(frames.iter().skip(1)) {
                if is_wanted(callee) {
                    callers.add_once(*caller, stack, value);
                }
                if is_wanted(caller) {
                    callees.add_once(*callee, stack, value);
                }
            }
            own += if frames.first().is_some_and(is_wanted) { value } else { 0 };
            total += if frames.iter().any(is_wanted) { value } else { 0 };
        }
        let rows = |all: StackSums| {
            let sums = self.functions.iter().zip(all.sums).filter(|(_, sum)| sum.total > 0);
            sums.map(|(key, sum)| Row::new(key.clone(), sum.total, sum.total)).collect()
        };
        let function = Row::new(function.clone(), own, total);
        Neighbors { callers: rows(callers), function, callees: rows(callees) }
    }

    /// Returns the threads of a row, those with the most samples first, and at most [`THREADS`].
    pub(super) fn threads(&self, of: &Key) -> Vec<u32> {
        let mut sums = HashMap::<u32, u64>::new();
        for sample in &self.profile.samples {
            if let Some(task) = self.profile.tasks.get(sample.task as usize).filter(|task| of.takes(task)) {
                *sums.entry(task.tid).or_default() += sample.count;
            }
        }
        let mut threads: Vec<(u32, u64)> = sums.into_iter().filter(|(tid, _)| *tid > 0).collect();
        threads.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then(a.cmp(b)));
        threads.into_iter().map(|(tid, _)| tid).take(THREADS).collect()
    }

    /// Returns the sum of each stack, in the samples of `within`.
    fn values(&self, within: Option<&Key>) -> Vec<u64> {
        of_stacks(&self.profile, |task| takes(within, task))
    }
}

/// Reports whether samples of `task` are within a row, or there is no row.
fn takes(within: Option<&Key>, task: &Task) -> bool {
    within.is_none_or(|key| key.takes(task))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::top::Top;
    use crate::profile::Mode;
    use crate::profile::sample_profiles::{Builder, any_profile, example, native, task};

    fn named(rows: &[Row]) -> Vec<(&str, u64, u64)> {
        let mut named: Vec<_> = rows.iter().map(|row| (&*row.name, row.own, row.total)).collect();
        named.sort_unstable();
        named
    }

    fn function(name: &str) -> Key {
        Key::Function { name: name.into(), module: "/bin/a".into(), origin: "native" }
    }

    /// Two threads: `main` calls `f`, `f` calls itself and `g`.
    fn small() -> Samples {
        let mut builder = Builder::default();
        let at = |name| native("/bin/a", name);
        builder.0.kind.period = Some(1);
        builder.add(&task(1, "one", "/x"), Mode::User, 1, &[at("main"), at("f"), at("f"), at("g")]);
        builder.add(&task(1, "one", "/x"), Mode::User, 2, &[at("main"), at("f")]);
        builder.add(&task(2, "two", "/y"), Mode::User, 4, &[at("main"), native("/lib/b", "g")]);
        Samples::new(builder.0)
    }

    #[test]
    fn each_group_has_the_sums_of_its_rows() {
        let samples = small();
        let rows = |group| samples.rows(group, None);
        assert_eq!(
            named(&rows(Group::Function)),
            [("f", 2, 3), ("g", 1, 1), ("g", 4, 4), ("main", 0, 7)],
            "functions of one name in two files are two, and recursion is counted once"
        );
        assert_eq!(named(&rows(Group::Module)), [("/bin/a", 3, 7), ("/lib/b", 4, 4)]);
        assert_eq!(named(&rows(Group::Comm)), [("one", 3, 3), ("two", 4, 4)]);
        assert_eq!(named(&rows(Group::Cgroup)), [("/x", 3, 3), ("/y", 4, 4)]);
        assert_eq!(named(&rows(Group::Thread)), [("one (pid 1, tid 1)", 3, 3), ("two (pid 2, tid 2)", 4, 4)]);
    }

    #[test]
    fn the_functions_of_a_row_are_those_of_its_samples_or_of_its_module() {
        let samples = small();
        let rows = |key: Key| samples.rows(Group::Function, Some(&key));
        assert_eq!(named(&rows(Key::Comm("two".into()))), [("g", 4, 4), ("main", 0, 4)]);
        assert_eq!(named(&rows(Key::Module("/lib/b".into()))), [("g", 4, 4)]);
        assert_eq!(named(&rows(Key::Cgroup("/z".into()))), []);
    }

    #[test]
    fn callers_and_callees_are_those_of_direct_calls_and_each_stack_counts_once() {
        let found = small().neighbors(&function("f"), None);
        assert_eq!(named(&found.callers), [("f", 1, 1), ("main", 3, 3)]);
        assert_eq!((found.function.own, found.function.total), (2, 3));
        assert_eq!(named(&found.callees), [("f", 1, 1), ("g", 1, 1)]);
        let other = small().neighbors(&function("f"), Some(&Key::Comm("two".into())));
        assert_eq!((other.function.total, other.callers.len()), (0, 0));
        assert_eq!(small().neighbors(&function("none"), None).function.total, 0);
    }

    #[test]
    fn the_threads_of_a_row_are_those_with_the_most_samples() {
        let samples = small();
        assert_eq!(samples.threads(&Key::Comm("one".into())), [1]);
        assert_eq!(samples.threads(&Key::Module("/bin/a".into())), [2, 1]);
    }

    #[test]
    fn a_task_without_a_cgroup_is_in_a_row_of_its_own() {
        let mut profile = example();
        profile.tasks[0].cgroup = None;
        let rows = Samples::new(profile).rows(Group::Cgroup, None);
        assert!(rows.iter().any(|row| row.name == "[unknown]"));
    }

    #[test]
    fn a_profile_is_described_in_one_line() {
        assert_eq!(
            Samples::new(example()).describe(),
            "CPU time in 1 min 0 s: 18.4 s, 349 samples; lost: 12 (ring_full), 3 (throttled)"
        );
    }

    proptest! {
        #[test]
        fn functions_have_the_sums_of_the_table_of_a_pipe(profile in any_profile()) {
            let mut expected: Vec<_> = Top::new(&profile, usize::MAX).rows.iter()
                .map(|row| (row.name.clone(), row.origin, row.own, row.total)).collect();
            let rows = Samples::new(profile).rows(Group::Function, None);
            let mut found: Vec<_> = rows.into_iter().map(|row| {
                let Key::Function { origin, .. } = row.key else { panic!("{row:?}") };
                (row.name, origin, row.own, row.total)
            }).collect();
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn a_function_has_the_same_sums_with_its_neighbors_as_in_the_table(profile in any_profile()) {
            let samples = Samples::new(profile);
            for row in samples.rows(Group::Function, None) {
                let found = samples.neighbors(&row.key, None);
                prop_assert_eq!(&found.function, &row);
                prop_assert!(found.callers.iter().chain(&found.callees).all(|other| other.total <= row.total));
            }
        }

        #[test]
        fn rows_of_tasks_add_up_to_the_total(profile in any_profile()) {
            let samples = Samples::new(profile);
            for group in Group::ALL.into_iter().filter(|group| group.of_tasks()) {
                let sum = samples.rows(group, None).iter().map(|row| row.own).sum::<u64>();
                prop_assert_eq!(sum, samples.total());
            }
        }
    }
}
