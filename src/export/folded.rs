//! Folded stacks, one per line: `comm;outer;…;inner value`, for flamegraph.pl, inferno and speedscope.
//!
//! Names have the suffixes of stackcollapse-perf.pl with `--all`, which flame graphs remove: `_[k]` for the kernel, `_[j]` for JIT-compiled
//! code, `_[i]` for inlined functions. As in that script, a semicolon in a name becomes a colon, and a space in the root frame becomes an
//! underscore.

use std::collections::BTreeMap;

use super::numbered::Numbered;
use crate::clean::{UNKNOWN, function_name};
use crate::profile::{Origin, Profile, Task};

/// Output options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Root frame of each line.
    pub root: Root,
    /// Whether names have a suffix for the kind of code.
    pub annotated: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { root: Root::Comm, annotated: true }
    }
}

/// Root frame by which stacks are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Root {
    /// Name of the thread: `nginx`.
    #[default]
    Comm,
    /// Name of the thread with its process ID: `nginx-812`.
    CommPid,
    /// Name of the thread with its process ID and thread ID: `nginx-812/815`.
    Thread,
    /// Path of the cgroup: `/system.slice/nginx.service`; `[unknown]` if unknown.
    Cgroup,
    /// CPU: `cpu-003`; `[unknown]` if the profile does not attribute samples to CPUs.
    Cpu,
}

impl Root {
    fn of(self, task: Option<&Task>, cpu: Option<u16>) -> String {
        const UNKNOWN: &str = "[unknown]";
        if self == Self::Cpu {
            return cpu.map_or_else(|| UNKNOWN.to_owned(), |cpu| format!("cpu-{cpu:03}"));
        }
        let Some(task) = task else { return UNKNOWN.to_owned() };
        let text = match self {
            Self::Comm | Self::Cpu => name(&task.comm),
            Self::CommPid => format!("{}-{}", name(&task.comm), task.pid),
            Self::Thread => format!("{}-{}/{}", name(&task.comm), task.pid, task.tid),
            Self::Cgroup => name(task.cgroup.as_deref().unwrap_or(UNKNOWN)),
        };
        text.replace(char::is_whitespace, "_")
    }
}

/// Stacks aggregated by their names, in order: each precedes its extensions, and stacks with a common prefix are adjacent. If two profiles
/// are compared, each stack has a value of both.
#[derive(Debug, Clone)]
pub struct Folded {
    names: Vec<Name>,
    /// Indexes in `names`, outermost first, and the sums of the values.
    stacks: Vec<(Box<[u32]>, Values)>,
    /// Totals of the whole profiles, also if this is a part of their stacks.
    totals: Values,
    /// Whether there is a base profile.
    compared: bool,
}

/// Values of a stack or a function in a profile, and in the profile that it is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Values {
    /// Value in the profile.
    pub this: u64,
    /// Value in the base profile; 0 if there is none.
    pub base: u64,
}

impl Values {
    /// Adds other values; saturates at `u64::MAX`.
    pub(super) fn add(&mut self, other: Self) {
        self.this = self.this.saturating_add(other.this);
        self.base = self.base.saturating_add(other.base);
    }
}

/// A name as it is written, with its origin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    /// The name with its suffix for the kind of code.
    pub(super) text: String,
    /// Length of the suffix in bytes.
    suffix: usize,
    /// `None` for root frames.
    pub(super) origin: Option<Origin>,
}

impl Name {
    fn new(text: String, suffix: &str, origin: Option<Origin>) -> Self {
        Self { text: text + suffix, suffix: suffix.len(), origin }
    }

    /// Returns the name without the suffix, as flame graphs show it.
    pub(super) fn shown(&self) -> &str {
        self.text.get(..self.text.len() - self.suffix).unwrap_or(&self.text)
    }

    /// Reports whether the function was inlined.
    pub(super) fn is_inlined(&self) -> bool {
        self.text.get(self.text.len() - self.suffix..) == Some(INLINED)
    }
}

/// Suffix of inlined functions.
const INLINED: &str = "_[i]";

impl Folded {
    /// Aggregates the stacks of a profile.
    pub fn new(profile: &Profile, options: Options) -> Self {
        Self::of(profile, None, options)
    }

    /// Aggregates the stacks of a profile and of the profile that it is compared with.
    pub fn difference(base: &Profile, this: &Profile, options: Options) -> Self {
        Self::of(this, Some(base), options)
    }

    /// Aggregates the stacks of a profile, and of a base profile if given.
    pub(super) fn of(this: &Profile, base: Option<&Profile>, options: Options) -> Self {
        let mut names = Numbered::default();
        let numbers = Numbers::new(this, options, &mut names);
        let of_base = base.map(|base| (base, Numbers::new(base, options, &mut names)));
        let (names, ranks) = sorted(names.values);
        let mut stacks = BTreeMap::<Box<[u32]>, Values>::new();
        numbers.each(this, &ranks, |stack, value| {
            stacks.entry(stack).or_default().add(Values { this: value, base: 0 });
        });
        if let Some((base, numbers)) = &of_base {
            numbers.each(base, &ranks, |stack, value| {
                stacks.entry(stack).or_default().add(Values { this: 0, base: value });
            });
        }
        let totals = Values { this: this.total(), base: base.map_or(0, Profile::total) };
        Self { names, stacks: stacks.into_iter().collect(), totals, compared: base.is_some() }
    }

    /// Returns the same profiles with other stacks of the same names. Equal stacks are aggregated.
    pub(super) fn with(&self, stacks: impl Iterator<Item = (Box<[u32]>, Values)>) -> Self {
        let mut sums = BTreeMap::<Box<[u32]>, Values>::new();
        for (stack, values) in stacks {
            sums.entry(stack).or_default().add(values);
        }
        let (names, totals, compared) = (self.names.clone(), self.totals, self.compared);
        Self { names, stacks: sums.into_iter().collect(), totals, compared }
    }

    /// Returns the stacks in order: the indexes of their names, outermost first, and values.
    pub(super) fn stacks(&self) -> impl Iterator<Item = (&[u32], Values)> {
        self.stacks.iter().map(|(stack, values)| (&**stack, *values))
    }

    /// Returns the names, sorted.
    pub(super) fn names(&self) -> &[Name] {
        &self.names
    }

    /// Returns the totals of the whole profiles.
    pub(super) fn totals(&self) -> Values {
        self.totals
    }

    /// Reports whether there is a base profile.
    pub(super) fn is_compared(&self) -> bool {
        self.compared
    }

    /// Returns all stacks as text, one per line. If profiles are compared, a line has the value of the base and then the value of the
    /// profile, as the output of difffolded.pl. `normalized` scales the values of the base to the total of the profile.
    pub fn text(&self, normalized: bool) -> String {
        let mut out = String::new();
        for (stack, values) in &self.stacks {
            for (place, name) in stack.iter().filter_map(|&place| self.names.get(place as usize)).enumerate()
            {
                if place > 0 {
                    out.push(';');
                }
                out.push_str(&name.text);
            }
            if self.compared {
                let base = if normalized { self.scaled(values.base) } else { values.base };
                number(base, &mut out);
            }
            number(values.this, &mut out);
            out.push('\n');
        }
        out
    }

    /// Scales a value of the base to the total of the profile.
    fn scaled(&self, base: u64) -> u64 {
        let Values { this, base: total } = self.totals;
        let scaled = (u128::from(base) * u128::from(this) + u128::from(total / 2)) / u128::from(total.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

/// Appends a space and a number.
fn number(value: u64, out: &mut String) {
    out.push(' ');
    out.push_str(itoa::Buffer::new().format(value));
}

/// Numbers of the names of a profile.
struct Numbers {
    /// Names of each location, outermost first.
    locations: Vec<Vec<u32>>,
    /// Root frame of each sample.
    roots: Vec<u32>,
}

impl Numbers {
    fn new(profile: &Profile, options: Options, names: &mut Numbered<Name>) -> Self {
        let mut of_location = |location| {
            let shown = profile.names(location);
            let last = shown.len().saturating_sub(1);
            // Innermost first: all but the last were inlined.
            let places = shown.iter().enumerate().rev();
            let numbers = places.map(|(place, text)| {
                let suffix = match location.origin {
                    _ if !options.annotated => "",
                    Origin::Kernel => "_[k]",
                    Origin::Jit => "_[j]",
                    _ if place < last => INLINED,
                    Origin::Native | Origin::Unknown => "",
                };
                names.place(Name::new(name(text), suffix, Some(location.origin)))
            });
            numbers.collect()
        };
        let locations = profile.locations.iter().map(&mut of_location).collect();
        // Samples of a task are adjacent in most profiles, so a root frame is seldom looked up.
        let mut last = None;
        let roots = profile.samples.iter().map(|sample| {
            let key = (sample.task, sample.cpu.filter(|_| options.root == Root::Cpu));
            match last {
                Some((known, number)) if known == key => number,
                _ => {
                    let task = profile.tasks.get(sample.task as usize);
                    let number = names.place(Name::new(options.root.of(task, sample.cpu), "", None));
                    last = Some((key, number));
                    number
                }
            }
        });
        let roots = roots.collect();
        Self { locations, roots }
    }

    /// Calls `add` with each stack, as ranks of names, and its value.
    fn each(&self, profile: &Profile, ranks: &[u32], mut add: impl FnMut(Box<[u32]>, u64)) {
        let rank = |place: u32| ranks.get(place as usize).copied().unwrap_or(0);
        for (sample, &root) in profile.samples.iter().zip(&self.roots) {
            let stack = profile.stacks.get(sample.stack as usize).map_or(&[][..], |stack| stack);
            let known = stack.iter().rev().filter_map(|&place| self.locations.get(place as usize));
            add([root].into_iter().chain(known.flatten().copied()).map(rank).collect(), sample.value);
        }
    }
}

/// Returns a name that is valid in a line.
pub(super) fn name(text: &str) -> String {
    let mut text = function_name(text).replace(';', ":");
    // A number after a space at the end would be parsed as a second value.
    if let Some(space) = text.rfind(' ')
        && text.get(space + 1..).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    {
        text.replace_range(space..=space, "_");
    }
    // Flame graphs interpret these as gaps, and an empty name as the end.
    if text.is_empty() || text.bytes().all(|b| b == b'-') {
        return UNKNOWN.to_owned();
    }
    text
}

/// Sorts the names and returns the new index of each. Functions of the same text are one name. A root frame of this text is
/// another.
fn sorted(names: Vec<Name>) -> (Vec<Name>, Vec<u32>) {
    let mut order: Vec<(Name, usize)> = names.into_iter().zip(0..).collect();
    order.sort_unstable();
    let mut names: Vec<Name> = Vec::with_capacity(order.len());
    let mut ranks = vec![0; order.len()];
    for (name, place) in order {
        let is_same = |last: &Name| last.text == name.text && last.origin.is_none() == name.origin.is_none();
        if !names.last().is_some_and(is_same) {
            names.push(name);
        }
        if let Some(rank) = ranks.get_mut(place) {
            *rank = u32::try_from(names.len() - 1).unwrap_or(u32::MAX);
        }
    }
    (names, ranks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::Selection;
    use crate::profile::sample_profiles::{any_profile, example, hostile};

    fn text(profile: &Profile, options: Options) -> String {
        Folded::new(profile, options).text(true)
    }

    /// Parses lines as flamegraph.pl does: the value follows the last space.
    fn read(text: &str) -> Vec<(Vec<&str>, u64)> {
        let line = |line: &'_ str| -> Option<(usize, u64)> {
            let space = line.rfind(' ')?;
            Some((space, line[space + 1..].parse().ok()?))
        };
        text.lines()
            .map(|text| {
                let (space, value) = line(text).expect(text);
                assert_eq!(line(&text[..space]), None, "a second value: {text}");
                (text[..space].split(';').collect(), value)
            })
            .collect()
    }

    #[test]
    fn the_lines_are_as_recorded() {
        insta::assert_snapshot!(text(&example(), Options::default()));
    }

    #[test]
    fn what_a_line_begins_with_can_be_chosen() {
        let with = |root| text(&example(), Options { root, annotated: false });
        assert!(with(Root::Comm).contains("\nnginx;_start;"));
        assert!(with(Root::CommPid).contains("\nnginx-812;_start;"));
        assert!(with(Root::Thread).contains("\nnginx-812/812;_start;"));
        assert!(with(Root::Cgroup).contains("\n/system.slice/nginx.service;_start;"));
        assert!(with(Root::Cpu).starts_with("[unknown];"));
        let mut profile = example();
        profile.samples.iter_mut().for_each(|sample| sample.cpu = Some(12));
        assert!(text(&profile, Options { root: Root::Cpu, annotated: false }).contains("\ncpu-012;_start;"));
    }

    #[test]
    fn names_are_annotated_unless_that_is_not_wanted() {
        let annotated = text(&example(), Options::default());
        assert!(
            annotated.contains(";do_syscall_64_[k];")
                && annotated.contains(";LazyCompile:*render /app/view.js:12_[j]")
        );
        assert!(annotated.contains(";ngx_http_process_request_line;ngx_http_parse_request_line_[i] "));
        assert!(!text(&example(), Options { annotated: false, ..Options::default() }).contains("_["));
    }

    #[test]
    fn hostile_names_are_one_name_each() {
        let text = text(&hostile(), Options::default());
        let lines = read(&text);
        // Three of the names are empty or gaps.
        assert_eq!(lines.len(), hostile().samples.len() - 2);
        assert!(lines.iter().all(|(stack, _)| stack.len() == 4 && stack.iter().all(|name| !name.is_empty())));
        assert!(lines.iter().all(|(stack, _)| stack.iter().all(|name| name.len() < crate::clean::NAME + 16)));
        assert!(!text.contains(|c: char| c.is_control() && c != '\n') && !text.starts_with("# "));
    }

    #[test]
    fn a_line_of_two_profiles_has_the_base_first() {
        let mut base = example();
        base.samples.iter_mut().for_each(|sample| sample.value *= 2);
        let part = base.select(&Selection { pid: Some(901), ..Selection::default() });
        let lines = |base: &Profile, normalized| {
            Folded::difference(base, &example(), Options::default()).text(normalized)
        };
        let stack = "postgres;PostgresMain;ExecProcNode;hash_search";
        let all = lines(&base, false);
        assert!(all.contains(&format!("{stack} 1473684184 736842092\n")), "{all}");
        assert!(lines(&base, true).contains(&format!("{stack} 736842092 736842092\n")));
        assert!(lines(&part, false).contains("\nnode;_start;node::Start(int, char**);"), "{all}");
        assert!(
            lines(&part, false)
                .lines()
                .filter(|line| line.starts_with("nginx;"))
                .all(|line| line.contains(" 0 "))
        );
    }

    proptest! {
        #[test]
        fn no_value_of_two_profiles_is_lost_or_made(base in any_profile(), this in any_profile()) {
            let folded = Folded::difference(&base, &this, Options::default());
            let sum = |of: fn(Values) -> u64| folded.stacks().map(|(_, values)| of(values)).sum::<u64>();
            prop_assert_eq!(sum(|values| values.this), this.total());
            prop_assert_eq!(sum(|values| values.base), base.total());
        }

        #[test]
        fn no_value_is_lost_or_made(profile in any_profile()) {
            for root in [Root::Comm, Root::CommPid, Root::Thread, Root::Cgroup, Root::Cpu] {
                let text = text(&profile, Options { root, annotated: true });
                prop_assert_eq!(read(&text).iter().map(|line| line.1).sum::<u64>(), profile.total());
            }
        }

        #[test]
        fn stacks_of_one_beginning_stand_together(profile in any_profile()) {
            let text = text(&profile, Options::default());
            let lines = read(&text);
            for depth in 1..4 {
                let mut beginnings: Vec<_> = lines.iter().map(|(stack, _)| &stack[..depth.min(stack.len())]).collect();
                beginnings.dedup();
                let runs = beginnings.len();
                beginnings.sort();
                beginnings.dedup();
                prop_assert_eq!(runs, beginnings.len());
            }
        }
    }
}
