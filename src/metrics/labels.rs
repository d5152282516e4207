//! Label sets, rendered once. The labels of a series live as long as the series and are printed at every scrape.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The labels of one series: sorted by name, without duplicates, rendered as text and as protobuf. Only the protobuf form stores names and
/// values.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels {
    /// Both forms in one allocation: first the text, then the protobuf.
    forms: Box<[u8]>,
    /// Length of the text in bytes.
    text: usize,
}

impl Labels {
    /// Sorts and renders the labels. Control characters of values are replaced by their pictures. A label with an empty value is dropped,
    /// because Prometheus treats it as absent. Of duplicate names the last value is kept.
    /// An invalid name is converted as Prometheus' service discovery does it: `app.kubernetes.io/name` becomes
    /// `app_kubernetes_io_name`.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> Arc<Self> {
        let mut sorted: Vec<(String, V)> = Vec::new();
        for (name, value) in pairs {
            let name = fit_label_name(name.as_ref()).into_owned();
            let place = sorted.binary_search_by(|pair| pair.0.cmp(&name));
            match (place, value.as_ref().is_empty()) {
                (Ok(at), true) => drop(sorted.remove(at)),
                (Ok(at), false) => sorted[at].1 = value,
                (Err(_), true) => {}
                (Err(at), false) => sorted.insert(at, (name, value)),
            }
        }
        let (mut text, mut protobuf, mut pair) = (String::new(), Vec::new(), Vec::new());
        for (name, value) in &sorted {
            let value = &*without_controls(value.as_ref());
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(name);
            text.push_str("=\"");
            text.push_str(&escape_label(value));
            text.push('"');
            pair.clear();
            push_field(1, name.as_bytes(), &mut pair);
            push_field(2, value.as_bytes(), &mut pair);
            push_field(1, &pair, &mut protobuf);
        }
        let forms = [text.as_bytes(), &protobuf].concat().into();
        Arc::new(Self { forms, text: text.len() })
    }

    /// Returns the empty label set.
    pub fn none() -> Arc<Self> {
        Self::new::<&str, &str>([])
    }

    /// Returns names and values, sorted by name.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        // Always valid UTF-8: the bytes were rendered from strings.
        let text = |bytes| str::from_utf8(bytes).unwrap_or_default();
        self.raw_pairs().map(move |(name, value)| (text(name), text(value)))
    }

    /// Returns the value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs().find(|pair| pair.0 == name).map(|pair| pair.1)
    }

    /// Returns `a="1",b="2"`, escaped for the Prometheus text formats.
    pub fn text(&self) -> &str {
        // Always valid UTF-8: the bytes were rendered as text.
        str::from_utf8(self.text_bytes()).unwrap_or_default()
    }

    /// Returns the bytes of [`text`](Self::text) without checking the encoding.
    pub fn text_bytes(&self) -> &[u8] {
        self.forms.get(..self.text).unwrap_or_default()
    }

    /// Returns the labels as fields `label` (1) of the protobuf message `io.prometheus.client.Metric`. Each field is a `LabelPair` of
    /// `name` (1) and `value` (2).
    pub fn protobuf(&self) -> &[u8] {
        self.forms.get(self.text..).unwrap_or_default()
    }

    /// Returns the memory of the label set in bytes, including allocator overhead.
    pub fn bytes(&self) -> usize {
        const OVERHEAD: usize = 2 * 16;
        size_of::<Self>() + self.forms.len() + OVERHEAD
    }

    fn raw_pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.protobuf();
        std::iter::from_fn(move || {
            let mut pair = take_field(&mut rest)?;
            Some((take_field(&mut pair)?, take_field(&mut pair)?))
        })
    }
}

/// Orders by the first name or value that differs.
impl Ord for Labels {
    fn cmp(&self, other: &Self) -> Ordering {
        self.raw_pairs().cmp(other.raw_pairs())
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.text())
    }
}

/// Appends a length-delimited field (bytes, a string or a message): number and wire type, length, content.
fn push_field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    // A vector has room for every length.
    prost::encode_length_delimiter(bytes.len(), out).ok();
    out.extend_from_slice(bytes);
}

/// Removes the first field and returns its content. Returns `None` at the end.
fn take_field<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (_, mut after) = rest.split_first()?;
    let length = prost::decode_length_delimiter(&mut after).ok()?;
    let (content, next) = after.split_at_checked(length)?;
    *rest = next;
    Some(content)
}

/// Returns a valid label name: the name itself where it is valid. `__…` is reserved for Prometheus, `le` and `quantile` for the samples of
/// histograms and summaries. Such names get the prefix `exported`, like names that conflict with labels of a scrape target.
pub fn fit_label_name(name: &str) -> Cow<'_, str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let reserved = name.starts_with("__") || name == "le" || name == "quantile";
    let starts = name.starts_with(|c: char| allowed(c) && !c.is_ascii_digit());
    if starts && !reserved && name.chars().all(allowed) {
        return Cow::Borrowed(name);
    }
    let fitted: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    let fitted = fitted.trim_start_matches('_');
    match (reserved, fitted.starts_with(|c: char| c.is_ascii_alphabetic())) {
        (true, _) => format!("exported_{fitted}").into(),
        (false, true) => fitted.to_owned().into(),
        (false, false) => format!("_{fitted}").into(),
    }
}

/// First of the control pictures: the characters U+2400 to U+2421 show the control characters of ASCII. The picture of NUL marks other
/// characters, because no name contains NUL.
const PICTURES: char = '\u{2400}';

/// Replaces control characters except newline, which the text formats escape, by their pictures (ESC by `␛`), so that a name cannot
/// control the terminal of a user who reads `/metrics`. Different values stay different, so two series cannot become one: a picture in
/// `value` itself and a C1 control character (as the letter 64 above it) follow the mark `␀`.
pub(crate) fn without_controls(value: &str) -> Cow<'_, str> {
    // Fast path: most values are printable ASCII, and this check is vectorized.
    if value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Cow::Borrowed(value);
    }
    let is_picture = |c: char| ('\u{2400}'..='\u{2421}').contains(&c);
    if !value.contains(|c: char| (c.is_control() && c != '\n') || is_picture(c)) {
        return Cow::Borrowed(value);
    }
    let mut visible = String::with_capacity(value.len() + 8);
    for c in value.chars() {
        match u32::from(c) {
            0x0a => visible.push('\n'),
            code @ 0..0x20 => visible.extend(char::from_u32(u32::from(PICTURES) + code)),
            0x7f => visible.push('\u{2421}'),
            code @ 0x80..0xa0 => {
                visible.extend([Some(PICTURES), char::from_u32(code - 0x40)].into_iter().flatten());
            }
            _ if is_picture(c) => visible.extend([PICTURES, c]),
            _ => visible.push(c),
        }
    }
    Cow::Owned(visible)
}

/// Escapes backslash, quote and newline in a label value.
///
/// Format: <https://prometheus.io/docs/instrumenting/exposition_formats/#comments-help-text-and-type-information>.
pub fn escape_label(value: &str) -> Cow<'_, str> {
    escape(value, &['\\', '"', '\n'])
}

/// Escapes backslash and newline in a help text, as the 0.0.4 format requires. (OpenMetrics also escapes quotes, as [`escape_label`] does.)
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
    fn control_characters_are_shown_as_pictures() {
        assert_eq!(without_controls("\u{1b}[31mred\u{7}\t\n\u{7f}"), "␛[31mred␇␉\n␡");
        assert_eq!(without_controls("a\u{9b}m ␛"), "a␀[m ␀␛");
        assert!(matches!(without_controls("/system.slice/a\\x2db é"), Cow::Borrowed(_)));
        assert_eq!(Labels::new([("comm", "a\u{1b}")]).text(), "comm=\"a␛\"");
    }

    #[test]
    fn a_label_name_that_is_none_is_made_one() {
        let fitted = |name| fit_label_name(name);
        assert_eq!(&*fitted("app.kubernetes.io/name"), "app_kubernetes_io_name");
        assert_eq!(&*fitted("__name__"), "exported_name__");
        assert_eq!(&*fitted("le"), "exported_le");
        assert_eq!(&*fitted("1st"), "_1st");
        assert_eq!(&*fitted(""), "_");
        assert_eq!(&*fitted("_private"), "_private");
    }

    #[test]
    fn label_sets_are_ordered_by_the_first_pair_that_differs() {
        let ascending: [&[(&str, &str)]; 6] = [
            &[],
            &[("a", "10")],
            &[("a", "10"), ("b", "1")],
            &[("a", "9")],
            &[("a", "9"), ("b", "\"")],
            &[("b", "")],
        ];
        let labels = ascending.map(|pairs| Labels::new(pairs.iter().copied()));
        assert!(labels[..5].is_sorted_by(|a, b| a < b));
        assert_eq!(labels[5], labels[0]);
    }

    proptest! {
        #[test]
        fn labels_are_read_as_they_were_given(
            given in prop::collection::btree_map("[a-z]{3,8}", "\\PC{1,300}", 0..6)
        ) {
            let labels = Labels::new(&given);
            let shown: Vec<_> = given.iter().map(|(name, value)| (name.as_str(), without_controls(value))).collect();
            prop_assert!(labels.pairs().eq(shown.iter().map(|(name, value)| (*name, &**value))));
            for (name, value) in &shown {
                prop_assert_eq!(labels.get(name), Some(&**value));
            }
        }

        #[test]
        fn different_values_without_nul_stay_different(
            [one, other] in prop::array::uniform2("[\n\u{1}-\u{3}\u{240a}@-C\u{80}-\u{83}\u{2400}-\u{2403}]{0,4}")
        ) {
            let [shown, of_other] = [&one, &other].map(|value| without_controls(value));
            prop_assert_eq!(one == other, shown == of_other);
            prop_assert!(!shown.contains(|c: char| c.is_control() && c != '\n'));
        }

        #[test]
        fn every_label_name_matches_the_grammar(name in "\\PC{0,20}") {
            let fitted = fit_label_name(&name);
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
