//! Connections with and without TLS.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::net::server_tls::{ServerTls, client_name};

/// First byte of a TLS connection: the content type `handshake`.
const HANDSHAKE: u8 = 0x16;

/// Response to a request without TLS on a port with TLS.
const NOT_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n\
    this port uses TLS: write https:// instead of http://\n";

/// A stream of bytes without TLS.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Reads and writes of a connection.
pub(super) trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

/// A connection, with or without TLS. Unix sockets need no TLS.
pub(super) type Transport = Box<dyn ReadWrite>;

impl Stream {
    /// Returns the connection without TLS.
    pub(super) fn plain(self) -> Transport {
        match self {
            Self::Tcp(stream) => Box::new(stream),
            Self::Unix(stream) => Box::new(stream),
        }
    }
}

/// Performs the TLS handshake. Returns the connection, and the name in the certificate of the client if the certificate was verified. A
/// client without TLS gets an explanation.
///
/// # Errors
/// Returns the error of the connection or of the handshake.
pub(super) async fn secure(
    mut stream: TcpStream,
    tls: &ServerTls,
) -> io::Result<(Transport, Option<Arc<str>>)> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
        if first[0].is_ascii_uppercase() {
            stream.write_all(NOT_TLS).await?;
            stream.shutdown().await?;
        }
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not use TLS"));
    }
    let stream = TlsAcceptor::from(Arc::clone(&tls.config)).accept(stream).await?;
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(|chain| chain.first()).filter(|_| tls.verifies);
    let name = certificate.map(|certificate| client_name(certificate).into());
    Ok((Box::new(stream), name))
}
