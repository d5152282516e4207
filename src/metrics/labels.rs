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
    /// that comes twice the last value stays. A name that is none is made one, as Prometheus' service discovery does:
    /// `app.kubernetes.io/name` becomes `app_kubernetes_io_name`.
    pub fn new<N: Into<Arc<str>>, V: Into<Arc<str>>>(pairs: impl IntoIterator<Item = (N, V)>) -> Arc<Self> {
        let mut sorted: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        for (name, value) in pairs {
            let (name, value) = (fit_label_name(name.into()), value.into());
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

/// The name itself where it is allowed. `__…` belongs to Prometheus and `le` to the buckets of histograms; they get
/// `exported` in front, as names that clash with a target's do.
fn fit_label_name(name: Arc<str>) -> Arc<str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let reserved = name.starts_with("__") || &*name == "le" || &*name == "quantile";
    let starts = name.starts_with(|c: char| allowed(c) && !c.is_ascii_digit());
    if starts && !reserved && name.chars().all(allowed) {
        return name;
    }
    let fitted: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    let fitted = fitted.trim_start_matches('_');
    match (reserved, fitted.starts_with(|c: char| c.is_ascii_alphabetic())) {
        (true, _) => format!("exported_{fitted}").into(),
        (false, true) => fitted.into(),
        (false, false) => format!("_{fitted}").into(),
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
    use proptest::prelude::*;

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

    #[test]
    fn a_label_name_that_is_none_is_made_one() {
        let fitted = |name: &str| fit_label_name(name.into());
        assert_eq!(&*fitted("app.kubernetes.io/name"), "app_kubernetes_io_name");
        assert_eq!(&*fitted("__name__"), "exported_name__");
        assert_eq!(&*fitted("le"), "exported_le");
        assert_eq!(&*fitted("1st"), "_1st");
        assert_eq!(&*fitted(""), "_");
        assert_eq!(&*fitted("_private"), "_private");
    }

    proptest! {
        #[test]
        fn every_label_name_matches_the_grammar(name in "\\PC{0,20}") {
            let fitted = fit_label_name(name.as_str().into());
            let mut bytes = fitted.bytes();
            prop_assert!(bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_'));
            prop_assert!(bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_'));
            prop_assert!(!fitted.starts_with("__") && &*fitted != "le");
        }

        #[test]
        fn an_escaped_value_can_be_read_back(value in any::<String>()) {
            let escaped = escape_label(&value);
            prop_assert!(!escaped.contains('\n'));
            let mut chars = escaped.chars();
            let mut read = String::new();
            while let Some(c) = chars.next() {
                prop_assert_ne!(c, '"');
                match c {
                    '\\' => read.push(match chars.next() {
                        Some('n') => '\n',
                        Some(c) => c,
                        None => return Err(TestCaseError::fail("a backslash at the end")),
                    }),
                    c => read.push(c),
                }
            }
            prop_assert_eq!(read, value);
        }
    }
}
