//! Query parameters: `?type=off_cpu&comm=nginx*&cgroup=/system.slice/**&from=-10m&to=-9m`.
//!
//! Parsing is strict: unknown keys, duplicate keys and invalid values are rejected with a sentence that lists the valid ones. Otherwise a
//! misspelled selection would silently show everything. An empty value counts as absent, because browsers send empty form fields.

mod period;
mod url;

pub use period::Period;
pub(super) use period::milliseconds;
use url::address;
pub(super) use url::{LENGTH, encode, pairs, shown};

use super::flamegraph::{Shape, View};
use super::folded::Root;
use super::top::Grouping;
use crate::annotate::Syntax;
use crate::profile::{Cgroups, HeatMap, Mode, Selection};
use crate::targets::Glob;

/// Maximum length of a pattern in bytes.
const PATTERN: usize = 512;

/// Maximum length of the name of a function in bytes, with the mark of a truncated name.
const NAME: usize = (1 << 10) + 3;

/// Maximum duration in seconds of a profile requested over HTTP.
pub const LONGEST: u32 = 300;

/// Number of hexadecimal digits in the name of an uploaded profile.
pub(super) const FILE: usize = 16;

/// Maximum number of rows in a table.
const MAX: u32 = 10_000;

/// A parsed query. Each output has keys of its own, in addition to the common ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// `type`: name of the kind of profile; `None` selects the first.
    pub kind: Option<String>,
    /// `seconds`: duration of sampling from now on, 1 to [`LONGEST`]; `None` selects the default of the output.
    pub seconds: Option<u32>,
    /// `from` and `to`, or `at` and `for`: a range of the past. Excludes `seconds`.
    pub period: Period,
    /// `comm`, `program`, `pid`, `cgroup`, `namespace`, `pod`, `container` and `mode`.
    pub selection: Selection,
    /// `base_comm` and so on: the selection to compare with. See [`base`](Self::base).
    pub base: Selection,
    /// `base_from` and `base_to`: the range to compare with.
    pub base_period: Period,
    /// `base`: the name of the uploaded profile to compare with. Excludes `base_period`.
    pub base_file: Option<String>,
    /// `normalize`, inverted: whether shares of the base are those of the total of the profile.
    pub absolute: bool,
    /// `format`; `None` selects the default of the output.
    pub format: Option<Format>,
    /// `by`: root frame by which stacks are grouped.
    pub root: Root,
    /// `annotate`, inverted: whether folded names omit the suffix for the kind of code.
    pub plain: bool,
    /// `shape` of a flame graph.
    pub shape: Shape,
    /// `focus`: the function whose callers and callees are shown.
    pub focus: Option<String>,
    /// `invert`: whether a flame graph has the innermost functions first.
    pub inverted: bool,
    /// `s`: the search term of a flame graph.
    pub search: Option<String>,
    /// `by` of a table: its rows.
    pub grouping: Grouping,
    /// `limit`: maximum number of rows.
    pub limit: Option<usize>,
    /// `rows`: rows of a heat map, which divide a second.
    pub rows: Option<u32>,
    /// `symbol`: the function that is annotated; `None` selects the one with the largest value.
    pub symbol: Option<String>,
    /// `module`: its module; `None` selects any.
    pub module: Option<String>,
    /// `syntax`: the notation of its instructions.
    pub syntax: Syntax,
}

/// Format of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A page for browsers.
    Html,
    /// Text for terminals.
    Text,
    /// JSON for programs.
    Json,
    /// A standalone image.
    Svg,
}

/// A query key: its name, and the parser of its value.
///
/// Keys without a parser hold the zoom of an image. Only the script of the image writes and reads them.
#[derive(Debug, Clone, Copy)]
pub struct Key(&'static str, Option<Read>);

/// Parses a given value into the query.
type Read = fn(&mut Query, Given<'_>) -> Result<(), String>;

/// Name and value of a given key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'q>(pub(super) &'q str, pub(super) &'q str);

/// Keys of every output.
const COMMON: [Key; 14] = [
    Key("type", Some(|query, given| put(&mut query.kind, Ok(Some(given.1.to_owned()))))),
    Key("seconds", Some(|query, given| put(&mut query.seconds, given.number(1, LONGEST).map(Some)))),
    Key("from", Some(|query, given| put(&mut query.period.from, given.moment()))),
    Key("to", Some(|query, given| put(&mut query.period.to, given.moment()))),
    Key("at", Some(|query, given| put(&mut query.period.at, given.moment()))),
    Key("for", Some(|query, given| put(&mut query.period.length, given.length()))),
    Key("comm", Some(|query, given| given.select(&mut query.selection))),
    Key("program", Some(|query, given| given.select(&mut query.selection))),
    Key("pid", Some(|query, given| given.select(&mut query.selection))),
    Key("cgroup", Some(|query, given| given.select(&mut query.selection))),
    Key("namespace", Some(|query, given| given.select(&mut query.selection))),
    Key("pod", Some(|query, given| given.select(&mut query.selection))),
    Key("container", Some(|query, given| given.select(&mut query.selection))),
    Key("mode", Some(|query, given| given.select(&mut query.selection))),
];

/// Beginning of the keys of the selection to compare with.
const BASE_PREFIX: &str = "base_";

/// The file to compare with. An output with this key also has those of the comparison with another selection.
const BASE: Key = Key("base", Some(|query, given| put(&mut query.base_file, given.digits(FILE).map(Some))));

/// Keys of the comparison with another selection.
const COMPARISON: [Key; 11] = [
    Key("base_from", Some(|query, given| put(&mut query.base_period.from, given.moment()))),
    Key("base_to", Some(|query, given| put(&mut query.base_period.to, given.moment()))),
    Key("base_comm", Some(|query, given| given.select(&mut query.base))),
    Key("base_program", Some(|query, given| given.select(&mut query.base))),
    Key("base_pid", Some(|query, given| given.select(&mut query.base))),
    Key("base_cgroup", Some(|query, given| given.select(&mut query.base))),
    Key("base_namespace", Some(|query, given| given.select(&mut query.base))),
    Key("base_pod", Some(|query, given| given.select(&mut query.base))),
    Key("base_container", Some(|query, given| given.select(&mut query.base))),
    Key("base_mode", Some(|query, given| given.select(&mut query.base))),
    Key("normalize", Some(|query, given| put(&mut query.absolute, given.one_of(&NORMALIZE)))),
];

/// Root frame by which stacks are grouped.
const BY: Key = Key("by", Some(|query, given| put(&mut query.root, given.one_of(&ROOTS))));

/// Whether names are annotated.
const ANNOTATED: Key = Key("annotate", Some(|query, given| put(&mut query.plain, given.one_of(&PLAIN))));

/// Flame or icicle.
const SHAPE: Key = Key("shape", Some(|query, given| put(&mut query.shape, given.one_of(&SHAPES))));

/// Function whose callers and callees are shown.
const FOCUS: Key = Key("focus", Some(|query, given| put(&mut query.focus, given.text(NAME).map(Some))));

/// Whether the innermost functions are first.
const INVERT: Key = Key("invert", Some(|query, given| put(&mut query.inverted, given.one_of(&INVERTED))));

/// Search term.
const SEARCH: Key = Key("s", Some(|query, given| put(&mut query.search, given.text(PATTERN).map(Some))));

/// Rows of a table.
const GROUPING: Key = Key(
    "by",
    Some(|query, given| put(&mut query.grouping, given.one_of(&named(Grouping::ALL, Grouping::as_str)))),
);

const PICTURE_FORMAT: Key =
    Key("format", Some(|query, given| put(&mut query.format, given.one_of(&PICTURES).map(Some))));

const TABLE_FORMAT: Key =
    Key("format", Some(|query, given| put(&mut query.format, given.one_of(&TABLES).map(Some))));

/// Maximum number of rows.
const LIMIT: Key = Key("limit", Some(|query, given| put(&mut query.limit, given.number(1, MAX).map(Some))));

pub(super) const ROOTS: [(&str, Root); 5] = [
    ("comm", Root::Comm),
    ("comm-pid", Root::CommPid),
    ("thread", Root::Thread),
    ("cgroup", Root::Cgroup),
    ("cpu", Root::Cpu),
];
pub(super) const SHAPES: [(&str, Shape); 2] = [("icicle", Shape::Icicle), ("flame", Shape::Flame)];
const PLAIN: [(&str, bool); 2] = [("true", false), ("false", true)];
const NORMALIZE: [(&str, bool); 2] = PLAIN;
const INVERTED: [(&str, bool); 2] = [("true", true), ("false", false)];
const PICTURES: [(&str, Format); 2] = [("html", Format::Html), ("svg", Format::Svg)];
const TABLES: [(&str, Format); 3] = [("html", Format::Html), ("text", Format::Text), ("json", Format::Json)];

/// Rows of a heat map.
const ROWS: Key =
    Key("rows", Some(|query, given| put(&mut query.rows, given.number(1, HeatMap::MAX_ROWS).map(Some))));

/// Function that is annotated, its module, and the notation of its instructions.
const SYMBOL: Key = Key("symbol", Some(|query, given| put(&mut query.symbol, given.text(NAME).map(Some))));
const MODULE: Key = Key("module", Some(|query, given| put(&mut query.module, given.text(NAME).map(Some))));
const SYNTAX: Key = Key(
    "syntax",
    Some(|query, given| put(&mut query.syntax, given.one_of(&named(Syntax::ALL, Syntax::as_str)))),
);

/// Additional keys of `/debug/pprof/profile`.
pub const PPROF: &[Key] = &[];
/// Additional keys of `/folded`.
pub const FOLDED: &[Key] = &[BY, ANNOTATED, BASE];
/// Additional keys of `/flamegraph`.
pub const FLAMEGRAPH: &[Key] =
    &[PICTURE_FORMAT, BY, SHAPE, FOCUS, INVERT, SEARCH, Key("x", None), Key("y", None), BASE];
/// Additional keys of `/top`.
pub const TOP: &[Key] = &[TABLE_FORMAT, GROUPING, LIMIT, FOCUS, BASE];
/// Additional keys of `/annotate`.
pub const ANNOTATE: &[Key] = &[TABLE_FORMAT, SYMBOL, MODULE, SYNTAX];
/// Additional keys of `/api/v1/heatmap`.
pub const HEATMAP: &[Key] = &[ROWS];

impl Query {
    /// Parses the query part of a URL. `own` are the additional keys of the output.
    ///
    /// # Errors
    /// Returns a sentence for the client, without a period.
    pub fn parse(text: &str, own: &[Key]) -> Result<Self, String> {
        let mut query = Self::default();
        let mut seen = Vec::new();
        let is_compared = own.iter().any(|key| key.0 == BASE.0);
        let keys = COMMON.iter().chain(own).chain(COMPARISON.iter().filter(|_| is_compared));
        for pair in pairs(text) {
            let (name, value) = pair?;
            let Some(&Key(key, read)) = keys.clone().find(|key| key.0 == name) else {
                let known: Vec<&str> = keys.clone().filter(|key| key.1.is_some()).map(|key| key.0).collect();
                return Err(format!("unknown key {:?}; available: {}", shown(&name), known.join(", ")));
            };
            if seen.contains(&key) {
                return Err(format!("{name} occurs twice"));
            }
            seen.push(key);
            if let Some(read) = read.filter(|_| !value.is_empty()) {
                read(&mut query, Given(key, &value))?;
            }
        }
        query.period.check(query.seconds)?;
        query.base_period.check(None).map_err(|sentence| format!("base_{sentence}"))?;
        match query.base_file.is_some() && query.base_period != Period::default() {
            true => {
                Err("base is an uploaded profile, which has no range: use only one of base and base_from"
                    .to_owned())
            }
            false => Ok(query),
        }
    }

    /// Returns the URL of another output of the same selection, with the additional parameters `more`.
    pub fn link(&self, path: &str, more: &[(&str, &str)]) -> String {
        let more = more.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        address(path, self.selected().into_iter().chain(more))
    }

    /// Returns the URL of an output with all parameters of this query.
    pub fn address(&self, path: &str) -> String {
        address(path, self.parameters().into_iter())
    }

    /// Returns a query for another output of the same selection and comparison.
    #[must_use]
    pub fn same_selection(&self) -> Self {
        let Self { kind, seconds, period, selection, base_file, base_period, base, absolute, .. } =
            self.clone();
        Self { kind, seconds, period, selection, base_file, base_period, base, absolute, ..Self::default() }
    }

    /// Returns a query for a table of the same selection and comparison.
    pub(super) fn same_selection_of(&self, grouping: Grouping) -> Self {
        Self { grouping, ..self.same_selection() }
    }

    /// Returns the stacks that a flame graph shows.
    pub fn view(&self) -> View<'_> {
        match (&self.focus, self.inverted) {
            (Some(function), _) => View::Function(function),
            (None, true) => View::Inverted,
            (None, false) => View::TopDown,
        }
    }

    /// Returns the selection of the same profile to compare with, if any key of it is given. The conditions that it omits are those of the
    /// selection.
    pub fn base(&self) -> Option<Selection> {
        (self.base_file.is_none() && !self.base.is_everything()).then(|| {
            let (base, own) = (self.base.clone(), self.selection.clone());
            Selection {
                comm: base.comm.or(own.comm),
                program: base.program.or(own.program),
                pid: base.pid.or(own.pid),
                cgroup: base.cgroup.or(own.cgroup),
                namespace: base.namespace.or(own.namespace),
                pod: base.pod.or(own.pod),
                container: base.container.or(own.container),
                mode: base.mode.or(own.mode),
                by_cpu: false,
            }
        })
    }

    /// Reports whether the profile is compared.
    pub fn is_compared(&self) -> bool {
        self.base_file.is_some() || self.base().is_some() || self.base_period != Period::default()
    }

    /// Returns the selected part of another range, or of an uploaded profile. Only the given conditions apply to the latter: its pods and
    /// processes are others.
    pub fn part_of_base(&self) -> Selection {
        match self.base_file {
            Some(_) => self.base.clone(),
            None => self.base().unwrap_or_else(|| self.selection.clone()),
        }
    }

    /// Returns the selection of samples that an output needs.
    pub fn needed(&self) -> Selection {
        let selection = if self.base().is_some() { Selection::default() } else { self.selection.clone() };
        Selection { by_cpu: self.is_by_cpu(), ..selection }
    }

    /// Returns the selection of samples that an output needs of the range to compare with.
    pub fn needed_of_base(&self) -> Selection {
        Selection { by_cpu: self.is_by_cpu(), ..self.part_of_base() }
    }

    fn is_by_cpu(&self) -> bool {
        self.root == Root::Cpu
    }

    /// Returns the keys and values of the profile and the selection.
    fn selected(&self) -> Vec<(String, String)> {
        let kind = self.kind.clone().map(|kind| ("type".to_owned(), kind));
        let seconds = self.seconds.map(|seconds| ("seconds".to_owned(), seconds.to_string()));
        let first = kind.into_iter().chain(seconds).chain(range("", &self.period));
        first.chain(conditions("", &self.selection)).collect()
    }

    /// Returns all keys with their values, without those that have the default value.
    pub fn parameters(&self) -> Vec<(String, String)> {
        let mut all = self.selected();
        all.extend(self.base_file.clone().map(|name| ("base".to_owned(), name)));
        all.extend(range(BASE_PREFIX, &self.base_period));
        all.extend(conditions(BASE_PREFIX, &self.base));
        let format = [PICTURES.as_slice(), TABLES.as_slice()].concat();
        let by = match self.grouping {
            Grouping::Function => changed(word(&ROOTS, &self.root), self.root == Root::default()),
            grouping => Some(grouping.as_str()),
        };
        let own = [
            ("normalize", changed("false", !self.absolute)),
            ("format", self.format.as_ref().map(|wanted| word(&format, wanted))),
            ("by", by),
            ("annotate", changed("false", !self.plain)),
            ("shape", changed(word(&SHAPES, &self.shape), self.shape == Shape::default())),
            ("focus", self.focus.as_deref()),
            ("invert", changed("true", !self.inverted)),
            ("s", self.search.as_deref()),
            ("symbol", self.symbol.as_deref()),
            ("module", self.module.as_deref()),
            ("syntax", changed(self.syntax.as_str(), self.syntax == Syntax::default())),
        ];
        let given = own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
        all.extend(given);
        all.extend(self.limit.map(|limit| ("limit".to_owned(), limit.to_string())));
        all
    }
}

/// Returns the word of a value; `None` for the default.
fn changed(word: &str, is_default: bool) -> Option<&str> {
    (!is_default).then_some(word)
}

/// Returns the keys and values of a range of the past. The keys begin with `prefix`.
fn range(prefix: &str, period: &Period) -> impl Iterator<Item = (String, String)> {
    let given = period.pairs().into_iter().filter_map(|(key, value)| Some((key, value?)));
    given.map(move |(key, value)| (format!("{prefix}{key}"), value))
}

/// Returns the keys and values of a selection. The keys begin with `prefix`.
fn conditions(prefix: &str, selection: &Selection) -> Vec<(String, String)> {
    let Selection { comm, program, pid, cgroup, namespace, pod, container, mode, by_cpu: _ } = selection;
    let text = |glob: &'_ Option<Glob>| glob.as_ref().map(|glob| glob.as_str().to_owned());
    let pairs = [
        ("comm", text(comm)),
        ("program", text(program)),
        ("pid", pid.map(|pid| pid.to_string())),
        ("cgroup", cgroup.as_ref().map(|cgroup| cgroup.as_str().to_owned())),
        ("namespace", text(namespace)),
        ("pod", text(pod)),
        ("container", text(container)),
        ("mode", mode.map(|mode| mode.as_str().to_owned())),
    ];
    let given = pairs.into_iter().filter_map(|(key, value)| Some((format!("{prefix}{key}"), value?)));
    given.collect()
}

fn put<T>(slot: &mut T, value: Result<T, String>) -> Result<(), String> {
    *slot = value?;
    Ok(())
}

/// Returns the word of a list for one of its values.
pub(super) fn word<T: PartialEq>(known: &[(&'static str, T)], of: &T) -> &'static str {
    known.iter().find(|(_, known)| known == of).map_or("", |(word, _)| word)
}

/// Returns the list of values with their names.
pub(super) fn named<T: Copy, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> [(&'static str, T); N] {
    all.map(|one| (name(one), one))
}

impl<'q> Given<'q> {
    pub(super) fn number<T: TryFrom<u32>>(self, least: u32, most: u32) -> Result<T, String> {
        let Self(name, value) = self;
        let digits = value.bytes().all(|b| b.is_ascii_digit());
        let number = value.parse().ok().filter(|number| digits && (least..=most).contains(number));
        let number = number.and_then(|number: u32| T::try_from(number).ok());
        number.ok_or_else(|| format!("{name}: {:?} is not a number from {least} to {most}", shown(value)))
    }

    /// Parses this number of hexadecimal digits.
    fn digits(self, length: usize) -> Result<String, String> {
        let Self(name, value) = self;
        match value.len() == length && value.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            true => Ok(value.to_owned()),
            false => Err(format!(
                "{name}: {:?} is not the name of an uploaded profile: {length} hexadecimal digits",
                shown(value)
            )),
        }
    }

    pub(super) fn one_of<T: Copy>(self, known: &[(&str, T)]) -> Result<T, String> {
        let Self(name, value) = self;
        known.iter().find(|(word, _)| *word == value).map(|(_, of)| *of).ok_or_else(|| {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            format!("{name}: {:?} must be one of {}", shown(value), words.join(", "))
        })
    }

    fn glob(self) -> Result<Option<Glob>, String> {
        Glob::new(self.pattern()?).map(Some).map_err(|error| format!("{}: {error}", self.0))
    }

    fn cgroups(self) -> Result<Option<Cgroups>, String> {
        let Self(name, value) = self;
        if !value.starts_with(['/', '*', '{']) {
            return Err(format!(
                "{name}: {:?} is not a cgroup path: it must begin with a slash",
                shown(value)
            ));
        }
        Cgroups::new(self.pattern()?).map(Some).map_err(|error| format!("{name}: {error}"))
    }

    fn pattern(self) -> Result<&'q str, String> {
        let Self(name, value) = self;
        match value.len() {
            0..=PATTERN => Ok(value),
            length => Err(format!("{name}: the pattern has {length} bytes, the maximum is {PATTERN}")),
        }
    }

    fn text(self, most: usize) -> Result<String, String> {
        let Self(name, value) = self;
        match value.len() {
            length if length <= most => Ok(value.to_owned()),
            length => Err(format!("{name}: the text has {length} bytes, the maximum is {most}")),
        }
    }

    /// Sets the condition of a selection that the key names, with or without the prefix of the base.
    fn select(self, selection: &mut Selection) -> Result<(), String> {
        match self.0.strip_prefix(BASE_PREFIX).unwrap_or(self.0) {
            "comm" => put(&mut selection.comm, self.glob()),
            "program" => put(&mut selection.program, self.glob()),
            "pid" => put(&mut selection.pid, self.number(0, u32::MAX).map(Some)),
            "cgroup" => put(&mut selection.cgroup, self.cgroups()),
            "namespace" => put(&mut selection.namespace, self.glob()),
            "pod" => put(&mut selection.pod, self.glob()),
            "container" => put(&mut selection.container, self.glob()),
            _ => put(&mut selection.mode, self.one_of(&named(Mode::ALL, Mode::as_str)).map(Some)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Query, String> {
        Query::parse(text, FLAMEGRAPH)
    }

    #[test]
    fn an_address_is_read() {
        let text = "seconds=30&comm=nginx*&program=ngi*&cgroup=%2Fsystem.slice/**&pid=12&mode=user&type=off_cpu&shape=flame&by=comm-pid";
        let query = parse(text).unwrap();
        assert_eq!((query.seconds, query.kind.as_deref()), (Some(30), Some("off_cpu")));
        let selection = &query.selection;
        assert_eq!((selection.pid, selection.mode), (Some(12), Some(Mode::User)));
        assert!(selection.comm.as_ref().unwrap().matches_name("nginx: worker"));
        assert!(selection.program.as_ref().unwrap().matches_name("nginx"));
        assert!(selection.cgroup.as_ref().unwrap().matches("/system.slice/a/b"));
        assert_eq!((query.shape, query.root, query.format), (Shape::Flame, Root::CommPid, None));
        assert_eq!(
            Query::parse("format=json&limit=5", TOP),
            Ok(Query { format: Some(Format::Json), limit: Some(5), ..Query::default() })
        );
        assert!(Query::parse("annotate=false", FOLDED).unwrap().plain);
        assert_eq!(parse("comm=a+b%2b").unwrap().selection.comm.unwrap().as_str(), "a b+");
    }

    #[test]
    fn what_is_left_empty_is_not_given() {
        for text in ["", "&&", "comm=&pid=&seconds=&mode&x=1&y=-2&s=&focus=&base_comm=&invert="] {
            assert_eq!(parse(text), Ok(Query::default()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_can() {
        let table = [
            (
                "node=x",
                r#"unknown key "node"; available: type, seconds, from, to, at, for, comm, program, pid, cgroup, namespace, pod, container, mode, format, by, shape, focus, invert, s, base, base_from, base_to, base_comm, base_program, base_pid, base_cgroup, base_namespace, base_pod, base_container, base_mode, normalize"#,
            ),
            ("pid=1&pid=2", "pid occurs twice"),
            ("pid=&pid=2", "pid occurs twice"),
            ("seconds=0", r#"seconds: "0" is not a number from 1 to 300"#),
            ("seconds=301", r#"seconds: "301" is not a number from 1 to 300"#),
            ("seconds=+3", r#"seconds: " 3" is not a number from 1 to 300"#),
            ("seconds=%2B3", r#"seconds: "+3" is not a number from 1 to 300"#),
            ("seconds=5s", r#"seconds: "5s" is not a number from 1 to 300"#),
            ("mode=usr", r#"mode: "usr" must be one of user, kernel, sleeping, uninterruptible, preempted"#),
            ("format=json", r#"format: "json" must be one of html, svg"#),
            (
                "cgroup=system.slice",
                r#"cgroup: "system.slice" is not a cgroup path: it must begin with a slash"#,
            ),
            ("comm=%zz", r#""%zz": a percent sign must be followed by two hexadecimal digits"#),
            ("comm=%4", r#""%4" ends with an incomplete escape"#),
            ("comm=%ff", "the query is not UTF-8"),
            ("comm=a%1bb", "the query contains control characters"),
        ];
        for (text, error) in table {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
        assert!(parse("comm=[a").unwrap_err().starts_with("comm: \"[a\" is not a pattern: "));
        assert!(Query::parse("shape=flame", PPROF).unwrap_err().ends_with(
            "available: type, seconds, from, to, at, for, comm, program, pid, cgroup, namespace, pod, container, mode"
        ));
    }

    #[test]
    fn a_query_of_any_length_is_bounded() {
        assert!(parse(&"&".repeat(LENGTH + 1)).unwrap_err().starts_with("the query has 4097 bytes"));
        assert!(
            parse(&format!("comm={}", "*".repeat(PATTERN + 1))).unwrap_err().contains("the maximum is 512")
        );
        assert!(parse(&format!("mode={}", "x".repeat(1000))).unwrap_err().len() < 200);
    }

    #[test]
    fn a_base_differs_from_the_selection_in_what_its_keys_say() {
        let query = parse("comm=nginx&mode=user&base_comm=node&base_pid=7&normalize=false").unwrap();
        let base = query.base().unwrap();
        assert_eq!((base.comm.unwrap().as_str(), base.pid, base.mode), ("node", Some(7), Some(Mode::User)));
        assert!(query.absolute && query.needed().is_everything());
        let file = parse("comm=nginx&base=00112233445566ff&base_mode=user").unwrap();
        assert!(file.is_compared() && file.base().is_none() && !file.needed().is_everything());
        assert_eq!(file.part_of_base(), Selection { mode: Some(Mode::User), ..Selection::default() });
        assert_eq!(
            parse("base=00112233445566ff&base_from=-5m").unwrap_err(),
            "base is an uploaded profile, which has no range: use only one of base and base_from"
        );
        assert_eq!(
            parse("base=x").unwrap_err(),
            "base: \"x\" is not the name of an uploaded profile: 16 hexadecimal digits"
        );
        let alone = parse("comm=nginx&base_comm=").unwrap();
        assert_eq!((alone.base(), alone.needed()), (None, alone.selection.clone()));
        assert!(parse("base_mode=usr").unwrap_err().starts_with("base_mode: \"usr\" must be one of user"));
    }

    #[test]
    fn stacks_by_cpu_need_samples_by_cpu() {
        let query = parse("by=cpu&comm=a&base_comm=b").unwrap();
        assert!(query.needed().by_cpu && query.needed_of_base().by_cpu);
        let query = parse("by=thread&comm=a&base_from=-10m&base_to=-9m").unwrap();
        assert!(!query.needed().by_cpu && !query.needed_of_base().by_cpu);
        assert_eq!(query.needed_of_base(), query.selection);
    }

    #[test]
    fn an_address_has_every_parameter() {
        for text in [
            "base=0123456789abcdef&base_comm=a*",
            "type=cpu&seconds=3&comm=a*&program=b&base_program=c&base_cgroup=/x/**&base_mode=user&normalize=false&format=svg&by=cpu&shape=flame\
             &focus=operator%20new%28unsigned%20long%29&invert=true&s=%5Emain",
            "",
        ] {
            let query = parse(text).unwrap();
            assert_eq!(
                query.address("/flamegraph").trim_start_matches("/flamegraph").trim_start_matches('?'),
                text
            );
        }
        let table = Query::parse("by=module&limit=7&format=json", TOP).unwrap();
        assert_eq!(table.address("/top"), "/top?format=json&by=module&limit=7");
        assert_eq!(table.same_selection().address("/top"), "/top");
    }

    #[test]
    fn a_link_leads_to_the_same_selection() {
        let query = parse("comm=a%26b%3D%22&cgroup=/x%20y/**&pid=7&mode=kernel&type=cpu&seconds=3").unwrap();
        let link = query.link("/top", &[("format", "json")]);
        assert_eq!(
            link,
            "/top?type=cpu&seconds=3&comm=a%26b%3D%22&pid=7&cgroup=/x%20y/**&mode=kernel&format=json"
        );
        let read = Query::parse(link.split_once('?').unwrap().1, TOP).unwrap();
        assert_eq!((read.selection, read.kind, read.seconds), (query.selection, query.kind, query.seconds));
        assert_eq!(Query::default().link("/top", &[]), "/top");
    }

    proptest! {
        #[test]
        fn no_query_is_too_strange(text in any::<String>()) {
            drop(parse(&text));
        }

        #[test]
        fn any_name_survives_a_link(name in "[^\\p{Cc}\\[\\]{}]{1,40}") {
            let glob = Glob::new(&name).unwrap();
            let query = Query { selection: Selection { comm: Some(glob), ..Selection::default() }, ..Query::default() };
            let link = query.link("", &[]);
            prop_assert_eq!(Query::parse(&link[1..], PPROF), Ok(query));
        }
    }
}
