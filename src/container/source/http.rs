//! HTTP GET requests over a local socket or over TLS.

use std::path::Path;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::{ANSWER, Failure, Url};
use crate::host;
use crate::net::USER_AGENT;
use crate::net::error_text::{answered, causes};
use crate::net::http::client;
use crate::net::tls::Trust;

/// Maximum size of a token, in bytes.
const TOKEN: u64 = 1 << 16;

/// Requests a path from a local socket.
pub(super) async fn get_local(socket: &Path, path: &str) -> Result<Bytes, Failure> {
    let stream = UnixStream::connect(socket).await.map_err(|error| unreachable(causes(&error)))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Failure::new(causes(&error)))?;
    let request = Request::get(path)
        .header(header::HOST, "localhost")
        .header(header::USER_AGENT, USER_AGENT)
        .body(Empty::<Bytes>::new())
        .map_err(|error| Failure::new(error.to_string()))?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(|error| Failure::new(causes(&error)))?;
        read(response).await
    };
    // A connection that fails before the response also fails the request.
    let driven = async {
        connection.await.ok();
        std::future::pending().await
    };
    tokio::select! {
        answer = answered => answer,
        never = driven => never,
    }
}

/// Requests a URL.
pub(super) async fn get(url: &Url) -> Result<Bytes, Failure> {
    let secure = url.uri.scheme_str() == Some("https");
    let client = client(&url.uri, || url.trust.client()).map_err(Failure::new)?;
    let mut request = Request::get(url.uri.clone()).header(header::USER_AGENT, USER_AGENT);
    if let Some(path) = &url.token {
        request = request.header(header::AUTHORIZATION, bearer(path)?);
    }
    let request = request.body(Full::default()).map_err(|error| Failure::new(error.to_string()))?;
    let response = client.request(request).await.map_err(|error| {
        let mut why = causes(&error);
        if secure && url.trust != Trust::Anybody && why.contains("certificate") {
            why.push_str("; set `ca`, or `insecure: true` for a kubelet with a self-signed certificate");
        }
        Failure::new(why)
    })?;
    read(response).await
}

/// Read for each request, because tokens are replaced every hour.
fn bearer(path: &Path) -> Result<HeaderValue, Failure> {
    let token = host::read_at_most(path, TOKEN).map_err(|error| Failure::new(error.to_string()))?;
    let token = String::from_utf8_lossy(&token);
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| Failure::new(format!("{} does not contain a token", path.display())))?;
    value.set_sensitive(true);
    Ok(value)
}

async fn read(response: Response<Incoming>) -> Result<Bytes, Failure> {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER).collect().await;
    let body = body
        .map_err(|error| Failure::new(format!("the response was incomplete: {}", causes(&*error))))?
        .to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let mut why = answered(status, &String::from_utf8_lossy(body.get(..4096).unwrap_or(&body)));
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        why.push_str("; the service account needs the role in deploy/kubernetes");
    }
    Err(Failure::new(why))
}

/// Creates the failure of a connection attempt to a socket, with a remedy.
pub(super) fn unreachable(why: String) -> Failure {
    if why.contains("Permission denied") {
        return Failure::new(format!(
            "{why}; runtime sockets belong to root: run as root or as a member of the socket's group"
        ));
    }
    if why.contains("No such file") {
        return Failure::not_listening(format!(
            "{why}; in a container, the directory of the socket must be mounted"
        ));
    }
    if why.contains("Connection refused") {
        return Failure::not_listening(format!(
            "{why}; the runtime is not running, but its socket file still exists"
        ));
    }
    Failure::new(why)
}
