//! The signals that are pushed, as configured by the file and the environment.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::words::{Together, heading, together};
use crate::config::push::{Push, Signal};
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
    /// Returns all pushed signals, the problems of the environment variables, and, if files are read, those of certificates, keys and tokens.
    pub(super) fn all(push: &Push, environment: &Environment, reads_files: bool) -> (Vec<Self>, Vec<String>) {
        let (settings, mut problems) = Settings::resolve(push, environment);
        if reads_files {
            problems.extend(settings.iter().flat_map(unusable_files));
        }
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

/// Returns a line for each format and reason.
fn unusable_files(settings: &Settings) -> Vec<String> {
    let files = settings.check_files();
    let line = |same: Together<'_, (&'static str, Signal, String)>| {
        let (format, _, why) = same.first;
        let signals: Vec<&str> = same.all.iter().map(|(_, signal, _)| signal.as_str()).collect();
        format!("export.{format}: {} cannot be pushed: {why}", signals.join(", "))
    };
    together(&files, |(format, _, why)| (format, why)).into_iter().map(line).collect()
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
        let (rows, problems) = PushRow::all(&Push::default(), &environment.into_iter().collect(), true);
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
    /// Returns the problems of pushes with these files to a receiver with TLS.
    fn problems(files: &str, scheme: &str, reads_files: bool) -> Vec<String> {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tls");
        let tls = files.replace("tls/", &format!("{data}/"));
        let text = format!(
            "export:\n  otlp: {{endpoint: '{scheme}://collector:4317', tls: {tls}}}\n  \
               remote_write: {{url: '{scheme}://prometheus/api/v1/write', tls: {tls}}}\n"
        );
        let (config, _) = crate::config::load(text.as_bytes(), "test").unwrap();
        let (rows, problems) = PushRow::all(&config.push, &Environment::default(), reads_files);
        assert_eq!(rows.len(), 3);
        problems.iter().map(|problem| problem.replace(data, "tls")).collect()
    }

    #[test]
    fn files_that_no_push_can_use_are_named_once_with_the_signals() {
        let valid = "{ca: tls/ca.pem, certificate: tls/client.pem, key: tls/client.key}";
        assert!(problems(valid, "https", true).is_empty());
        let all = [
            "{ca: tls/absent.pem}",
            "{ca: tls/server.key}",
            "{ca: tls/ca.pem, certificate: tls/client.pem, key: tls/absent.key}",
            "{ca: tls/ca.pem, certificate: tls/client.key, key: tls/client.key}",
            "{ca: tls/ca.pem, certificate: tls/client.pem, key: tls/client.pem}",
            "{ca: tls/ca.pem, certificate: tls/client.pem, key: tls/server.key}",
        ]
        .map(|files| {
            assert!(problems(files, "https", false).is_empty(), "--no-open reads no files");
            assert!(problems(files, "http", true).is_empty(), "without TLS, a push reads no files");
            problems(files, "https", true).join("\n")
        });
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn a_token_that_cannot_be_read_is_named() {
        let text =
            "export: {remote_write: {url: 'http://prometheus/w', credentials_file: /nonexistent/token}}";
        let (config, _) = crate::config::load(text.as_bytes(), "test").unwrap();
        let (_, problems) = PushRow::all(&config.push, &Environment::default(), true);
        let expected = "export.remote_write: metrics cannot be pushed: /nonexistent/token: ENOENT: No such file or directory";
        assert_eq!(problems, [expected]);
    }
}
