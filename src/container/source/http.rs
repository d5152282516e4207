//! HTTP GET requests over a local socket.

use std::path::Path;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Request;
use hyper::header;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::{ANSWER, Failure};
use crate::net::USER_AGENT;
use crate::net::error_text::causes;
use crate::net::http::read_answer;

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
        read_answer(response, ANSWER).await.map_err(Failure::new)
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
