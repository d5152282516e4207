//! Query parameters: `?type=off_cpu&comm=nginx*&cgroup=/system.slice/**&seconds=30`.
//!
//! Parsing is strict: unknown keys, duplicate keys and invalid values are rejected with a sentence that lists the valid ones. Otherwise a
//! misspelled selection would silently show everything. An empty value counts as absent, because browsers send empty form fields.

use std::borrow::Cow;

use super::flamegraph::Shape;
use super::folded::Root;
use crate::profile::{Cgroups, Mode, Selection};
use crate::targets::Glob;

/// Maximum length of a query in bytes, before decoding.
const LENGTH: usize = 4 << 10;

/// Maximum length of a pattern in bytes.
const PATTERN: usize = 512;

/// Maximum duration in seconds of a profile requested over HTTP.
pub const LONGEST: u32 = 300;

/// Maximum number of functions in a table.
const MAX: u32 = 10_000;

/// A parsed query. Each output has keys of its own, in addition to the common ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// `type`: name of the kind of profile; `None` selects the first.
    pub kind: Option<String>,
    /// `seconds`: duration of sampling from now on, 1 to [`LONGEST`]; `None` selects the default of the output.
    pub seconds: Option<u32>,
    /// `comm`, `pid`, `cgroup`, `namespace`, `pod`, `container` and `mode`.
    pub selection: Selection,
    /// `format`; `None` selects the default of the output.
    pub format: Option<Format>,
    /// `by`: root frame by which stacks are grouped.
    pub root: Root,
    /// `annotate`, inverted: whether folded names omit the suffix for the kind of code.
    pub plain: bool,
    /// `shape` of a flame graph.
    pub shape: Shape,
    /// `limit`: maximum number of functions.
    pub limit: Option<usize>,
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
/// Keys without a parser hold the zoom and the search term of an image. Only the script of the image writes and reads them.
#[derive(Debug, Clone, Copy)]
pub struct Key(&'static str, Option<Read>);

/// Parses a given value into the query.
type Read = fn(&mut Query, Given<'_>) -> Result<(), String>;

/// Name and value of a given key.
#[derive(Debug, Clone, Copy)]
struct Given<'q>(&'q str, &'q str);

/// Keys of every output.
const COMMON: [Key; 9] = [
    Key("type", Some(|query, given| put(&mut query.kind, Ok(Some(given.1.to_owned()))))),
    Key("seconds", Some(|query, given| put(&mut query.seconds, given.number(1, LONGEST).map(Some)))),
    Key("comm", Some(|query, given| put(&mut query.selection.comm, given.glob()))),
    Key("pid", Some(|query, given| put(&mut query.selection.pid, given.number(0, u32::MAX).map(Some)))),
    Key("cgroup", Some(|query, given| put(&mut query.selection.cgroup, given.cgroups()))),
    Key("namespace", Some(|query, given| put(&mut query.selection.namespace, given.glob()))),
    Key("pod", Some(|query, given| put(&mut query.selection.pod, given.glob()))),
    Key("container", Some(|query, given| put(&mut query.selection.container, given.glob()))),
    Key("mode", Some(|query, given| put(&mut query.selection.mode, given.one_of(&modes()).map(Some)))),
];

/// Root frame by which stacks are grouped.
const BY: Key = Key("by", Some(|query, given| put(&mut query.root, given.one_of(&ROOTS))));

/// Whether names are annotated.
const ANNOTATE: Key = Key("annotate", Some(|query, given| put(&mut query.plain, given.one_of(&PLAIN))));

/// Flame or icicle.
const SHAPE: Key = Key("shape", Some(|query, given| put(&mut query.shape, given.one_of(&SHAPES))));

const PICTURE_FORMAT: Key =
    Key("format", Some(|query, given| put(&mut query.format, given.one_of(&PICTURES).map(Some))));

const TABLE_FORMAT: Key =
    Key("format", Some(|query, given| put(&mut query.format, given.one_of(&TABLES).map(Some))));

/// Maximum number of functions.
const LIMIT: Key = Key("limit", Some(|query, given| put(&mut query.limit, given.number(1, MAX).map(Some))));

pub(super) const ROOTS: [(&str, Root); 3] =
    [("comm", Root::Comm), ("comm-pid", Root::CommPid), ("cgroup", Root::Cgroup)];
pub(super) const SHAPES: [(&str, Shape); 2] = [("flame", Shape::Flame), ("icicle", Shape::Icicle)];
const PLAIN: [(&str, bool); 2] = [("true", false), ("false", true)];
const PICTURES: [(&str, Format); 2] = [("html", Format::Html), ("svg", Format::Svg)];
const TABLES: [(&str, Format); 3] = [("html", Format::Html), ("text", Format::Text), ("json", Format::Json)];

/// Additional keys of `/debug/pprof/profile`.
pub const PPROF: &[Key] = &[];
/// Additional keys of `/folded`.
pub const FOLDED: &[Key] = &[BY, ANNOTATE];
/// Additional keys of `/flamegraph`.
pub const FLAMEGRAPH: &[Key] = &[PICTURE_FORMAT, BY, SHAPE, Key("x", None), Key("y", None), Key("s", None)];
/// Additional keys of `/top`.
pub const TOP: &[Key] = &[TABLE_FORMAT, LIMIT];

impl Query {
    /// Parses the query part of a URL. `own` are the additional keys of the output.
    ///
    /// # Errors
    /// Returns a sentence for the client, without a period.
    pub fn parse(text: &str, own: &[Key]) -> Result<Self, String> {
        if text.len() > LENGTH {
            return Err(format!("the query has {} bytes, the maximum is {LENGTH}", text.len()));
        }
        let mut query = Self::default();
        let mut seen = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            let keys = COMMON.iter().chain(own);
            let Some(&Key(key, read)) = keys.clone().find(|key| key.0 == name) else {
                let known: Vec<&str> = keys.filter(|key| key.1.is_some()).map(|key| key.0).collect();
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
        Ok(query)
    }

    /// Returns the URL of another output of the same selection, with the additional parameters `more`.
    pub fn link(&self, path: &str, more: &[(&str, &str)]) -> String {
        let Selection { comm, pid, cgroup, namespace, pod, container, mode } = &self.selection;
        let text = |glob: &'_ Option<Glob>| glob.as_ref().map(|glob| Cow::Owned(glob.as_str().to_owned()));
        let number = |number: u32| Cow::Owned(number.to_string());
        let pairs = [
            ("type", self.kind.as_deref().map(Cow::Borrowed)),
            ("seconds", self.seconds.map(number)),
            ("comm", text(comm)),
            ("pid", pid.map(number)),
            ("cgroup", cgroup.as_ref().map(|cgroup| Cow::Borrowed(cgroup.as_str()))),
            ("namespace", text(namespace)),
            ("pod", text(pod)),
            ("container", text(container)),
            ("mode", mode.map(|mode| Cow::Borrowed(mode.as_str()))),
        ];
        let given = pairs.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let more = more.iter().map(|&(key, value)| (key, Cow::Borrowed(value)));
        let mut address = path.to_owned();
        for (place, (key, value)) in given.chain(more).enumerate() {
            address.push(if place == 0 { '?' } else { '&' });
            address.push_str(key);
            address.push('=');
            encode(&value, &mut address);
        }
        address
    }
}

fn put<T>(slot: &mut T, value: Result<T, String>) -> Result<(), String> {
    *slot = value?;
    Ok(())
}

/// Returns the word of a list for one of its values.
pub(super) fn word<T: PartialEq>(known: &[(&'static str, T)], of: &T) -> &'static str {
    known.iter().find(|(_, known)| known == of).map_or("", |(word, _)| word)
}

fn modes() -> [(&'static str, Mode); Mode::ALL.len()] {
    Mode::ALL.map(|mode| (mode.as_str(), mode))
}

impl<'q> Given<'q> {
    fn number<T: TryFrom<u32>>(self, least: u32, most: u32) -> Result<T, String> {
        let Self(name, value) = self;
        let digits = value.bytes().all(|b| b.is_ascii_digit());
        let number = value.parse().ok().filter(|number| digits && (least..=most).contains(number));
        let number = number.and_then(|number: u32| T::try_from(number).ok());
        number.ok_or_else(|| format!("{name}: {:?} is not a number from {least} to {most}", shown(value)))
    }

    fn one_of<T: Copy>(self, known: &[(&str, T)]) -> Result<T, String> {
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
}

/// Truncates client input for use in a message.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Decodes the encoding of browsers and `curl --data-urlencode`: `%2F`, and a plus for a space.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, behind) = match (first, behind) {
            (b'%', [high, low, behind @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, behind),
                _ => {
                    return Err(format!(
                        "{:?}: a percent sign must be followed by two hexadecimal digits",
                        shown(text)
                    ));
                }
            },
            (b'%', _) => return Err(format!("{:?} ends with an incomplete escape", shown(text))),
            (b'+', _) => (b' ', behind),
            (other, _) => (other, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    let text = String::from_utf8(bytes).map_err(|_| "the query is not UTF-8".to_owned())?;
    match text.contains(char::is_control) {
        true => Err("the query contains control characters".to_owned()),
        false => Ok(text),
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Appends a percent-encoded value.
fn encode(value: &str, out: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b'*' => {
                out.push(byte.into());
            }
            other => out.push_str(&format!("%{other:02X}")),
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
        let text = "seconds=30&comm=nginx*&cgroup=%2Fsystem.slice/**&pid=12&mode=user&type=off_cpu&shape=icicle&by=comm-pid";
        let query = parse(text).unwrap();
        assert_eq!((query.seconds, query.kind.as_deref()), (Some(30), Some("off_cpu")));
        let selection = &query.selection;
        assert_eq!((selection.pid, selection.mode), (Some(12), Some(Mode::User)));
        assert!(selection.comm.as_ref().unwrap().matches_name("nginx: worker"));
        assert!(selection.cgroup.as_ref().unwrap().matches("/system.slice/a/b"));
        assert_eq!((query.shape, query.root, query.format), (Shape::Icicle, Root::CommPid, None));
        assert_eq!(
            Query::parse("format=json&limit=5", TOP),
            Ok(Query { format: Some(Format::Json), limit: Some(5), ..Query::default() })
        );
        assert!(Query::parse("annotate=false", FOLDED).unwrap().plain);
        assert_eq!(parse("comm=a+b%2b").unwrap().selection.comm.unwrap().as_str(), "a b+");
    }

    #[test]
    fn what_is_left_empty_is_not_given() {
        for text in ["", "&&", "comm=&pid=&seconds=&mode&x=1&y=2&s=malloc"] {
            assert_eq!(parse(text), Ok(Query::default()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_can() {
        let table = [
            (
                "node=x",
                r#"unknown key "node"; available: type, seconds, comm, pid, cgroup, namespace, pod, container, mode, format, by, shape"#,
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
            ("comm=a%0ab", "the query contains control characters"),
        ];
        for (text, error) in table {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
        assert!(parse("comm=[a").unwrap_err().starts_with("comm: \"[a\" is not a pattern: "));
        assert!(
            Query::parse("shape=flame", PPROF)
                .unwrap_err()
                .ends_with("available: type, seconds, comm, pid, cgroup, namespace, pod, container, mode")
        );
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
