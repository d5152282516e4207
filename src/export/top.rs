//! The functions of a profile, sorted by their own shares, as in `perf report` and `perf top`; or its modules, cgroups or threads.
//!
//! *Self* is the value of the stacks in which a function is innermost. *Total* is the value of all stacks that contain it, counted once per
//! stack even with recursion. If the profile is compared with a base, rows are sorted by the change of their own share, and functions that
//! only the base contains have rows, too.

mod json;
mod text;

use std::cmp::Ordering;

use super::diff::Comparison;
use super::folded::Values;
use super::numbered::Numbered;
use super::page::figures::{count, duration};
use super::sums::{Sum, by_code, by_task, of_locations, of_stacks};
use crate::clean::{NAME, UNKNOWN, clean, function_name};
use crate::named_enum::named_enum;
use crate::profile::{Profile, Task, Unit};

/// Contents of a table.
#[derive(Debug, Clone, Copy)]
pub struct Options<'p> {
    /// The rows.
    pub by: Grouping,
    /// The profile to compare with.
    pub base: Option<&'p Profile>,
    /// Whether shares of the base are those of its own total.
    pub normalized: bool,
    /// Maximum number of rows.
    pub limit: usize,
}

impl Default for Options<'_> {
    /// All functions.
    fn default() -> Self {
        Self { by: Grouping::Function, base: None, normalized: true, limit: usize::MAX }
    }
}

named_enum! {
    /// What a row of a table stands for. The words are those of queries and of JSON.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Grouping {
        /// A function of a module.
        #[default]
        Function = "function",
        /// A file, or a word in brackets.
        Module = "module",
        /// The cgroup of the threads.
        Cgroup = "cgroup",
        /// The name of the threads.
        Comm = "comm",
    }
}

impl Grouping {
    /// Returns the heading of the names.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Function => "Function",
            Self::Module => "Module",
            Self::Cgroup => "Cgroup",
            Self::Comm => "Thread name",
        }
    }
}

/// The functions or groups of a profile, those with the largest shares or changes first.
#[derive(Debug)]
pub struct Top {
    /// Kind of the profile: `cpu`.
    pub kind: String,
    /// Unit of the values: `nanoseconds` or `count`.
    pub unit: &'static str,
    /// Start time of the profile.
    pub start: String,
    /// Duration in seconds.
    pub seconds: f64,
    /// Sum of all values.
    pub total: u64,
    /// Number of samples.
    pub samples: u64,
    /// Lost samples by reason.
    pub lost: Vec<(&'static str, u64)>,
    /// The rows.
    pub by: Grouping,
    /// The base; `None` if the profile is not compared.
    pub base: Option<Base>,
    /// Number of functions or groups; `rows` contains at most as many.
    pub distinct: usize,
    /// The functions or groups.
    pub rows: Vec<Row>,
}

/// The profile that a table is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base {
    /// Sum of all values.
    pub total: u64,
    /// Number of samples.
    pub samples: u64,
}

/// A function or a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Name of the function, or its location if it is unknown; or name of the group.
    pub name: String,
    /// Path of its file, or a word in brackets; empty for groups.
    pub module: String,
    /// `kernel`, `native`, `jit` or `unknown`; empty for groups.
    pub origin: &'static str,
    /// Sum of the stacks in which the function is innermost.
    pub own: u64,
    /// Percentage of `own` in the total of the profile.
    pub self_percent: f64,
    /// Sum of the stacks that contain the function.
    pub total: u64,
    /// Percentage of `total` in the total of the profile.
    pub total_percent: f64,
    /// Change from the base; `None` if the profile is not compared.
    pub change: Option<RowChange>,
}

/// Values of a row in the base, and the changes of its shares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowChange {
    /// Sum of the stacks of the base in which the function is innermost.
    pub base_own: u64,
    /// Sum of the stacks of the base that contain the function.
    pub base_total: u64,
    /// Change of the share of `self` in percentage points.
    pub self_points: f64,
    /// Change of the share of `total` in percentage points.
    pub total_points: f64,
}

impl Top {
    /// Creates the table of the first `limit` functions.
    pub fn new(profile: &Profile, limit: usize) -> Self {
        Self::with(profile, Options { limit, ..Options::default() })
    }

    /// Creates a table.
    pub fn with(profile: &Profile, options: Options<'_>) -> Self {
        let mut keys = Numbered::default();
        let sums_of_this = sums(profile, options.by, &mut keys);
        let sums_of_base = options.base.map(|base| sums(base, options.by, &mut keys)).unwrap_or_default();
        let totals = Values { this: profile.total(), base: options.base.map_or(0, Profile::total) };
        let comparison = Comparison::new(totals, options.normalized);
        let sum = |sums: &[Sum], place: usize| sums.get(place).copied().unwrap_or_default();
        let compared = keys.values.into_iter().enumerate().map(|(place, key)| {
            let (this, base) = (sum(&sums_of_this, place), sum(&sums_of_base, place));
            let own = comparison.of(Values { this: this.own, base: base.own });
            let total = comparison.of(Values { this: this.total, base: base.total });
            Compared {
                key,
                this,
                base,
                shares: (own.this, total.this),
                points: (own.points(), total.points()),
            }
        });
        let mut compared: Vec<_> = compared.filter(|row| row.this.total > 0 || row.base.total > 0).collect();
        match options.base {
            None => compared.sort_by(|a, b| b.this.cmp(&a.this).then_with(|| a.key.cmp(&b.key))),
            Some(_) => compared.sort_by(by_change),
        }
        Self {
            kind: profile.kind.value.name.as_ref().to_owned(),
            unit: profile.kind.value.unit.as_str(),
            start: profile.start.to_string(),
            seconds: profile.duration.as_secs_f64(),
            total: totals.this,
            samples: profile.taken(),
            lost: profile.lost.clone(),
            by: options.by,
            base: options.base.map(|base| Base { total: totals.base, samples: base.taken() }),
            distinct: compared.len(),
            rows: (compared.iter().take(options.limit)).map(|row| row.row(options.base.is_some())).collect(),
        }
    }

    /// Formats the table for terminals, like `perf report --stdio`: summary lines start with `#`. Without samples it contains the sentence
    /// `nothing`. If rows are omitted, it names the option `more`. `profile` is the profile of the table.
    pub fn text(&self, profile: &Profile, nothing: &str, more: &str) -> String {
        text::Text { top: self, profile, nothing, more }.to_string()
    }
}

/// Returns the last component of a path.
pub(crate) fn basename(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Formats a value for readers.
pub(crate) fn value(value: u64, unit: Unit) -> String {
    match unit {
        Unit::Nanoseconds if value == 0 => "0".to_owned(),
        Unit::Nanoseconds => duration(std::time::Duration::from_nanos(value)),
        Unit::Count => count(value),
    }
}

/// Identity of a function or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key<'p> {
    name: &'p str,
    module: &'p str,
    origin: &'static str,
}

impl<'p> Key<'p> {
    fn group(name: &'p str) -> Self {
        Self { name, module: "", origin: "" }
    }
}

/// Sums of a function in two profiles. Shares and points are those of `own` and `total`.
struct Compared<'p> {
    key: Key<'p>,
    this: Sum,
    base: Sum,
    shares: (f64, f64),
    points: (f64, f64),
}

/// Orders the largest changes first.
fn by_change(a: &Compared<'_>, b: &Compared<'_>) -> Ordering {
    let size = |row: &Compared<'_>| (row.points.0.abs(), row.points.1.abs());
    let ((own_a, total_a), (own_b, total_b)) = (size(a), size(b));
    own_b.total_cmp(&own_a).then(total_b.total_cmp(&total_a)).then_with(|| a.key.cmp(&b.key))
}

impl Compared<'_> {
    fn row(&self, with_change: bool) -> Row {
        let Self { key, this, base, shares, points } = self;
        Row {
            name: function_name(key.name).into_owned(),
            module: clean(key.module, NAME).into_owned(),
            origin: key.origin,
            own: this.own,
            self_percent: shares.0,
            total: this.total,
            total_percent: shares.1,
            change: with_change.then_some(RowChange {
                base_own: base.own,
                base_total: base.total,
                self_points: points.0,
                total_points: points.1,
            }),
        }
    }
}

/// Returns the sums of each key, by its number. New keys are added to `keys`.
fn sums<'p>(profile: &'p Profile, by: Grouping, keys: &mut Numbered<Key<'p>>) -> Vec<Sum> {
    match by {
        Grouping::Function | Grouping::Module => {}
        Grouping::Comm => return by_task(profile, keys, |task| Some(Key::group(&task.comm))),
        Grouping::Cgroup => {
            let name = |task: &'p Task| task.cgroup.as_deref().unwrap_or(UNKNOWN);
            return by_task(profile, keys, |task| Some(Key::group(name(task))));
        }
    }
    let of_locations = of_locations(profile, keys, |location, name| match (by, profile.module(location)) {
        (Grouping::Function, module) => Key { name, module, origin: location.origin.as_str() },
        (_, module) => Key::group(module),
    });
    by_code(profile, &of_stacks(profile, |_| true), &of_locations, keys.values.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::sample_profiles::{Builder, any_profile, example, hostile, native, task};
    use crate::profile::{Mode, Selection};

    #[test]
    fn the_table_is_as_recorded() {
        insta::assert_snapshot!(Top::new(&example(), 12).text(&example(), "", "`limit=`"));
    }

    #[test]
    fn the_json_is_as_recorded() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&Top::new(&example(), 3)).unwrap());
    }

    #[test]
    fn a_function_that_calls_itself_is_counted_once_per_stack() {
        let mut builder = Builder::default();
        let at = |name| native("/bin/a", name);
        let recursive = [at("main"), at("f"), at("f"), at("f")];
        builder.add(&task(1, "a", "/"), Mode::User, 1, &recursive);
        builder.add(&task(2, "a", "/"), Mode::User, 2, &recursive[..2]);
        let top = Top::new(&builder.0, 10);
        let [f, main] = &top.rows[..] else { panic!("{top:?}") };
        assert_eq!((f.own, f.total, f.self_percent), (3_000_000, 3_000_000, 100.0));
        assert_eq!((main.own, main.total, &*main.name), (0, 3_000_000, "main"));
    }

    #[test]
    fn functions_of_one_name_in_two_files_are_two() {
        let mut builder = Builder::default();
        builder.add(&task(1, "a", "/"), Mode::User, 1, &[native("/bin/a", "main")]);
        builder.add(&task(2, "b", "/"), Mode::User, 2, &[native("/bin/b", "main")]);
        let modules: Vec<_> = Top::new(&builder.0, 10).rows.into_iter().map(|row| row.module).collect();
        assert_eq!(modules, ["/bin/b", "/bin/a"]);
    }

    #[test]
    fn rows_can_be_groups() {
        let with = |by| Top::with(&example(), Options { by, base: None, normalized: true, limit: 10 });
        let names = |by| with(by).rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(names(Grouping::Comm), ["node", "nginx", "postgres", "kworker/0:1"]);
        assert_eq!(names(Grouping::Cgroup)[..2], ["/kubepods.slice/pod1/app", "/system.slice/nginx.service"]);
        let modules = with(Grouping::Module);
        let kernel = modules.rows.iter().find(|row| row.name == "[kernel.kallsyms]").unwrap();
        assert_eq!(kernel.own, 60 * 52_631_578);
        insta::assert_snapshot!(modules.text(&example(), "", ""));
        insta::assert_snapshot!(serde_json::to_string_pretty(&with(Grouping::Comm)).unwrap());
    }

    /// Returns the example without the web server, as the base of itself.
    fn compared(limit: usize) -> Top {
        let base = example().select(&Selection { pid: Some(901), ..Selection::default() });
        let this = example().select(&Selection { pid: Some(812), ..Selection::default() });
        Top::with(&this, Options { by: Grouping::Function, base: Some(&base), normalized: true, limit })
    }

    #[test]
    fn differences_begin_with_the_largest_change_and_contain_functions_that_vanished() {
        let top = compared(100);
        let vanished = &top.rows[0];
        assert_eq!((&*vanished.name, vanished.own, vanished.total), ("hash_search", 0, 0));
        let change = vanished.change.unwrap();
        assert_eq!((change.self_points, change.total_points), (-100.0, -100.0));
        let new = top.rows.iter().find(|row| row.name == "memcpy").unwrap();
        assert_eq!((new.change.unwrap().base_own, new.change.unwrap().self_points), (0, new.self_percent));
        let this = example().select(&Selection { pid: Some(812), ..Selection::default() });
        insta::assert_snapshot!(compared(6).text(&this, "", "`limit=`"));
        insta::assert_snapshot!(serde_json::to_string_pretty(&compared(1)).unwrap());
    }

    #[test]
    fn a_profile_compared_with_itself_has_no_change() {
        let options = Options { by: Grouping::Function, base: Some(&example()), normalized: true, limit: 99 };
        let top = Top::with(&example(), options);
        assert!(!top.rows.is_empty());
        assert!(top.rows.iter().all(|row| row.change.is_some_and(|change| change.self_points == 0.0)));
    }

    #[test]
    fn a_table_without_samples_says_why() {
        let text = Top::new(&Profile::default(), 10).text(&Profile::default(), "no samples so far", "");
        assert!(text.contains("\n# no samples so far\n"), "{text}");
    }

    #[test]
    fn hostile_names_stay_in_their_lines() {
        let text = Top::new(&hostile(), 100).text(&hostile(), "", "");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
        assert!(text.lines().all(|line| line.starts_with(['#', ' ']) && line.len() < 3 * NAME));
    }

    proptest! {
        #[test]
        fn changes_of_own_shares_are_the_change_of_the_whole(base in any_profile(), this in any_profile()) {
            let with = |base, by| Top::with(&this, Options { by, base, normalized: true, limit: usize::MAX });
            for by in [Grouping::Comm, Grouping::Cgroup] {
                let rows = with(Some(&base), by).rows;
                let points = rows.iter().filter_map(|row| row.change).map(|change| change.self_points).sum::<f64>();
                let whole = f64::from(u8::from(this.total() > 0)) - f64::from(u8::from(base.total() > 0));
                prop_assert!((points - 100.0 * whole).abs() < 1e-6, "{points}");
                prop_assert_eq!(rows.iter().map(|row| row.own).sum::<u64>(), this.total());
            }
            let own = |top: &Top| top.rows.iter().map(|row| row.own).sum::<u64>();
            prop_assert_eq!(own(&with(Some(&base), Grouping::Function)), own(&with(None, Grouping::Function)));
        }

        #[test]
        fn own_values_are_the_total_of_all_stacks_that_have_frames(profile in any_profile()) {
            let top = Top::new(&profile, usize::MAX);
            let framed: u64 = (profile.samples.iter())
                .filter(|sample| !profile.stacks[sample.stack as usize].is_empty())
                .map(|sample| sample.value)
                .sum();
            prop_assert_eq!(top.rows.iter().map(|row| row.own).sum::<u64>(), framed);
            prop_assert!(top.rows.iter().all(|row| row.own <= row.total && row.total <= top.total));
            prop_assert_eq!(top.distinct, top.rows.len());
        }
    }
}
