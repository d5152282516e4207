//! Label sets, rendered once: the labels of a series live as long as what they name, and are printed at every scrape.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The labels of one series: sorted by name, each name once, with their text beside them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    pairs: Box<[(Arc<str>, Arc<str>)]>,
    /// `cgroup="/a",cpu="0"` with values escaped; what the text formats put between the braces.
    text: Box<str>,
}

impl Labels {
    /// Sorts and renders them. An empty value means an absent label, as in Prometheus, and is left out; of a name
    /// that comes twice the last value stays.
    pub fn new<N: Into<Arc<str>>, V: Into<Arc<str>>>(pairs: impl IntoIterator<Item = (N, V)>) -> Arc<Self> {
        let mut sorted: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        for (name, value) in pairs {
            let (name, value) = (name.into(), value.into());
            let place = sorted.binary_search_by(|pair| pair.0.cmp(&name));
            match (place, value.is_empty()) {
                (Ok(at), true) => drop(sorted.remove(at)),
                (Ok(at), false) => sorted[at].1 = value,
                (Err(_), true) => {}
                (Err(at), false) => sorted.insert(at, (name, value)),
            }
        }
        let mut text = String::new();
        for (name, value) in &sorted {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(name);
            text.push_str("=\"");
            text.push_str(&escape_label(value));
            text.push('"');
        }
        Arc::new(Self { pairs: sorted.into(), text: text.into() })
    }

    /// None at all.
    pub fn none() -> Arc<Self> {
        Self::new::<&str, &str>([])
    }

    /// Names and values, sorted by name.
    pub fn pairs(&self) -> &[(Arc<str>, Arc<str>)] {
        &self.pairs
    }

    /// The value of one label.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.pairs.binary_search_by(|pair| (*pair.0).cmp(name)).ok()?;
        Some(&self.pairs[at].1)
    }

    /// `a="1",b="2"`, escaped for the Prometheus text formats.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.text)
    }
}

/// A label value as it stands between quotes: backslash, quote and newline escaped.
///
/// Format: <https://prometheus.io/docs/instrumenting/exposition_formats/#comments-help-text-and-type-information>.
pub fn escape_label(value: &str) -> Cow<'_, str> {
    escape(value, &['\\', '"', '\n'])
}

/// A help text as the 0.0.4 format wants it: backslash and newline escaped. (OpenMetrics escapes quotes as well, as
/// [`escape_label`] does.)
pub fn escape_help(text: &str) -> Cow<'_, str> {
    escape(text, &['\\', '\n'])
}

fn escape<'t>(text: &'t str, special: &[char]) -> Cow<'t, str> {
    if !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            c if special.contains(&c) => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_deduplicated_and_escaped_once() {
        let labels = Labels::new([
            ("cpu", "1"),
            ("cgroup", r"/system.slice/a\x2db.service"),
            ("cpu", "0"),
            ("pod", ""),
        ]);
        assert_eq!(labels.text(), r#"cgroup="/system.slice/a\\x2db.service",cpu="0""#);
        assert_eq!(labels.get("cpu"), Some("0"));
        assert_eq!(labels.get("pod"), None);
    }

    #[test]
    fn hostile_values_cannot_leave_their_quotes() {
        assert_eq!(escape_label("a\"} 1\n\\"), "a\\\"} 1\\n\\\\");
        assert_eq!(escape_help("a \"b\"\nc"), "a \"b\"\\nc");
    }
}
