//! Connections with and without TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

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

/// A connection. Unix sockets need no TLS.
#[derive(Debug)]
pub(super) enum Transport {
    Plain(Stream),
    Tls(Box<TlsStream<TcpStream>>),
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
    Ok((Transport::Tls(Box::new(stream)), name))
}

/// Delegates reads and writes to the variants.
macro_rules! delegate {
    ($type:ident: $($variant:ident),+) => {
        impl AsyncRead for $type {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $(Self::$variant(stream) => Pin::new(stream).poll_read(cx, buf),)+
                }
            }
        }

        impl AsyncWrite for $type {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    $(Self::$variant(stream) => Pin::new(stream).poll_write(cx, bytes),)+
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    $(Self::$variant(stream) => Pin::new(stream).poll_write_vectored(cx, slices),)+
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    $(Self::$variant(stream) => stream.is_write_vectored(),)+
                }
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $(Self::$variant(stream) => Pin::new(stream).poll_flush(cx),)+
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $(Self::$variant(stream) => Pin::new(stream).poll_shutdown(cx),)+
                }
            }
        }
    };
}

delegate!(Stream: Tcp, Unix);
delegate!(Transport: Plain, Tls);
