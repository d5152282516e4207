//! OTLP over gRPC.

use bytes::Bytes;
use hyper::http::uri::PathAndQuery;
use prost::Message as _;
use tonic::client::Grpc as Calls;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{MetadataKey, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use super::response::RpcStatus;
use super::settings::Target;
use crate::config::push::Signal;
use crate::export::push::Outcome;
use crate::export::push::http::ANSWER;
use crate::net::error_text::{causes, sanitized};
use crate::net::tls::Pem;
use crate::net::{Bytewise, USER_AGENT};

/// A connection to a receiver.
#[derive(Debug)]
pub(in crate::export) struct Grpc(Channel);

impl Grpc {
    /// Creates a channel that connects when the first request is sent. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// Returns an error that describes the problem with the certificates.
    pub(super) fn new(target: &Target) -> Result<Self, String> {
        let endpoint = Endpoint::from(target.uri.clone())
            .connect_timeout(target.timeout)
            .user_agent(USER_AGENT)
            .map_err(|error| causes(&error))?;
        if target.uri.scheme_str() != Some("https") {
            return Ok(Self(endpoint.connect_lazy()));
        }
        let pem = Pem::read(&target.tls)?;
        // Tonic's error for an invalid file is less specific.
        pem.client()?;
        let mut tls = ClientTlsConfig::new();
        tls = match &pem.ca {
            Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
            None => tls.with_native_roots(),
        };
        if let Some((certificate, key)) = &pem.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        let endpoint = endpoint.tls_config(tls).map_err(|error| causes(&error))?;
        Ok(Self(endpoint.connect_lazy()))
    }

    /// Sends one request and returns its outcome.
    pub(super) async fn send(&self, target: &Target, body: &Bytes) -> Outcome {
        // Receivers written in Go respond with the encoding of the request. The limit also applies to the decoded response.
        let mut calls = Calls::new(self.0.clone())
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(ANSWER);
        if target.gzip {
            calls = calls.send_compressed(CompressionEncoding::Gzip);
        }
        if let Err(error) = calls.ready().await {
            return Outcome::unreachable(causes(&error));
        }
        let mut request = tonic::Request::new(body.clone());
        for (name, value) in &target.headers {
            // Both were validated when the settings were resolved.
            if let (Ok(name), Ok(value)) =
                (MetadataKey::from_bytes(name.as_bytes()), MetadataValue::try_from(value))
            {
                request.metadata_mut().insert(name, value);
            }
        }
        match calls.unary(request, method(target.signal), Bytewise).await {
            Ok(response) => Outcome::of_response(&response.into_inner()),
            Err(status) => outcome(&status, target.signal),
        }
    }
}

/// Returns the gRPC method of a signal.
fn method(signal: Signal) -> PathAndQuery {
    PathAndQuery::from_static(match signal {
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        Signal::Profiles => "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
        Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    })
}

/// Converts a gRPC status by the table of the specification: <https://opentelemetry.io/docs/specs/otlp/#failures>.
fn outcome(status: &Status, signal: Signal) -> Outcome {
    let code = status.code();
    // Without a response, the status has an underlying error.
    let below = std::error::Error::source(status);
    let transport = below.is_some();
    let why = match (below, status.message()) {
        (Some(error), _) => causes(error),
        (None, "") => format!("the server returned {code:?}"),
        (None, message) => format!("the server returned {code:?}: {}", sanitized(message)),
    };
    let retry_after = RpcStatus::decode(status.details()).ok().and_then(|status| status.retry_after());
    if transport {
        // Responses that are incomplete or not gRPC result in various codes.
        return Outcome::Again { after: retry_after, why, reconnect: true };
    }
    let hint = match code {
        // Message and code of tonic for a too large response. The request was accepted.
        Code::OutOfRange if status.message().starts_with("Error, decoded message length too large") => {
            return Outcome::nonsense();
        }
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => return Outcome::Again { after: retry_after, why, reconnect: false },
        Code::ResourceExhausted if retry_after.is_some() => {
            return Outcome::Again { after: retry_after, why, reconnect: false };
        }
        Code::Unimplemented if signal == Signal::Profiles => {
            "; a Collector accepts profiles with --feature-gates=+service.profilesSupport"
        }
        Code::Unauthenticated | Code::PermissionDenied => "; see `headers` and OTEL_EXPORTER_OTLP_HEADERS",
        _ => "",
    };
    Outcome::Rejected { why: why + hint }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::export::otlp::response::{Any, Delay, RetryInfo};

    #[test]
    fn only_the_codes_of_the_specification_are_worth_another_attempt() {
        for code in (0..=16).map(Code::from) {
            let again = matches!(outcome(&Status::new(code, "no"), Signal::Metrics), Outcome::Again { .. });
            let expected = matches!(
                code,
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss
            );
            assert_eq!(again, expected, "{code:?}");
        }
    }

    #[test]
    fn an_exhausted_receiver_is_asked_again_only_if_it_says_when() {
        let info = RetryInfo { delay: Some(Delay { seconds: 2, nanos: 0 }) };
        let any =
            Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value: info.encode_to_vec() };
        let details = RpcStatus { code: 8, message: String::new(), details: vec![any] }.encode_to_vec();
        let status = Status::with_details(Code::ResourceExhausted, "full", details.into());
        let expected = Outcome::Again {
            after: Some(Duration::from_secs(2)),
            why: "the server returned ResourceExhausted: full".into(),
            reconnect: false,
        };
        assert_eq!(outcome(&status, Signal::Metrics), expected);
    }

    #[test]
    fn a_refusal_says_what_may_help() {
        let why = |code| match outcome(&Status::new(code, "x"), Signal::Profiles) {
            Outcome::Rejected { why } => why,
            other => panic!("{other:?}"),
        };
        assert!(why(Code::Unimplemented).contains("service.profilesSupport"));
        assert!(why(Code::Unauthenticated).contains("OTEL_EXPORTER_OTLP_HEADERS"));
    }
}
