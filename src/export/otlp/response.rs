//! Response messages of OTLP receivers.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message;

use crate::export::push::Outcome;
use crate::net::error_text::sanitized;

impl Outcome {
    /// Decodes the message of an accepted request: `Export…ServiceResponse`, which has the same field numbers for all signals.
    pub(super) fn of_response(body: &[u8]) -> Self {
        let Ok(response) = ExportLogsServiceResponse::decode(body) else { return Self::nonsense() };
        let partial = response.partial_success.unwrap_or_default();
        match (u64::try_from(partial.rejected_log_records).unwrap_or(0), &*partial.error_message) {
            (0, "") => Self::Accepted,
            (rejected, message) => Self::Partly { rejected, message: sanitized(message) },
        }
    }

    /// Creates the outcome for a response that is not OTLP.
    pub(super) fn nonsense() -> Self {
        Self::Rejected { why: "the response is not OTLP: check that the endpoint is an OTLP receiver".into() }
    }
}

/// Message `google.rpc.Status`: the details of a rejected request, in the body of an HTTP response or in a header of a gRPC response.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) details: Vec<Any>,
}

/// Message `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// Message `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(super) delay: Option<Delay>,
}

/// Message `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Delay {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

impl RpcStatus {
    /// Returns the delay before a retry that the receiver requests; `None` if a retry is not allowed.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let info = self.details.iter().find(|any| any.type_url.ends_with("google.rpc.RetryInfo"))?;
        let delay = RetryInfo::decode(&*info.value).ok()?.delay.unwrap_or_default();
        let nanos = u32::try_from(delay.nanos).unwrap_or(0).min(999_999_999);
        Some(Duration::new(u64::try_from(delay.seconds).unwrap_or(0), nanos))
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::metrics::v1::{
        ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
    };

    use super::*;

    fn response(rejected_data_points: i64, error_message: &str) -> Vec<u8> {
        let partial =
            ExportMetricsPartialSuccess { rejected_data_points, error_message: error_message.into() };
        ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec()
    }

    #[test]
    fn an_answer_says_what_was_not_taken() {
        assert_eq!(Outcome::of_response(&[]), Outcome::Accepted);
        assert_eq!(Outcome::of_response(&response(0, "")), Outcome::Accepted);
        let partly = Outcome::Partly { rejected: 3, message: "too old".into() };
        assert_eq!(Outcome::of_response(&response(3, "too old")), partly);
        let warned = Outcome::Partly { rejected: 0, message: "slow down".into() };
        assert_eq!(Outcome::of_response(&response(0, "slow down")), warned);
    }

    #[test]
    fn garbage_is_no_answer_and_what_a_stranger_says_is_cut_and_cleaned() {
        assert!(matches!(Outcome::of_response(b"<html>"), Outcome::Rejected { .. }));
        let said = sanitized(&format!("a\u{1b}[31m{}", "x".repeat(1000)));
        assert!(
            !said.contains('\u{1b}') && said.chars().count() <= crate::net::error_text::MESSAGE_LIMIT + 1,
            "{said}"
        );
    }

    #[test]
    fn only_a_receiver_that_says_when_to_come_again_is_asked_again() {
        let info = RetryInfo { delay: Some(Delay { seconds: 7, nanos: 500_000_000 }) };
        let any =
            Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value: info.encode_to_vec() };
        let status = RpcStatus { code: 8, message: "full".into(), details: vec![any] };
        assert_eq!(status.retry_after(), Some(Duration::from_millis(7500)));
        let other = Any { type_url: "type.googleapis.com/google.rpc.BadRequest".into(), value: vec![] };
        assert_eq!(RpcStatus { details: vec![other], ..status }.retry_after(), None);
    }
}
