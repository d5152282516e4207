//! Content negotiation: `Accept` and `Accept-Encoding` (RFC 9110, section 12.5).
//!
//! A client that requests only unsupported formats gets text 0.0.4. For a scraper with an unusual header, a universal format is more useful
//! than an error.

use super::{prometheus, protobuf};

/// Maximum number of alternatives read from a header. Real scrapers send at most five.
const ALTERNATIVES: usize = 32;

/// Format of served metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A text format.
    Text(prometheus::Format),
    /// Delimited protobuf, with native histograms.
    Protobuf,
}

impl Format {
    /// Returns the value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text(format) => format.content_type(),
            Self::Protobuf => protobuf::CONTENT_TYPE,
        }
    }
}

/// Returns the format preferred by the values of `Accept`.
pub fn format<'h>(accept: impl IntoIterator<Item = &'h str>) -> Format {
    // A media range is not a specific format and selects the universal text format. Of equal qualities the first is used.
    let mut best = (0, Format::Text(prometheus::Format::Text));
    for item in alternatives(accept) {
        let Some(format) = format_of(&item) else { continue };
        if item.quality > best.0 {
            best = (item.quality, format);
        }
    }
    best.1
}

/// Reports whether the values of `Accept-Encoding` prefer gzip to identity, or accept both equally.
pub fn gzip<'h>(accept_encoding: impl IntoIterator<Item = &'h str>) -> bool {
    let (mut gzip, mut any, mut identity) = (None, None, 0);
    for item in alternatives(accept_encoding) {
        match item.name {
            name if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => {
                gzip = Some(item.quality);
            }
            "*" => any = Some(item.quality),
            name if name.eq_ignore_ascii_case("identity") => identity = item.quality,
            _ => {}
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && gzip >= identity
}

fn format_of(item: &Alternative<'_>) -> Option<Format> {
    let text = match (item.name.to_ascii_lowercase().as_str(), item.version) {
        ("application/openmetrics-text", Some("1.0.0") | None) => prometheus::Format::OpenMetrics100,
        ("application/openmetrics-text", Some("0.0.1")) => prometheus::Format::OpenMetrics001,
        ("text/plain", Some("0.0.4") | None) | ("text/*" | "*/*", _) => prometheus::Format::Text,
        // The media type alone does not determine the message type or the delimiting.
        ("application/vnd.google.protobuf", _) if item.is_metric_family && item.is_delimited => {
            return Some(Format::Protobuf);
        }
        _ => return None,
    };
    Some(Format::Text(text))
}

/// An item of a header with accepted alternatives.
#[derive(Debug, PartialEq, Eq)]
struct Alternative<'h> {
    /// Text before the parameters.
    name: &'h str,
    /// Parameter `version`.
    version: Option<&'h str>,
    /// Whether the parameter `proto=io.prometheus.client.MetricFamily` is present.
    is_metric_family: bool,
    /// Whether the parameter `encoding=delimited` is present.
    is_delimited: bool,
    /// Parameter `q` in thousandths; 1000 if absent, 0 if invalid.
    quality: u16,
}

fn alternatives<'h>(values: impl IntoIterator<Item = &'h str>) -> impl Iterator<Item = Alternative<'h>> {
    values.into_iter().flat_map(|value| value.split(',')).take(ALTERNATIVES).map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let mut alternative =
            Alternative { name, version: None, is_metric_family: false, is_delimited: false, quality: 1000 };
        for (key, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            let value = value.trim_start().trim_matches('"');
            match key.trim_end().to_ascii_lowercase().as_str() {
                "q" => alternative.quality = quality(value).unwrap_or(0),
                "version" => alternative.version = Some(value),
                "proto" => alternative.is_metric_family = value == "io.prometheus.client.MetricFamily",
                "encoding" => alternative.is_delimited = value == "delimited",
                _ => {}
            }
        }
        alternative
    })
}

/// Parses a quality value, `0`, `0.5`, `1.000`, as thousandths.
fn quality(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1") || fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let thousandths: u16 = format!("{fraction:0<3}").parse().ok()?;
    Some(if whole == "1" { 1000 } else { thousandths })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::prometheus::Format::{OpenMetrics001, OpenMetrics100, Text};

    #[test]
    fn the_format_is_what_the_scraper_prefers() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                      application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        let prometheus_3_native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                                   encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;\
                                   escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        let table = [
            (prometheus_2, Format::Text(OpenMetrics100)),
            (native, Format::Protobuf),
            (prometheus_3, Format::Text(OpenMetrics100)),
            (prometheus_3_native, Format::Protobuf),
            (browser, Format::Text(Text)),
            ("", Format::Text(Text)),
            ("*/*", Format::Text(Text)),
            ("text/*", Format::Text(Text)),
            ("application/json", Format::Text(Text)),
            ("application/openmetrics-text", Format::Text(OpenMetrics100)),
            ("Application/OpenMetrics-Text; Version=\"0.0.1\"", Format::Text(OpenMetrics001)),
            ("application/openmetrics-text; version=2.0.0", Format::Text(Text)),
            ("application/openmetrics-text;version=1.0.0;q=0", Format::Text(Text)),
            ("application/openmetrics-text;q=0.4, text/plain;q=0.5", Format::Text(Text)),
            ("application/vnd.google.protobuf", Format::Text(Text)),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
                Format::Text(Text),
            ),
            ("application/vnd.google.protobuf;proto=other;encoding=delimited", Format::Text(Text)),
            (
                "application/vnd.google.protobuf; Encoding = \"delimited\"; proto = io.prometheus.client.MetricFamily",
                Format::Protobuf,
            ),
            ("text/plain;q=0.4 , application/openmetrics-text ; q = 0.5", Format::Text(OpenMetrics100)),
            ("application/openmetrics-text;q=nonsense", Format::Text(Text)),
        ];
        for (accept, expected) in table {
            assert_eq!(format([accept]), expected, "{accept}");
        }
        assert_eq!(
            format(["text/plain;q=0.5", "application/openmetrics-text"]),
            Format::Text(OpenMetrics100)
        );
        assert_eq!(format([]), Format::Text(Text));
    }

    #[test]
    fn gzip_is_used_where_it_is_wanted() {
        let table = [
            ("gzip", true),
            ("gzip, deflate, br", true),
            ("GZIP;q=0.5", true),
            ("x-gzip", true),
            ("*", true),
            ("", false),
            ("br", false),
            ("gzip;q=0", false),
            ("gzip;q=0.000, *", false),
            ("*;q=0", false),
            ("identity, gzip;q=0.5", false),
            ("identity;q=0.5, gzip", true),
            ("gzip;q=2", false),
        ];
        for (accept, expected) in table {
            assert_eq!(gzip([accept]), expected, "{accept}");
        }
        assert!(!gzip([]));
    }

    #[test]
    fn only_the_first_alternatives_count() {
        let hostile = "a/b,".repeat(100_000) + "application/openmetrics-text";
        assert_eq!(format([hostile.as_str()]), Format::Text(Text));
    }

    #[test]
    fn a_quality_has_three_digits_at_most() {
        let table = [
            ("1", Some(1000)),
            ("0.5", Some(500)),
            ("0.05", Some(50)),
            ("1.000", Some(1000)),
            ("0.", Some(0)),
            ("0.0001", None),
            ("2", None),
            ("", None),
            ("-1", None),
            ("0.5x", None),
        ];
        for (text, expected) in table {
            assert_eq!(quality(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_header_is_too_strange(header in "[ -~]{0,80}") {
            let _ = (format([header.as_str()]), gzip([header.as_str()]));
        }

        #[test]
        fn what_is_preferred_wins_wherever_it_stands(other in 1u16..500, swap in any::<bool>()) {
            let mut items =
                ["application/openmetrics-text;version=1.0.0;q=0.5".to_owned(), format!("text/plain;q=0.{other:03}")];
            if swap {
                items.reverse();
            }
            prop_assert_eq!(format([items.join(",").as_str()]), Format::Text(OpenMetrics100));
        }
    }
}
