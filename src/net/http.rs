//! HTTP/1.1 connections, with or without TLS.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;

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
