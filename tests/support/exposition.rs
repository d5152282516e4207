//! A strict parser of the two text formats, Prometheus text 0.0.4 and OpenMetrics 1.0, independent of the writer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One scrape.
#[derive(Default, PartialEq)]
pub(crate) struct Exposition {
    samples: BTreeMap<Series, f64>,
}

/// Name and labels of a series.
type Series = (String, BTreeMap<String, String>);

/// Suffixes that the samples of a family may have after its name.
const SUFFIXES: [&str; 6] = ["", "_total", "_info", "_bucket", "_sum", "_count"];

impl Exposition {
    /// Parses a scrape.
    ///
    /// # Errors
    /// Returns the first violation of the format: missing metadata, a duplicate series, an invalid name, a family in two parts, or text
    /// after `# EOF`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut exposition = Self::default();
        let (mut family, mut families, mut ended) = (None::<String>, BTreeSet::new(), false);
        for line in text.strip_suffix('\n').ok_or("the last line is not ended")?.split('\n') {
            let wrong = |why: &str| Err(format!("{why}: {line}"));
            if ended {
                return wrong("a line after the end");
            }
            if line == "# EOF" {
                ended = true;
            } else if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (Some("HELP" | "TYPE" | "UNIT"), Some(name), Some(_)) =
                    (words.next(), words.next(), words.next())
                else {
                    return wrong("no metadata");
                };
                if family.as_deref() != Some(name) && !families.insert(name.to_owned()) {
                    return wrong("a family that is in two places");
                }
                family = Some(name.to_owned());
            } else {
                let (series, value) = sample(line).ok_or_else(|| format!("no sample: {line}"))?;
                let own =
                    |family: &String| SUFFIXES.iter().any(|suffix| format!("{family}{suffix}") == series.0);
                if !family.as_ref().is_some_and(own) {
                    return wrong("a sample outside of its family");
                }
                if exposition.samples.insert(series, value).is_some() {
                    return wrong("a series that comes twice");
                }
            }
        }
        Ok(exposition)
    }

    /// Returns the value of the only series with this name and these labels; further labels are ignored.
    ///
    /// # Panics
    /// If several series match.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let found: Vec<_> = self.with(name, labels).collect();
        assert!(found.len() <= 1, "{name} {labels:?} is {found:?}");
        found.first().map(|(_, value)| **value)
    }

    /// Returns the sum over the series with this name and these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.with(name, labels).map(|(_, value)| value).sum()
    }

    /// Returns the name and the labels of each series.
    #[allow(dead_code, reason = "not every target looks at all series")]
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, String>)> {
        self.samples.keys().map(|(name, labels)| (name.as_str(), labels))
    }

    /// Returns the labels of each series with this name.
    #[allow(dead_code, reason = "not every target looks at all labels")]
    pub(crate) fn series<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a BTreeMap<String, String>> {
        self.with(name, &[]).map(|(series, _)| &series.1)
    }

    /// Returns the value of a label in each series with this name, and the value of the series.
    #[allow(dead_code, reason = "not every target looks at all values of a label")]
    pub(crate) fn by<'a>(&'a self, name: &'a str, label: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.by_with(name, &[], label)
    }

    /// Returns the same for the series that also have these labels.
    #[allow(dead_code, reason = "not every target looks at all values of a label")]
    pub(crate) fn by_with<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
        label: &'a str,
    ) -> impl Iterator<Item = (&'a str, f64)> {
        let with = self.with(name, labels);
        with.filter_map(move |(series, value)| Some((series.1.get(label)?.as_str(), *value)))
    }

    fn with<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = (&'a Series, &'a f64)> {
        let has = move |series: &Series| {
            series.0 == name
                && labels.iter().all(|(key, value)| series.1.get(*key).is_some_and(|is| is == value))
        };
        self.samples.iter().filter(move |(series, _)| has(series))
    }
}

/// Writes one line for each series, without the metrics of the exporter itself.
impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |name: &str| name.starts_with("perf_") && !name.starts_with("perf_exporter_");
        for ((name, labels), value) in self.samples.iter().filter(|((name, _), _)| counted(name)) {
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}={value:?}")).collect();
            write!(f, "\n{name}{{{}}} {value}", labels.join(","))?;
        }
        Ok(())
    }
}

/// Parses `name{label="value",…} value`.
fn sample(line: &str) -> Option<(Series, f64)> {
    let name_end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = BTreeMap::new();
    if let Some(list) = rest.strip_prefix('{') {
        rest = list;
        while !rest.starts_with('}') {
            let (label, value, after) = label(rest.strip_prefix(',').unwrap_or(rest))?;
            labels.insert(label, value).is_none().then_some(())?;
            rest = after;
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(())?;
    Some(((name.to_owned(), labels), value))
}

/// Parses `label="value"` with its escapes. Returns the name, the value and the remaining text.
fn label(text: &str) -> Option<(String, String, &str)> {
    let (name, quoted) = text.split_once("=\"")?;
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    loop {
        match characters.next()? {
            (end, '"') => return Some((name.to_owned(), value, &quoted[end + 1..])),
            (_, '\\') => value.push(match characters.next()?.1 {
                'n' => '\n',
                plain @ ('\\' | '"') => plain,
                _ => return None,
            }),
            (_, plain) => value.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_with_their_escapes() {
        let text =
            "# HELP a_total Help.\n# TYPE a_total counter\na_total{cgroup=\"/x\\\\x2d\\\"\",cpu=\"0\"} 7\n";
        let read = Exposition::parse(text).unwrap();
        assert_eq!(read.value("a_total", &[("cgroup", "/x\\x2d\"")]), Some(7.0));
        assert_eq!(read.value("a_total", &[("cpu", "1")]), None);
    }

    #[test]
    fn what_is_against_the_format_is_an_error() {
        for (text, error) in [
            ("a 1\n", "outside of its family"),
            ("# TYPE a gauge\na 1\na 2\n", "comes twice"),
            ("# TYPE a gauge\na one\n", "no sample"),
            ("# TYPE a gauge\na{b=\"1} 1\n", "no sample"),
            ("# TYPE a gauge\na 1\n# EOF\na 2\n", "after the end"),
            ("# TYPE a gauge\n# TYPE b gauge\n# TYPE a gauge\n", "two places"),
            ("# TYPE a gauge\na 1", "not ended"),
        ] {
            assert!(Exposition::parse(text).unwrap_err().contains(error), "{text:?}");
        }
    }
}
