//! Parameters of the overview pages and of `/api/v1/history`.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::export::query::{Given, encode, milliseconds, named, pairs, shown};
use crate::history::{Figure, List, Scope, Window};

/// Maximum number of subjects in a response.
const MAX_SUBJECTS: u32 = 1000;

/// Ranges that the pages offer, in minutes.
pub(super) const RANGES: [u64; 3] = [5, 15, 60];

/// A range of time: the last minutes, or fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Range {
    /// Until now.
    Last(Duration),
    /// Between two times; without the second one until now.
    Fixed(Timestamp, Option<Timestamp>),
}

/// A parsed query.
#[derive(Debug, Clone, PartialEq)]
pub struct PageQuery {
    /// `last`, or `from` and `to`.
    pub(super) range: Range,
    /// `scope`; `/api/v1/history` only.
    pub(super) scope: Scope,
    /// `name`: a cgroup path, or the name of a program.
    pub(super) name: Option<String>,
    /// `figure`: a list, separated by commas; empty = all.
    pub(super) figures: Vec<Figure>,
    /// `list`: lists, separated by commas; empty = none.
    pub(super) lists: Vec<List>,
    /// `sort`: the figure by which subjects are sorted.
    pub(super) sort: Figure,
    /// `step` in milliseconds.
    pub(super) step: Option<u64>,
    /// `quantile`, from 0 to 1.
    pub(super) quantile: f64,
    /// `limit`: maximum number of subjects.
    pub(super) limit: usize,
}

impl Default for PageQuery {
    fn default() -> Self {
        Self {
            range: Range::Last(Duration::from_secs(300)),
            scope: Scope::Machine,
            name: None,
            figures: Vec::new(),
            lists: Vec::new(),
            sort: Figure::Cpu,
            step: None,
            quantile: 0.99,
            limit: 20,
        }
    }
}

/// Keys of the pages.
pub const PAGE: &[&str] = &["last", "from", "to", "sort"];
/// Keys of the page of a cgroup or program.
pub const SUBJECT: &[&str] = &["name", "last", "from", "to"];
/// Keys of `/api/v1/history`.
pub const HISTORY: &[&str] =
    &["scope", "name", "figure", "list", "last", "from", "to", "step", "quantile", "sort", "limit"];

impl PageQuery {
    /// Parses the query part of a URL. Only `keys` are allowed. `now` is the time to which relative times refer.
    ///
    /// # Errors
    /// Returns a sentence for the client, without a period.
    pub fn parse(text: &str, keys: &'static [&'static str], now: Timestamp) -> Result<Self, String> {
        let mut query = Self::default();
        let (mut from, mut to, mut last) = (None, None, None);
        let (mut seen, figures) = (Vec::new(), named(Figure::ALL, Figure::as_str));
        for pair in pairs(text) {
            let (name, value) = pair?;
            let Some(&key) = keys.iter().find(|key| **key == name) else {
                return Err(format!("unknown key {:?}; available: {}", shown(&name), keys.join(", ")));
            };
            if seen.contains(&key) {
                return Err(format!("{key} occurs twice"));
            }
            seen.push(key);
            if value.is_empty() {
                continue;
            }
            let given = Given(key, &value);
            let each = || value.split(',').map(move |one| Given(key, one));
            match key {
                "from" => from = given.moment()?.map(|moment| moment.time(now)),
                "to" => to = given.moment()?.map(|moment| moment.time(now)),
                "last" => last = given.length()?,
                "step" => query.step = given.length()?.map(milliseconds),
                "name" => query.name = Some(value),
                "scope" => query.scope = given.one_of(&named(Scope::ALL, Scope::as_str))?,
                "sort" => query.sort = given.one_of(&figures)?,
                "figure" => {
                    query.figures = each().map(|one| one.one_of(&figures)).collect::<Result<_, _>>()?;
                    query.figures.dedup();
                }
                "list" => {
                    let lists = named(List::ALL, List::as_str);
                    query.lists = each().map(|one| one.one_of(&lists)).collect::<Result<_, _>>()?;
                }
                "quantile" => {
                    let quantile = value.parse().ok().filter(|quantile| (0.0..=1.0).contains(quantile));
                    query.quantile = quantile
                        .ok_or_else(|| format!("{key}: {:?} is not a number from 0 to 1", shown(&value)))?;
                }
                _ => query.limit = given.number(1, MAX_SUBJECTS)?,
            }
        }
        match (from, to, last) {
            (Some(_), _, Some(_)) => return Err("from and last exclude each other".to_owned()),
            (None, Some(_), None) => return Err("to needs from or last".to_owned()),
            (Some(from), Some(to), None) if to <= from => return Err("to must be later than from".to_owned()),
            (Some(from), to, None) => query.range = Range::Fixed(from, to),
            (None, Some(to), Some(last)) => {
                query.range = Range::Fixed(Timestamp(to.0.saturating_sub(milliseconds(last))), Some(to));
            }
            (None, None, Some(last)) => query.range = Range::Last(last),
            (None, None, None) => {}
        }
        Ok(query)
    }

    /// Returns the range of time.
    pub(super) fn window(&self, now: Timestamp) -> Window {
        let (from, to) = match self.range {
            Range::Last(last) => (Timestamp(now.0.saturating_sub(milliseconds(last))), now),
            Range::Fixed(from, to) => (from, to.unwrap_or(now)),
        };
        Window { from, to, step: self.step }
    }

    /// Returns the parameters of the range, for links.
    pub(super) fn range_text(&self) -> String {
        match self.range {
            Range::Last(last) => format!("last={}s", last.as_secs()),
            Range::Fixed(from, None) => format!("from={}", seconds(from)),
            Range::Fixed(from, Some(to)) => format!("from={}&to={}", seconds(from), seconds(to)),
        }
    }
}

/// Formats a time as a parameter: Unix seconds.
pub(in crate::export) fn seconds(time: Timestamp) -> String {
    format!("{}.{:03}", time.0 / 1000, time.0 % 1000)
}

/// Returns the address of the page of a subject.
pub(super) fn subject_address(scope: Scope, name: &str, more: &str) -> String {
    let mut address = format!("/{}?name=", scope.as_str());
    encode(name, &mut address);
    if !more.is_empty() {
        address.push('&');
        address.push_str(more);
    }
    address
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn parse(text: &str) -> Result<PageQuery, String> {
        PageQuery::parse(text, HISTORY, NOW)
    }

    #[test]
    fn a_query_is_read() {
        let query = parse(
            "scope=cgroup&name=/a%20b&figure=cpu,ipc&list=syscalls,preempted_by&from=-10m&to=-5m&step=10s&quantile=0.5&limit=3",
        );
        let expected = PageQuery {
            range: Range::Fixed(Timestamp(NOW.0 - 600_000), Some(Timestamp(NOW.0 - 300_000))),
            scope: Scope::Cgroup,
            name: Some("/a b".to_owned()),
            figures: vec![Figure::Cpu, Figure::Ipc],
            lists: vec![List::Calls, List::PreemptedBy],
            sort: Figure::Cpu,
            step: Some(10_000),
            quantile: 0.5,
            limit: 3,
        };
        assert_eq!(query, Ok(expected));
        assert_eq!(parse("last=15m").unwrap().range, Range::Last(Duration::from_secs(900)));
        let ended = parse("last=1m&to=1799999999.5").unwrap().range;
        assert_eq!(ended, Range::Fixed(Timestamp(1_799_999_939_500), Some(Timestamp(1_799_999_999_500))));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_can() {
        let figures = "cpu, ipc, cache_misses, runqueue_latency, preemptions, context_switches, migrations, page_faults, forks, \
                       syscalls, syscall_errors, block_latency, lost_records";
        for (text, error) in [
            ("scope=pod", "scope: \"pod\" must be one of machine, cgroup, program".to_owned()),
            (
                "list=calls",
                "list: \"calls\" must be one of states, preempted_by, preemption_causes, preempts, syscalls, syscall_errors, events"
                    .to_owned(),
            ),
            ("figure=cpu,x", format!("figure: \"x\" must be one of {figures}")),
            (
                "from=yesterday",
                "from: \"yesterday\" is neither a time in Unix seconds or RFC 3339 nor a time before now such as -10m".to_owned(),
            ),
            ("last=0s", "last: \"0s\" is not a duration such as 10s or 5m".to_owned()),
            ("from=-5m&to=-10m", "to must be later than from".to_owned()),
            ("to=-10m", "to needs from or last".to_owned()),
            ("from=-5m&last=5m", "from and last exclude each other".to_owned()),
            ("quantile=1.5", "quantile: \"1.5\" is not a number from 0 to 1".to_owned()),
            ("limit=0", "limit: \"0\" is not a number from 1 to 1000".to_owned()),
            ("limit=1&limit=2", "limit occurs twice".to_owned()),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        let error = PageQuery::parse("figure=cpu", PAGE, NOW).unwrap_err();
        assert_eq!(error, "unknown key \"figure\"; available: last, from, to, sort");
    }

    #[test]
    fn a_link_leads_to_the_same_range() {
        for text in ["last=900s", "from=1799999999.500", "from=1799999000.000&to=1799999999.500"] {
            assert_eq!(parse(text).unwrap().range_text(), text);
        }
    }

    proptest! {
        #[test]
        fn no_query_is_too_strange(text in any::<String>(), key in prop::sample::select(HISTORY)) {
            drop(parse(&text));
            drop(parse(&format!("{key}={text}")));
        }

        #[test]
        fn any_name_survives_a_link(name in "[^\\p{Cc}]{1,40}") {
            let address = subject_address(Scope::Cgroup, &name, "last=300s");
            let query = PageQuery::parse(address.split_once('?').unwrap().1, SUBJECT, NOW).unwrap();
            prop_assert_eq!(query.name, Some(name));
        }
    }
}
