//! The functions of a profile, sorted by their own shares, as in `perf report` and `perf top`.
//!
//! *Self* is the value of the stacks in which a function is innermost. *Total* is the value of all stacks that contain it, counted once per
//! stack even with recursion.

use std::fmt;

use serde::{Serialize, Serializer};

use super::flamegraph::{lost, title};
use super::numbered::Numbered;
use super::page::figures::{count, duration, plain};
use crate::clean::clean;
use crate::profile::{Profile, Unit};

/// Maximum length of a name in bytes.
const NAME: usize = 1 << 10;

/// The functions of a profile, those with the largest shares first.
#[derive(Debug, Serialize)]
pub struct Top {
    /// Kind of the profile: `cpu`.
    #[serde(rename = "type")]
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
    #[serde(serialize_with = "reasons")]
    pub lost: Vec<(&'static str, u64)>,
    /// Number of functions; `functions` contains at most as many.
    pub distinct: usize,
    /// The functions.
    pub functions: Vec<Row>,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the function, or its location if it is unknown.
    pub function: String,
    /// Path of its file, or a word in brackets.
    pub module: String,
    /// `kernel`, `native`, `jit` or `unknown`.
    pub origin: &'static str,
    /// Sum of the stacks in which the function is innermost.
    #[serde(rename = "self")]
    pub own: u64,
    /// Percentage of `self` in the total of the profile.
    pub self_percent: f64,
    /// Sum of the stacks that contain the function.
    pub total: u64,
    /// Percentage of `total` in the total of the profile.
    pub total_percent: f64,
}

fn reasons<S: Serializer>(lost: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(lost.iter().copied())
}

impl Top {
    /// Creates the table of the first `limit` functions.
    pub fn new(profile: &Profile, limit: usize) -> Self {
        let total = profile.total();
        let mut sums = sums(profile);
        let distinct = sums.len();
        sums.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.cmp(b)));
        let percent = |part: u64| if total == 0 { 0.0 } else { 100.0 * part as f64 / total as f64 };
        let functions = sums.iter().take(limit).map(|(key, sum)| Row {
            function: clean(key.name, NAME).into_owned(),
            module: clean(key.module, NAME).into_owned(),
            origin: key.origin,
            own: sum.own,
            self_percent: percent(sum.own),
            total: sum.total,
            total_percent: percent(sum.total),
        });
        Self {
            kind: profile.kind.value.name.as_ref().to_owned(),
            unit: profile.kind.value.unit.as_str(),
            start: profile.start.to_string(),
            seconds: profile.duration.as_secs_f64(),
            total,
            samples: profile.taken(),
            lost: profile.lost.clone(),
            distinct,
            functions: functions.collect(),
        }
    }

    /// Formats the table for terminals, like `perf report --stdio`: summary lines start with `#`. Without samples it contains the sentence
    /// `nothing`. If functions are omitted, it names the option `more`. `profile` is the profile of the table.
    pub fn text(&self, profile: &Profile, nothing: &str, more: &str) -> String {
        Text { top: self, profile, nothing, more }.to_string()
    }
}

/// A table as text.
struct Text<'t> {
    top: &'t Top,
    profile: &'t Profile,
    nothing: &'t str,
    more: &'t str,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { top, profile, nothing, more: hint } = self;
        let unit = profile.kind.value.unit;
        let span = plain(&duration(profile.duration));
        writeln!(f, "# {}, {span} from {:#}", title(profile), profile.start)?;
        let (samples, total) = (plain(&count(top.samples)), plain(&value(top.total, unit)));
        writeln!(f, "# Samples: {samples}, in total {total}")?;
        if let Some(lost) = lost(profile) {
            writeln!(f, "# Lost: {}", plain(&lost))?;
        }
        if top.total == 0 {
            return writeln!(f, "#\n# {}", plain(nothing));
        }
        let modules = top.functions.iter().map(|row| basename(&row.module).chars().count());
        let width = modules.max().unwrap_or(0).clamp(6, 40);
        writeln!(f, "#\n#   Self    Total          Self  {:width$}  Function", "Module")?;
        writeln!(f, "# ......  .......  ............  {}  {}", ".".repeat(width), ".".repeat(40))?;
        for Row { function, module, origin, own, self_percent, total_percent, .. } in &top.functions {
            let mark = match *origin {
                "kernel" => "[k]",
                "jit" => "[j]",
                _ => "[.]",
            };
            let (own, module) = (plain(&value(*own, unit)), basename(module));
            write!(f, " {self_percent:6.2}% {total_percent:7.2}%  {own:>12}  {module:width$}")?;
            writeln!(f, "  {mark} {function}")?;
        }
        match top.distinct.checked_sub(top.functions.len()) {
            Some(0) | None => Ok(()),
            Some(more) => writeln!(f, "# {more} more functions omitted; raise {hint}"),
        }
    }
}

/// Returns the last component of a path.
pub(super) fn basename(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Formats a value for readers.
pub(super) fn value(value: u64, unit: Unit) -> String {
    match unit {
        Unit::Nanoseconds if value == 0 => "0".to_owned(),
        Unit::Nanoseconds => duration(std::time::Duration::from_nanos(value)),
        Unit::Count => count(value),
    }
}

/// Identity of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key<'p> {
    name: &'p str,
    module: &'p str,
    origin: &'static str,
}

/// Sums of a function; ordered by its own sum first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Sum {
    own: u64,
    total: u64,
}

fn sums(profile: &Profile) -> Vec<(Key<'_>, Sum)> {
    let mut keys = Numbered::default();
    // Functions of each location, innermost first.
    let mut locations: Vec<Vec<u32>> = Vec::with_capacity(profile.locations.len());
    for location in &profile.locations {
        let (module, origin) = (profile.module(location), location.origin.as_str());
        let names = profile.names(location).into_iter();
        let functions = names.map(|name| keys.place(Key { name, module, origin }));
        locations.push(functions.collect());
    }
    let mut values = vec![0_u64; profile.stacks.len()];
    for sample in &profile.samples {
        if let Some(value) = values.get_mut(sample.stack as usize) {
            *value = value.saturating_add(sample.value);
        }
    }
    let mut sums = vec![Sum::default(); keys.values.len()];
    let mut functions = Vec::new();
    for (stack, &value) in profile.stacks.iter().zip(&values).filter(|(_, value)| **value > 0) {
        functions.clear();
        let known = stack.iter().filter_map(|&place| locations.get(place as usize));
        functions.extend(known.flatten().copied());
        let innermost = functions.first().and_then(|&function| sums.get_mut(function as usize));
        if let Some(sum) = innermost {
            sum.own = sum.own.saturating_add(value);
        }
        functions.sort_unstable();
        functions.dedup();
        for &function in &functions {
            if let Some(sum) = sums.get_mut(function as usize) {
                sum.total = sum.total.saturating_add(value);
            }
        }
    }
    keys.values.into_iter().zip(sums).filter(|(_, sum)| sum.total > 0).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::Mode;
    use crate::profile::sample_profiles::{Builder, any_profile, example, hostile, native, task};

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
        let [f, main] = &top.functions[..] else { panic!("{top:?}") };
        assert_eq!((f.own, f.total, f.self_percent), (3_000_000, 3_000_000, 100.0));
        assert_eq!((main.own, main.total, &*main.function), (0, 3_000_000, "main"));
    }

    #[test]
    fn functions_of_one_name_in_two_files_are_two() {
        let mut builder = Builder::default();
        builder.add(&task(1, "a", "/"), Mode::User, 1, &[native("/bin/a", "main")]);
        builder.add(&task(2, "b", "/"), Mode::User, 2, &[native("/bin/b", "main")]);
        let modules: Vec<_> = Top::new(&builder.0, 10).functions.into_iter().map(|row| row.module).collect();
        assert_eq!(modules, ["/bin/b", "/bin/a"]);
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
        fn own_values_are_the_total_of_all_stacks_that_have_frames(profile in any_profile()) {
            let top = Top::new(&profile, usize::MAX);
            let framed: u64 = (profile.samples.iter())
                .filter(|sample| !profile.stacks[sample.stack as usize].is_empty())
                .map(|sample| sample.value)
                .sum();
            prop_assert_eq!(top.functions.iter().map(|row| row.own).sum::<u64>(), framed);
            prop_assert!(top.functions.iter().all(|row| row.own <= row.total && row.total <= top.total));
            prop_assert_eq!(top.distinct, top.functions.len());
        }
    }
}
