//! Invariants for the headers and the query of an arbitrary request. Called by a fuzz target and by a test that keeps the target working.

use perf_exporter::export::query::{FLAMEGRAPH, FOLDED, PPROF, Query, TOP};
use perf_exporter::export::{negotiate, prometheus};

/// Checks an `Accept` header, an `Accept-Encoding` header and a query. They are the parts of the input between the first bytes of 0xff, a
/// byte that no UTF-8 text contains.
pub(crate) fn holds(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0xff).map(String::from_utf8_lossy);
    let mut part = || parts.next().unwrap_or_default();
    let (accept, encoding, query) = (part(), part(), part());
    let format = negotiate::format([&*accept]);
    assert!(!format.content_type().is_empty());
    // Preceding formats that are not supported change nothing.
    if accept.len() < 100 && format != negotiate::Format::Text(prometheus::Format::Text) {
        assert_eq!(negotiate::format(["application/json;q=0.9", &*accept]), format);
    }
    negotiate::gzip([&*encoding]);
    for own in [PPROF, FOLDED, FLAMEGRAPH, TOP] {
        match Query::parse(&query, own) {
            Ok(parsed) => {
                let link = parsed.link("/top", &[]);
                let (_, again) = link.split_once('?').unwrap_or((&link, ""));
                // A link may be longer than a query may be, because it encodes more characters.
                if again.len() <= query.len() {
                    let again = Query::parse(again, own).unwrap();
                    assert_eq!((&again.kind, again.seconds), (&parsed.kind, parsed.seconds));
                    assert_eq!(again.selection, parsed.selection);
                }
                let address = parsed.address("/top");
                let (_, again) = address.split_once('?').unwrap_or((&address, ""));
                if again.len() <= query.len() {
                    assert_eq!(Query::parse(again, own), Ok(parsed));
                }
            }
            Err(reason) => assert!(!reason.contains(char::is_control), "{reason:?}"),
        }
    }
}
