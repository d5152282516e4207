//! Push settings, from the configuration file, then the environment, then the defaults of the standard.
//!
//! Variables: <https://opentelemetry.io/docs/specs/otel/protocol/exporter/> and
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>. Variables of a signal take precedence over those of
//! all signals, and the configuration file takes precedence over both. An invalid value is ignored with a warning, as the specification
//! requires.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;

use crate::config::push::{Histograms, Otlp, Protocol, Signal, Temporality, header, url};
use crate::host::Environment;
use crate::net::tls::Tls;

const TIMEOUT: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(15);

/// Settings of OTLP pushes.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Targets of the signals. Signals without a target are not pushed.
    pub targets: Vec<Target>,
    /// Resource attributes from the configuration file.
    pub resource: Vec<(String, String)>,
    /// Maximum number of queued bytes per signal.
    pub queue: u64,
    /// Push interval of metrics.
    pub metrics_interval: Duration,
    /// Temporality of sums and histograms.
    pub temporality: Temporality,
    /// Type of pushed histograms.
    pub histograms: Histograms,
    /// Duration of a profile.
    pub profiles_interval: Duration,
    /// Whether samples of different CPUs stay separate.
    pub profiles_cpus: bool,
}

/// Target of a signal.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The signal.
    pub signal: Signal,
    /// URI of the receiver; for HTTP with the path of the signal.
    pub uri: Uri,
    /// Protocol of the requests.
    pub protocol: Protocol,
    /// Headers of each request: names in lower case, values of printable ASCII.
    pub headers: Vec<(String, String)>,
    /// Whether requests are compressed.
    pub gzip: bool,
    /// Time limit for a response.
    pub timeout: Duration,
    /// Certificates.
    pub tls: Tls,
}

impl Signal {
    /// Returns the part of variable names for this signal.
    fn variable(self) -> String {
        self.as_str().to_ascii_uppercase()
    }

    /// Returns the path over HTTP.
    const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/v1/metrics",
            Self::Profiles => "/v1development/profiles",
            Self::Logs => "/v1/logs",
            Self::Traces => "/v1/traces",
        }
    }
}

impl Settings {
    /// Resolves the settings from the file and the environment; `None` if nothing is pushed. Also returns the problems of the environment.
    pub fn resolve(written: Option<&Otlp>, environment: &Environment) -> (Option<Self>, Vec<String>) {
        let mut variables = Variables { environment, problems: Vec::new() };
        let settings = variables.settings(written);
        (settings, variables.problems)
    }

    /// Returns the target of a signal, if it is pushed.
    pub fn target(&self, signal: Signal) -> Option<&Target> {
        self.targets.iter().find(|target| target.signal == signal)
    }
}

/// The environment and its problems.
struct Variables<'a> {
    environment: &'a Environment,
    problems: Vec<String>,
}

impl<'a> Variables<'a> {
    /// Returns name and value of the variable of a signal, or else of the variable for all signals.
    fn of(&self, signal: Signal, name: &str) -> Option<(String, &'a str)> {
        let mut variables = variables(signal, name).into_iter();
        variables.find_map(|variable| self.environment.get(&variable).map(|value| (variable, value.trim())))
    }

    /// Returns the parsed value of the first variable with a valid value.
    fn parsed<T>(
        &mut self,
        variables: &[impl AsRef<str>],
        parse: impl Fn(&str) -> Option<T>,
        why: &str,
    ) -> Option<T> {
        for variable in variables.iter().map(AsRef::as_ref) {
            let Some(value) = self.environment.get(variable) else { continue };
            match parse(value.trim()) {
                Some(parsed) => return Some(parsed),
                None => self.complain(variable, why),
            }
        }
        None
    }

    fn complain(&mut self, variable: &str, why: &str) {
        let problem = format!("{variable} is ignored: {why}");
        // A variable for all signals is read once for each signal.
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn is_true(&self, variable: &str) -> bool {
        self.environment.get(variable).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
    }

    fn settings(&mut self, written: Option<&Otlp>) -> Option<Settings> {
        let nothing = Otlp::default();
        let push = written.unwrap_or(&nothing);
        let signals = self.signals(written);
        if signals.is_empty() || self.is_true("OTEL_SDK_DISABLED") {
            return None;
        }
        let targets: Vec<Target> =
            signals.into_iter().filter_map(|signal| self.target(signal, push)).collect();
        if targets.is_empty() {
            return None;
        }
        Some(Settings {
            targets,
            resource: push.resource.clone(),
            queue: push.queue,
            metrics_interval: push.metrics_interval.or_else(|| self.interval()).unwrap_or(INTERVAL),
            temporality: push.temporality.or_else(|| self.temporality()).unwrap_or(Temporality::Cumulative),
            histograms: push.histograms.or_else(|| self.histograms()).unwrap_or(Histograms::Exponential),
            profiles_interval: push.profiles_interval,
            profiles_cpus: push.profiles_cpus,
        })
    }

    /// Returns the pushed signals. Without a section in the file, these are the signals with an endpoint in the environment.
    fn signals(&self, written: Option<&Otlp>) -> Vec<Signal> {
        if let Some(signals) = written.and_then(|push| push.signals.clone()) {
            return signals;
        }
        let general = written.is_some() || self.environment.get("OTEL_EXPORTER_OTLP_ENDPOINT").is_some();
        let wanted = |&signal: &Signal| {
            let name = signal.variable();
            let exporter = self.environment.get(&format!("OTEL_{name}_EXPORTER")).map(str::trim);
            let own = self.environment.get(&format!("OTEL_EXPORTER_OTLP_{name}_ENDPOINT")).is_some();
            match exporter {
                Some(exporter) => exporter.split(',').any(|one| one.trim() == "otlp") && (general || own),
                // The exporter's log and spans are pushed only on explicit request.
                None => own || (general && !matches!(signal, Signal::Logs | Signal::Traces)),
            }
        };
        Signal::ALL.into_iter().filter(wanted).collect()
    }

    fn target(&mut self, signal: Signal, push: &Otlp) -> Option<Target> {
        let protocol = push.protocol.or_else(|| self.protocol(signal)).unwrap_or(Protocol::Grpc);
        let file = |path: &Option<PathBuf>, variable: &str| {
            path.clone().or_else(|| self.of(signal, variable).map(|(_, value)| PathBuf::from(value)))
        };
        let tls = Tls {
            ca: file(&push.tls.ca, "CERTIFICATE"),
            certificate: file(&push.tls.certificate, "CLIENT_CERTIFICATE"),
            key: file(&push.tls.key, "CLIENT_KEY"),
        };
        Some(Target {
            signal,
            uri: self.uri(signal, push.endpoint.as_deref(), protocol)?,
            protocol,
            headers: self.headers(signal, &push.headers),
            gzip: push.gzip.or_else(|| self.gzip(signal)).unwrap_or(true),
            timeout: push.timeout.or_else(|| self.timeout(signal)).unwrap_or(TIMEOUT),
            tls,
        })
    }

    fn uri(&mut self, signal: Signal, written: Option<&str>, protocol: Protocol) -> Option<Uri> {
        let [own, _] = variables(signal, "ENDPOINT");
        let (variable, text) = match written {
            Some(text) => (None, text.to_owned()),
            None => match self.of(signal, "ENDPOINT") {
                Some((variable, value)) => (Some(variable), self.with_scheme(signal, value)),
                None => {
                    let port = if protocol == Protocol::Grpc { 4317 } else { 4318 };
                    (None, format!("http://localhost:{port}"))
                }
            },
        };
        let base = match url(&text) {
            Ok(base) => base,
            Err((message, hint)) => {
                self.complain(variable.as_deref().unwrap_or("endpoint"), &format!("{message}; {hint}"));
                return None;
            }
        };
        let path = match protocol {
            Protocol::Grpc => "/".to_owned(),
            // The variable of a signal is used verbatim.
            Protocol::Http if variable.as_deref() == Some(&*own) => base.path().to_owned(),
            Protocol::Http => format!("{}{}", base.path().trim_end_matches('/'), signal.path()),
        };
        let mut parts = base.into_parts();
        parts.path_and_query = path.parse().ok();
        Uri::from_parts(parts).ok()
    }

    /// Adds the scheme. gRPC endpoints may have none; another variable then determines whether TLS is used.
    fn with_scheme(&self, signal: Signal, value: &str) -> String {
        if value.contains("://") {
            return value.to_owned();
        }
        let insecure =
            self.of(signal, "INSECURE").is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"));
        format!("{}://{value}", if insecure { "http" } else { "https" })
    }

    fn protocol(&mut self, signal: Signal) -> Option<Protocol> {
        let known = [Protocol::Grpc, Protocol::Http].map(|protocol| (protocol.as_str(), protocol));
        let why = "must be grpc or http/protobuf";
        self.parsed(&variables(signal, "PROTOCOL"), |value| one_of(value, &known), why)
    }

    fn gzip(&mut self, signal: Signal) -> Option<bool> {
        let known = [("gzip", true), ("none", false)];
        let why = "must be gzip or none";
        self.parsed(&variables(signal, "COMPRESSION"), |value| one_of(value, &known), why)
    }

    fn timeout(&mut self, signal: Signal) -> Option<Duration> {
        self.parsed(&variables(signal, "TIMEOUT"), milliseconds, NO_MILLISECONDS)
    }

    fn interval(&mut self) -> Option<Duration> {
        let interval = self.parsed(&["OTEL_METRIC_EXPORT_INTERVAL"], milliseconds, NO_MILLISECONDS)?;
        Some(interval.max(Duration::from_secs(1)))
    }

    fn temporality(&mut self) -> Option<Temporality> {
        let variables = ["OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"];
        let known = [
            ("cumulative", Temporality::Cumulative),
            // Counters that are read from another source stay cumulative with this preference.
            ("lowmemory", Temporality::Cumulative),
            ("delta", Temporality::Delta),
        ];
        let parse = |value: &str| one_of(&value.to_ascii_lowercase(), &known);
        self.parsed(&variables, parse, "must be cumulative, delta or lowmemory")
    }

    fn histograms(&mut self) -> Option<Histograms> {
        let variables = ["OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"];
        let known = [
            ("explicit_bucket_histogram", Histograms::Explicit),
            ("base2_exponential_bucket_histogram", Histograms::Exponential),
        ];
        let parse = |value: &str| one_of(&value.to_ascii_lowercase(), &known);
        let why = "must be explicit_bucket_histogram or base2_exponential_bucket_histogram";
        self.parsed(&variables, parse, why)
    }

    /// Parses `name=value,…` with percent encoding. Headers of the file take precedence.
    fn headers(&mut self, signal: Signal, written: &[(String, String)]) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> = Vec::new();
        let mut put = |name: String, value: String| match headers.iter_mut().find(|(known, _)| *known == name)
        {
            Some(pair) => pair.1 = value,
            None => headers.push((name, value)),
        };
        if let Some((variable, text)) = self.of(signal, "HEADERS") {
            for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                // The value may be a secret, so it is not included in messages.
                let parsed = pair.split_once('=').ok_or_else(|| "must be a list of name=value".to_owned());
                let parsed = parsed.and_then(|(name, value)| {
                    let (name, value) = (name.trim().to_ascii_lowercase(), decoded(value.trim()));
                    header(&name, &value).map(|()| (name, value))
                });
                match parsed {
                    Ok((name, value)) => put(name, value),
                    Err(why) => self.complain(&variable, &why),
                }
            }
        }
        written.iter().for_each(|(name, value)| put(name.clone(), value.clone()));
        headers
    }
}

/// Returns the variable of a signal, and the one for all signals.
fn variables(signal: Signal, name: &str) -> [String; 2] {
    [format!("OTEL_EXPORTER_OTLP_{}_{name}", signal.variable()), format!("OTEL_EXPORTER_OTLP_{name}")]
}

fn one_of<T: Copy>(word: &str, known: &[(&str, T)]) -> Option<T> {
    known.iter().find(|(known, _)| *known == word).map(|(_, of)| *of)
}

const NO_MILLISECONDS: &str = "must be a number of milliseconds from 1 to 3600000";

fn milliseconds(value: &str) -> Option<Duration> {
    let milliseconds: u64 = value.parse().ok()?;
    (1..=3_600_000).contains(&milliseconds).then(|| Duration::from_millis(milliseconds))
}

/// Decodes percent encoding (`%20`).
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        let byte = hex.filter(|_| first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        // In bounds: two digits were found.
        rest = if byte.is_some() { &after[2..] } else { after };
        bytes.push(byte.unwrap_or(first));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(push: Option<Otlp>, variables: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
        Settings::resolve(push.as_ref(), &variables.iter().copied().collect())
    }

    fn settings(push: Otlp, variables: &[(&str, &str)]) -> Settings {
        let (settings, problems) = resolved(Some(push), variables);
        assert_eq!(problems, [""; 0]);
        settings.unwrap()
    }

    fn uris(settings: &Settings) -> Vec<String> {
        settings.targets.iter().map(|target| target.uri.to_string()).collect()
    }

    #[test]
    fn nothing_is_pushed_unless_somebody_says_so() {
        assert_eq!(resolved(None, &[]), (None, vec![]));
        assert_eq!(resolved(None, &[("OTEL_EXPORTER_OTLP_HEADERS", "a=b")]), (None, vec![]));
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1");
        assert_eq!(resolved(None, &[endpoint, ("OTEL_SDK_DISABLED", "true")]), (None, vec![]));
        assert_eq!(resolved(Some(Otlp::default()), &[("OTEL_SDK_DISABLED", "TRUE")]).0, None);
        let signals = |variables: &[_]| -> Vec<&str> {
            let settings = resolved(None, variables).0;
            settings.iter().flat_map(|s| &s.targets).map(|target| target.signal.as_str()).collect()
        };
        assert_eq!(signals(&[endpoint]), ["metrics", "profiles"]);
        assert_eq!(signals(&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:1")]), ["metrics"]);
        assert_eq!(signals(&[endpoint, ("OTEL_METRICS_EXPORTER", "none")]), ["profiles"]);
        assert_eq!(signals(&[endpoint, ("OTEL_LOGS_EXPORTER", "otlp")]), ["metrics", "profiles", "logs"]);
    }

    #[test]
    fn a_collector_on_this_host_is_the_default() {
        let grpc = settings(Otlp::default(), &[]);
        assert_eq!(uris(&grpc), ["http://localhost:4317/", "http://localhost:4317/"]);
        let target = &grpc.targets[0];
        assert_eq!((target.gzip, target.timeout, target.protocol), (true, TIMEOUT, Protocol::Grpc));
        let http = Otlp { protocol: Some(Protocol::Http), ..Otlp::default() };
        assert_eq!(
            uris(&settings(http, &[])),
            ["http://localhost:4318/v1/metrics", "http://localhost:4318/v1development/profiles"]
        );
    }

    #[test]
    fn the_file_is_stronger_than_a_signals_variable_and_that_than_the_one_of_all() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1/base/"),
            ("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "http://profiles:2/exactly/this"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "3000"),
            ("OTEL_EXPORTER_OTLP_PROFILES_TIMEOUT", "4000"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca"),
        ];
        let by_environment = settings(Otlp::default(), &variables);
        assert_eq!(uris(&by_environment), ["http://all:1/base/v1/metrics", "http://profiles:2/exactly/this"]);
        let timeouts: Vec<u64> = by_environment.targets.iter().map(|t| t.timeout.as_secs()).collect();
        assert_eq!(timeouts, [3, 4]);
        assert!(by_environment.targets.iter().all(|target| !target.gzip && target.tls.ca.is_some()));
        let written = Otlp {
            endpoint: Some("https://file:3".into()),
            protocol: Some(Protocol::Grpc),
            timeout: Some(Duration::from_secs(5)),
            gzip: Some(true),
            ..Otlp::default()
        };
        let by_file = settings(written, &variables);
        assert_eq!(uris(&by_file), ["https://file:3/", "https://file:3/"]);
        assert!(by_file.targets.iter().all(|target| target.gzip && target.timeout.as_secs() == 5));
    }

    #[test]
    fn headers_are_decoded_and_those_of_the_file_are_added() {
        let written = vec![("x-b".to_owned(), "file".to_owned())];
        let variables = [
            ("OTEL_EXPORTER_OTLP_HEADERS", "lost=1"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "Authorization=Basic%20YTpi, x-b=env,"),
        ];
        let push = Otlp { headers: written, ..Otlp::default() };
        let settings = settings(push, &variables);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(settings.targets[0].headers, [pair("authorization", "Basic YTpi"), pair("x-b", "file")]);
        assert_eq!(settings.targets[1].headers, [pair("lost", "1"), pair("x-b", "file")]);
    }

    #[test]
    fn what_means_nothing_is_passed_over_and_told_without_secrets() {
        let (found, problems) = resolved(
            Some(Otlp::default()),
            &[
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
                ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "soon"),
                ("OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "host=secret"),
                ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "sometimes"),
            ],
        );
        assert_eq!(found.unwrap().targets.len(), 2);
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(problems.iter().all(|problem| !problem.contains("secret")), "{problems:?}");
        let (found, problems) = resolved(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://a")]);
        assert_eq!((found, problems.len()), (None, 1));
    }

    #[test]
    fn where_a_signals_variable_means_nothing_the_one_of_all_holds() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1");
        let of_all = ("OTEL_EXPORTER_OTLP_TIMEOUT", "3000");
        let own = ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "soon");
        let (settings, problems) = resolved(None, &[endpoint, of_all, own]);
        assert_eq!((settings.unwrap().targets[0].timeout.as_secs(), problems.len()), (3, 1));
    }

    #[test]
    fn a_secret_that_stands_in_the_wrong_place_is_not_told() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1");
        for (variable, value) in [
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Basic c2VjcmV0=="),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Bearer deadbeef"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://me:deadbeef@c:1"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:1/p?key=deadbeef"),
        ] {
            let (_, problems) = resolved(None, &[endpoint, (variable, value)]);
            assert_eq!(problems.len(), 1, "{value}");
            let told = problems[0].to_ascii_lowercase();
            assert!(!told.contains("c2vj") && !told.contains("deadbeef"), "{told}");
        }
    }

    #[test]
    fn an_endpoint_without_a_scheme_is_one_with_tls_unless_it_is_said_to_be_insecure() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317");
        assert_eq!(uris(&resolved(None, &[endpoint]).0.unwrap())[0], "https://c:4317/");
        let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", "true");
        assert_eq!(uris(&resolved(None, &[endpoint, insecure]).0.unwrap())[0], "http://c:4317/");
    }

    #[test]
    fn per_cent_signs_that_mean_nothing_stay() {
        assert_eq!(decoded("a%20b%2"), "a b%2");
        assert_eq!(decoded("%zz%é"), "%zz%é");
    }
}
