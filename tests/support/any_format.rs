//! Invariants for a format of arbitrary text, a record of arbitrary bytes, and a filter of arbitrary text. Called by a fuzz target and by a
//! test that keeps the target working.

use perf_exporter::event::filter;
use perf_exporter::event::format::{Format, Value};

/// Checks a format, a filter and a record. They are the parts of the input between the first bytes of 0xff, a byte that no UTF-8 text
/// contains.
pub(crate) fn holds(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0xff);
    let mut part = || parts.next().unwrap_or_default();
    let (text, wanted, raw) = (part(), part(), part());
    let Ok(format) = Format::parse(&String::from_utf8_lossy(text)) else { return };
    for field in format.fields() {
        assert!(format.field(&field.name).is_some());
        assert!(text.len() >= field.declaration.len());
        if let Some(value) = field.value(raw) {
            assert_eq!(matches!(value, Value::Bytes(_)), !field.is_number());
            if let Value::Bytes(bytes) = value {
                assert!(bytes.len() <= raw.len() && !(field.is_text() && bytes.contains(&0)));
            }
            // A name can be as long as the text, and each bit can have a name.
            assert!(field.render(&value).len() <= 5 * raw.len() + 64 * text.len() + 64);
        }
    }
    let wanted = String::from_utf8_lossy(wanted);
    if let Err(error) = filter::check(&wanted, &format) {
        assert!(error.at <= wanted.len());
        assert!(format!("{error}{error:#}").lines().count() == 3);
    }
}
