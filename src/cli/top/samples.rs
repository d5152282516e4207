//! The samples of a profile, as tables: functions, modules, threads and their groups; callers and callees of a function. Without I/O.

use std::collections::HashMap;
use std::sync::Arc;

use crate::clean::clean;
use crate::export::flamegraph::{lost, nothing, title};
use crate::export::page::figures::{count, duration, plain};
use crate::export::top::{basename, value};
use crate::profile::{Profile, Task, Unit};

/// Maximum length of a name in bytes.
const NAME: usize = 1 << 10;

/// Maximum number of threads of one name whose counters are opened.
const THREADS: usize = 64;

/// Text for a cgroup that is unknown.
const UNKNOWN: &str = "[unknown]";

/// What a table has a row for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Function,
    Module,
    Comm,
    Cgroup,
    Thread,
}

impl Group {
    /// All groups, in the order of the key `g`.
    pub(super) const ALL: [Self; 5] = [Self::Function, Self::Module, Self::Comm, Self::Cgroup, Self::Thread];

    /// Returns the name in the line of groups and in headings.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Module => "module",
            Self::Comm => "comm",
            Self::Cgroup => "cgroup",
            Self::Thread => "thread",
        }
    }

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
            Self::Function { name, .. } => clean(name, NAME).into_owned(),
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

    /// Reports whether samples of `task` belong to the row. Always true for code.
    fn takes(&self, task: &Task) -> bool {
        match self {
            Self::Function { .. } | Self::Module(_) => true,
            Self::Comm(comm) => *comm == task.comm,
            Self::Cgroup(path) => **path == *task.cgroup.as_deref().unwrap_or(UNKNOWN),
            Self::Thread { pid, tid, comm } => (*pid, *tid) == (task.pid, task.tid) && *comm == task.comm,
        }
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
    of_locations: Vec<Box<[usize]>>,
    /// Sum of all values.
    total: u64,
}

impl Samples {
    /// Prepares a profile.
    pub(super) fn new(profile: Profile) -> Self {
        let mut numbers = Numbers::default();
        let mut of_locations = Vec::with_capacity(profile.locations.len());
        for location in &profile.locations {
            let (module, origin) = (Arc::from(profile.module(location)), location.origin.as_str());
            let names = profile.names(location).into_iter();
            let key = |name: &str| Key::Function { name: name.into(), module: Arc::clone(&module), origin };
            of_locations.push(names.map(|name| numbers.of(key(name))).collect());
        }
        let total = profile.total();
        Self { profile, functions: numbers.keys, of_locations, total }
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
        let values = self.values(within);
        let sums = match group {
            Group::Function => self.by_code(&values, Key::clone),
            Group::Module => self.by_code(&values, |function| match function {
                Key::Function { module, .. } => Key::Module(Arc::clone(module)),
                other => other.clone(),
            }),
            Group::Comm => self.by_task(within, |task| Key::Comm(Arc::clone(&task.comm))),
            Group::Cgroup => self.by_task(within, |task| {
                Key::Cgroup(task.cgroup.as_ref().map_or_else(|| UNKNOWN.into(), Arc::clone))
            }),
            Group::Thread => self.by_task(within, |task| Key::Thread {
                pid: task.pid,
                tid: task.tid,
                comm: Arc::clone(&task.comm),
            }),
        };
        let shown = |key: &Key| match (within, key) {
            (Some(Key::Module(of)), Key::Function { module, .. }) => of == module,
            _ => true,
        };
        let rows = sums.into_iter().filter(|(key, _, total)| *total > 0 && shown(key));
        rows.map(|(key, own, total)| Row::new(key, own, total)).collect()
    }

    /// Returns the direct callers and callees of a function, in the samples of `within`.
    pub(super) fn neighbors(&self, function: &Key, within: Option<&Key>) -> Neighbors {
        let Some(wanted) = self.functions.iter().position(|key| key == function) else {
            return Neighbors {
                callers: Vec::new(),
                function: Row::new(function.clone(), 0, 0),
                callees: Vec::new(),
            };
        };
        let (mut own, mut total) = (0_u64, 0_u64);
        let (mut callers, mut callees) = (Sums::new(self.functions.len()), Sums::new(self.functions.len()));
        let mut frames = Vec::new();
        for (stack, value) in (0..).zip(self.values(within)).filter(|(_, value)| *value > 0) {
            frames.clear();
            frames.extend(self.frames(stack));
            let mut found = false;
            for (at, _) in frames.iter().enumerate().filter(|(_, frame)| **frame == wanted) {
                found = true;
                let callee = at.checked_sub(1).and_then(|inner| frames.get(inner));
                callee.into_iter().for_each(|&callee| callees.add_once(callee, stack, value));
                let caller = frames.get(at + 1);
                caller.into_iter().for_each(|&caller| callers.add_once(caller, stack, value));
            }
            own += if frames.first() == Some(&wanted) { value } else { 0 };
            total += if found { value } else { 0 };
        }
        let rows = |sums: Sums| {
            let sums = self.functions.iter().zip(sums.totals).filter(|(_, sum)| *sum > 0);
            sums.map(|(key, sum)| Row::new(key.clone(), sum, sum)).collect()
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
        let tasks: Vec<bool> =
            self.profile.tasks.iter().map(|task| within.is_none_or(|key| key.takes(task))).collect();
        let mut values = vec![0_u64; self.profile.stacks.len()];
        for sample in &self.profile.samples {
            if tasks.get(sample.task as usize) == Some(&true)
                && let Some(value) = values.get_mut(sample.stack as usize)
            {
                *value = value.saturating_add(sample.value);
            }
        }
        values
    }

    /// Returns the functions of a stack, innermost first.
    fn frames(&self, stack: usize) -> impl Iterator<Item = usize> {
        let places = self.profile.stacks.get(stack).map_or(&[][..], |stack| stack);
        places.iter().filter_map(|&place| self.of_locations.get(place as usize)).flatten().copied()
    }

    /// Returns own sums and totals by a key of each function.
    fn by_code(&self, values: &[u64], key: impl Fn(&Key) -> Key) -> Vec<(Key, u64, u64)> {
        let mut numbers = Numbers::default();
        let groups: Vec<usize> = self.functions.iter().map(|function| numbers.of(key(function))).collect();
        let (mut own, mut total) = (vec![0_u64; numbers.keys.len()], Sums::new(numbers.keys.len()));
        for (stack, &value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
            let mut frames =
                self.frames(stack).filter_map(|function| groups.get(function).copied()).peekable();
            if let Some(sum) = frames.peek().and_then(|&innermost| own.get_mut(innermost)) {
                *sum = sum.saturating_add(value);
            }
            frames.for_each(|group| total.add_once(group, stack, value));
        }
        let sums = numbers.keys.into_iter().zip(own).zip(total.totals);
        sums.map(|((key, own), total)| (key, own, total)).collect()
    }

    /// Returns the sums by a key of each task.
    fn by_task(&self, within: Option<&Key>, key: impl Fn(&Task) -> Key) -> Vec<(Key, u64, u64)> {
        let mut numbers = Numbers::default();
        let mut group = |task: &Task| within.is_none_or(|key| key.takes(task)).then(|| numbers.of(key(task)));
        let groups: Vec<Option<usize>> = self.profile.tasks.iter().map(&mut group).collect();
        let mut sums = vec![0_u64; numbers.keys.len()];
        for sample in &self.profile.samples {
            let group = groups.get(sample.task as usize).copied().flatten();
            if let Some(sum) = group.and_then(|group| sums.get_mut(group)) {
                *sum = sum.saturating_add(sample.value);
            }
        }
        numbers.keys.into_iter().zip(sums).map(|(key, sum)| (key, sum, sum)).collect()
    }
}

/// Numbers for keys, in the order of their first use.
#[derive(Debug, Default)]
struct Numbers {
    keys: Vec<Key>,
    numbers: HashMap<Key, usize>,
}

impl Numbers {
    fn of(&mut self, key: Key) -> usize {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        self.numbers.insert(key.clone(), self.keys.len());
        self.keys.push(key);
        self.keys.len() - 1
    }
}

/// Sums to which each stack is added at most once.
#[derive(Debug)]
struct Sums {
    totals: Vec<u64>,
    /// The stack that was added last, plus one.
    added: Vec<usize>,
}

impl Sums {
    fn new(length: usize) -> Self {
        Self { totals: vec![0; length], added: vec![0; length] }
    }

    fn add_once(&mut self, number: usize, stack: usize, value: u64) {
        if let (Some(total), Some(added)) = (self.totals.get_mut(number), self.added.get_mut(number))
            && *added != stack + 1
        {
            (*total, *added) = (total.saturating_add(value), stack + 1);
        }
    }
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
                (row.name.trim().to_owned(), origin, row.own, row.total)
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
