//! HTTP/1.1 connections, with or without TLS, and complete responses.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::{Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;

use super::error_text::{answered, causes};
use super::tls::without_roots;

pub(crate) type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Creates a client. Requests open the connections. `tls` is called if the URL requires TLS.
pub(crate) fn client(
    uri: &Uri,
    tls: impl FnOnce() -> Result<ClientConfig, String>,
) -> Result<Client, String> {
    let builder = HttpsConnectorBuilder::new();
    let connector = match uri.scheme_str() {
        Some("https") => builder.with_tls_config(tls()?).https_only().enable_http1().build(),
        _ => builder.with_tls_config(without_roots()?).https_or_http().enable_http1().build(),
    };
    Ok(legacy::Client::builder(TokioExecutor::new()).build(connector))
}

/// Reads a response of at most `limit` bytes.
///
/// # Errors
/// Returns the reason if it is incomplete, or its status is not a success.
pub(crate) async fn read_answer(response: Response<Incoming>, limit: usize) -> Result<Bytes, String> {
    let status = response.status();
    let body = Limited::new(response.into_body(), limit).collect().await;
    let body = body.map_err(|error| format!("the response was incomplete: {}", causes(&*error)))?.to_bytes();
    match status.is_success() {
        true => Ok(body),
        false => Err(answered(status, &String::from_utf8_lossy(body.get(..4096).unwrap_or(&body)))),
    }
}
