//! The section `export.remote_write` and its checked form.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    INTERVAL, INTERVALS, QUEUE_MAX, QUEUE_MIN, Section, TIMEOUTS, WrittenTls, address, headers, pairs, queue,
    tls,
};
use crate::config::decode::At;
use crate::config::problem::shown;
use crate::config::report::Report;
use crate::config::value::{Period, Size, Texts};
use crate::metrics::fit_label_name;
use crate::net::tls::Tls;

/// Prometheus remote write destination.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "RemoteWrite", deny_unknown_fields)]
pub(in crate::config) struct Written {
    /// URL of the receiver, with its path. For Prometheus the path is `/api/v1/write`, with `--web.enable-remote-write-receiver`.
    #[schemars(extend("examples" = ["http://prometheus:9090/api/v1/write", "https://mimir.example.com/api/v1/push"]))]
    pub(in crate::config) url: At<String>,
    /// Headers of each request.
    #[schemars(extend("examples" = [{"x-scope-orgid": "team-a"}]))]
    pub(in crate::config) headers: Option<At<Texts>>,
    /// File with a bearer token, which is sent as `Authorization: Bearer …`. It is read for each request.
    pub(in crate::config) credentials_file: Option<At<String>>,
    /// Response timeout of the receiver: 100ms to 10m; `30s` by default.
    pub(in crate::config) timeout: Option<At<Period>>,
    /// Certificates, for `https`.
    pub(in crate::config) tls: Option<WrittenTls>,
    /// Memory for queued requests: 1MiB to 4GiB; `32MiB` by default. When it is full, the oldest requests are dropped and counted.
    #[schemars(extend("minimum" = QUEUE_MIN, "maximum" = QUEUE_MAX))]
    pub(in crate::config) queue: Option<At<Size>>,
    /// Push interval of metrics: 1s to 1h; `15s` by default.
    pub(in crate::config) interval: Option<At<Period>>,
    /// External labels: labels that are added to all series that do not have them. By default `job` is `perf-exporter` and `instance` is
    /// the name of the node. An empty value removes a label.
    #[schemars(extend("examples" = [{"cluster": "eu-1"}]))]
    pub(in crate::config) labels: Option<At<Texts>>,
}

/// Prometheus remote write destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteWrite {
    /// URL of the receiver.
    pub url: Uri,
    /// Headers of each request.
    pub headers: Vec<(String, String)>,
    /// File with the bearer token.
    pub credentials_file: Option<PathBuf>,
    /// Response timeout.
    pub timeout: Duration,
    /// Certificates.
    pub tls: Tls,
    /// Maximum memory of queued requests, in bytes.
    pub queue: u64,
    /// Push interval of metrics.
    pub interval: Duration,
    /// External labels.
    pub labels: Vec<(String, String)>,
}

const TIMEOUT: Period = Period::seconds(30);

impl Section for RemoteWrite {
    type Written = Written;

    fn check(At { value: written, .. }: &At<Written>, report: &mut Report<'_>) -> Self {
        let headers = headers(&written.headers, report);
        if let Some(file) = &written.credentials_file
            && headers.iter().any(|(name, _)| name == "authorization")
        {
            report.error(file.node, "`headers` also contains `Authorization`", "remove one of them");
        }
        Self {
            url: receiver(&written.url, report),
            headers,
            credentials_file: written.credentials_file.as_ref().map(|at| PathBuf::from(&at.value)),
            timeout: report.setting(&written.timeout, TIMEOUTS, TIMEOUT).0,
            tls: tls(&written.tls, report),
            queue: queue(&written.queue, report),
            interval: report.setting(&written.interval, INTERVALS, INTERVAL).0,
            labels: labels(&written.labels, report),
        }
    }
}

/// Returns the URL, or the default URI for an invalid one, which is reported.
fn receiver(at: &At<String>, report: &mut Report<'_>) -> Uri {
    const EXAMPLE: &str = "use the form `http://prometheus:9090/api/v1/write`";
    let secret = at.contains('@');
    let hint = if secret { "set them in `headers` or `credentials_file`" } else { EXAMPLE };
    let Some(uri) = address(at, |_| hint.to_owned(), report) else { return Uri::default() };
    if uri.path() == "/" {
        report.warning(at.node, "the URL has no path", EXAMPLE);
    }
    uri
}

fn labels(written: &Option<At<Texts>>, report: &mut Report<'_>) -> Vec<(String, String)> {
    pairs(written, ("labels", 32, 1024), report, |name, value, report| {
        let fitted = fit_label_name(name);
        if fitted != name.value {
            let message = format!("{} is not a valid label name", shown(name));
            report.error(value.node, message, format!("write {}", shown(&fitted)));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{good, report};

    fn remote_write(text: &str) -> RemoteWrite {
        good(&format!("export: {{remote_write: {text}}}")).push.remote_write.unwrap()
    }

    #[test]
    fn a_url_is_enough() {
        let expected = RemoteWrite {
            url: "http://p:9090/api/v1/write".parse().unwrap(),
            headers: vec![],
            credentials_file: None,
            timeout: Duration::from_secs(30),
            tls: Tls::default(),
            queue: 32 << 20,
            interval: Duration::from_secs(15),
            labels: vec![],
        };
        assert_eq!(remote_write("{url: 'http://p:9090/api/v1/write'}"), expected);
        assert_eq!(good("export: {remote_write: {url: 'http://p/w'}}").push.otlp, None);
    }

    #[test]
    fn all_settings_are_read() {
        let all = remote_write(
            "{url: 'https://p/w', headers: {X-A: b}, credentials_file: /t, timeout: 3s, tls: {ca: /a}, queue: 1MiB, \
             interval: 1m, labels: {cluster: c, instance: ''}}",
        );
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let expected = RemoteWrite {
            url: "https://p/w".parse().unwrap(),
            headers: vec![pair("x-a", "b")],
            credentials_file: Some("/t".into()),
            timeout: Duration::from_secs(3),
            tls: Tls { ca: Some("/a".into()), ..Tls::default() },
            queue: 1 << 20,
            interval: Duration::from_secs(60),
            labels: vec![pair("cluster", "c"), pair("instance", "")],
        };
        assert_eq!(all, expected);
    }

    #[test]
    fn problems_are_reported_with_what_helps() {
        let said = |text: &str| report(&format!("export: {{remote_write: {{{text}}}}}"));
        assert!(said("interval: 5s").contains("url"), "{}", said("interval: 5s"));
        for (text, part) in [
            ("url: 'p:9090'", "has no scheme; use the form `http://prometheus:9090/api/v1/write`"),
            (
                "url: 'http://p:9090'",
                "the URL has no path; use the form `http://prometheus:9090/api/v1/write`",
            ),
            ("url: 'http://a:b@p/w'", "are not sent; set them in `headers` or `credentials_file`"),
            ("url: 'http://p/w', interval: 100ms", "100ms is not between 1s and 3600s; the default is 15s"),
            ("url: 'http://p/w', labels: {a-b: c}", "`a-b` is not a valid label name; write `a_b`"),
            (
                "url: 'http://p/w', labels: {__name__: c}",
                "`__name__` is not a valid label name; write `exported_name__`",
            ),
            ("url: 'http://p/w', headers: {Authorization: a}, credentials_file: /t", "remove one of them"),
        ] {
            let said = said(text);
            assert!(said.ends_with(part), "{said}");
        }
    }
}
