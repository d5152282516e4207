//! Tests of the spans of scrapes.

use opentelemetry::trace::Status;

use super::*;
use crate::span::tests::Kept;

#[test]
fn a_scrape_has_a_span_with_its_status_code_and_other_requests_have_none() {
    let mut running = Running::new(program(snapshot(1, 1)));
    let kept = Kept::of(&running.spans);
    let length = running.ask("GET /metrics?name=ignored HTTP/1.1").body.len();
    for path in ["/-/healthy", "/status", "/nothing"] {
        running.ask(&format!("GET {path} HTTP/1.1"));
    }
    running.ask("BREW /metrics HTTP/1.1");
    running.stop();
    let span = |method: &str, code: u16, length: usize| {
        let attributes = [
            format!("http.request.method={method}"),
            format!("http.response.body.size={length}"),
            format!("http.response.status_code={code}"),
            "url.path=/metrics".to_owned(),
            "url.scheme=http".to_owned(),
        ];
        ("scrape".to_owned(), Status::Unset, attributes.to_vec())
    };
    let told = kept.told();
    assert_eq!(told[0], span("GET", 200, length));
    let refusal = told[1].2.iter().any(|pair| pair == "http.request.method=_OTHER");
    assert!(refusal && told.len() == 2, "{told:?}");
}

#[test]
fn a_scrape_without_metrics_is_an_error() {
    let unavailable = Some(Err(Unavailable("nothing yet".to_owned())));
    let mut running = Running::new(Program { snapshot: unavailable, ..program(snapshot(1, 1)) });
    let kept = Kept::of(&running.spans);
    assert_eq!(running.ask("GET /metrics HTTP/1.1").code(), 503);
    running.stop();
    let told = kept.told();
    assert_eq!((told.len(), &told[0].1), (1, &Status::error("")));
    assert!(told[0].2.contains(&"error.type=503".to_owned()), "{told:?}");
}
