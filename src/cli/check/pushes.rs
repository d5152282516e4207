//! The signals that are pushed, as configured by the file and the environment.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::words::heading;
use crate::config::push::Push;
use crate::error::printable;
use crate::export::push::Settings;
use crate::host::Environment;

/// A signal that is pushed.
#[derive(Debug, Serialize)]
pub(super) struct PushRow {
    format: &'static str,
    signal: &'static str,
    endpoint: String,
    protocol: &'static str,
    /// Push interval in seconds. `None` for logs, which are pushed as they are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_seconds: Option<f64>,
    /// Names of the headers. Values are left out, because they may be secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<String>,
}

impl PushRow {
    /// Returns all pushed signals, and the problems of the environment variables.
    pub(super) fn all(push: &Push, environment: &Environment) -> (Vec<Self>, Vec<String>) {
        let (settings, problems) = Settings::resolve(push, environment);
        let rows = settings.iter().flat_map(Settings::routes).map(|(format, route)| Self {
            format,
            signal: route.signal.as_str(),
            endpoint: route.uri.to_string(),
            protocol: route.protocol,
            interval_seconds: route.interval.as_ref().map(Duration::as_secs_f64),
            headers: route.headers,
        });
        (rows.collect(), problems)
    }
}

pub(super) fn write(out: &mut impl Write, rows: &[PushRow]) -> io::Result<()> {
    heading(out, rows, "Pushed")?;
    for row in rows {
        let PushRow { format, signal, protocol, .. } = row;
        write!(out, "  {signal} to {} as {format} by {protocol}", printable(&row.endpoint))?;
        match row.interval_seconds {
            Some(seconds) => write!(out, ", every {seconds} s")?,
            None => write!(out, ", as they are written")?,
        }
        if !row.headers.is_empty() {
            write!(out, ", headers: {}", row.headers.join(", "))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_shown_without_the_values_of_headers() {
        let environment = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret"),
            ("OTEL_LOGS_EXPORTER", "otlp"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "smtp"),
        ];
        let (rows, problems) = PushRow::all(&Push::default(), &environment.into_iter().collect());
        let mut text = Vec::new();
        write(&mut text, &rows).unwrap();
        let expected = "\nPushed:\n  \
            metrics to http://c:4317/ as otlp by grpc, every 15 s, headers: authorization\n  \
            profiles to http://c:4317/ as otlp by grpc, every 60 s, headers: authorization\n  \
            logs to http://c:4317/ as otlp by grpc, as they are written, headers: authorization\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(!serde_json::to_string(&rows).unwrap().contains("secret"));
    }
}
