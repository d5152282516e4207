//! Folded stacks, one per line: `comm;outer;…;inner value`, for flamegraph.pl, inferno and speedscope.
//!
//! Names have the suffixes of stackcollapse-perf.pl with `--all`, which flame graphs remove: `_[k]` for the kernel, `_[j]` for JIT-compiled
//! code, `_[i]` for inlined functions. As in that script, a semicolon in a name becomes a colon, and a space in the root frame becomes an
//! underscore.

use std::collections::BTreeMap;

use super::numbered::Numbered;
use crate::clean::clean;
use crate::profile::{Origin, Profile, Task};

/// Maximum length of a name in bytes.
const NAME: usize = 1 << 10;

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
    /// Path of the cgroup: `/system.slice/nginx.service`; `[unknown]` if unknown.
    Cgroup,
}

impl Root {
    fn of(self, task: Option<&Task>) -> String {
        let Some(task) = task else { return "[unknown]".to_owned() };
        let text = match self {
            Self::Comm => name(&task.comm),
            Self::CommPid => format!("{}-{}", name(&task.comm), task.pid),
            Self::Cgroup => name(task.cgroup.as_deref().unwrap_or("[unknown]")),
        };
        text.replace(char::is_whitespace, "_")
    }
}

/// Stacks aggregated by their names, in order: each precedes its extensions, and stacks with a common prefix are adjacent.
#[derive(Debug)]
pub struct Folded {
    names: Vec<Name>,
    /// Indexes in `names`, outermost first, and the sum of the values.
    stacks: Vec<(Box<[u32]>, u64)>,
}

/// A name as it is written, with its origin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    pub(super) text: String,
    /// `None` for root frames.
    pub(super) origin: Option<Origin>,
}

impl Folded {
    /// Aggregates the stacks of a profile.
    pub fn new(profile: &Profile, options: Options) -> Self {
        let mut names = Numbered::default();
        let locations: Vec<Vec<u32>> = (profile.locations.iter())
            .map(|location| {
                let shown = profile.names(location);
                let last = shown.len().saturating_sub(1);
                // Innermost first: all but the last were inlined.
                let places = shown.iter().enumerate().rev();
                places
                    .map(|(place, text)| {
                        let mark = match location.origin {
                            _ if !options.annotated => "",
                            Origin::Kernel => "_[k]",
                            Origin::Jit => "_[j]",
                            _ if place < last => "_[i]",
                            Origin::Native | Origin::Unknown => "",
                        };
                        names.place(Name { text: name(text) + mark, origin: Some(location.origin) })
                    })
                    .collect()
            })
            .collect();
        let mut root = |task| names.place(Name { text: options.root.of(task), origin: None });
        let roots: Vec<u32> = profile.tasks.iter().map(|task| root(Some(task))).collect();
        let nobody = root(None);

        let (names, ranks) = sorted(names.values);
        let rank = |place: u32| ranks.get(place as usize).copied().unwrap_or(0);
        let mut stacks = BTreeMap::<Box<[u32]>, u64>::new();
        for sample in &profile.samples {
            let root = roots.get(sample.task as usize).copied().unwrap_or(nobody);
            let stack = profile.stacks.get(sample.stack as usize).map_or(&[][..], |stack| stack);
            let known = stack.iter().rev().filter_map(|&place| locations.get(place as usize));
            let stack = [root].into_iter().chain(known.flatten().copied()).map(rank).collect();
            let sum = stacks.entry(stack).or_default();
            *sum = sum.saturating_add(sample.value);
        }
        Self { names, stacks: stacks.into_iter().collect() }
    }

    /// Returns the stacks in order: their names, outermost first, and values.
    pub(super) fn stacks(&self) -> impl DoubleEndedIterator<Item = (impl Iterator<Item = &Name>, u64)> {
        let name = |&place: &u32| self.names.get(place as usize);
        self.stacks.iter().map(move |(stack, value)| (stack.iter().filter_map(name), *value))
    }

    /// Returns all names.
    pub(super) fn names(&self) -> &[Name] {
        &self.names
    }

    /// Returns all stacks as text, one per line.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (stack, value) in self.stacks() {
            line(stack, value, &mut out);
            out.push('\n');
        }
        out
    }
}

/// Appends a stack.
pub(super) fn line<'n>(stack: impl Iterator<Item = &'n Name>, value: u64, out: &mut String) {
    for (place, name) in stack.enumerate() {
        if place > 0 {
            out.push(';');
        }
        out.push_str(&name.text);
    }
    out.push(' ');
    out.push_str(itoa::Buffer::new().format(value));
}

/// Returns a name that is valid in a line.
fn name(text: &str) -> String {
    let mut text = clean(text.trim(), NAME).replace(';', ":");
    // A number after a space at the end would be parsed as a second value.
    if let Some(space) = text.rfind(' ')
        && text.get(space + 1..).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    {
        text.replace_range(space..=space, "_");
    }
    // Flame graphs interpret these as gaps, and an empty name as the end.
    if text.is_empty() || text.bytes().all(|b| b == b'-') {
        return "[unknown]".to_owned();
    }
    text
}

/// Sorts the names and returns the new index of each. Equal texts of different origins are separate names.
fn sorted(names: Vec<Name>) -> (Vec<Name>, Vec<u32>) {
    let mut order: Vec<(Name, usize)> = names.into_iter().zip(0..).collect();
    order.sort_unstable();
    let mut names: Vec<Name> = Vec::with_capacity(order.len());
    let mut ranks = vec![0; order.len()];
    for (name, place) in order {
        if names.last().is_none_or(|last| last.text != name.text) {
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
    use crate::profile::sample_profiles::{any_profile, example, hostile};

    fn text(profile: &Profile, options: Options) -> String {
        Folded::new(profile, options).text()
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
        assert!(with(Root::Cgroup).contains("\n/system.slice/nginx.service;_start;"));
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
        assert!(lines.iter().all(|(stack, _)| stack.iter().all(|name| name.len() < NAME + 16)));
        assert!(!text.contains(|c: char| c.is_control() && c != '\n') && !text.starts_with("# "));
    }

    proptest! {
        #[test]
        fn no_value_is_lost_or_made(profile in any_profile()) {
            for root in [Root::Comm, Root::CommPid, Root::Cgroup] {
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
