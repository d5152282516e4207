//! A socket with deadlines, for clients that send headers slowly, do not read, or do not close the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::Limits;
use super::admission::{ConnectionEntry, Waiting};
use crate::clock::{Clock, Monotonic};

/// Time to wait for the client to close the connection after the last response.
const LINGER: Duration = Duration::from_secs(1);

/// Terminator of request headers.
const END_OF_HEADERS: &[u8] = b"\r\n\r\n";

/// Maximum number of bytes discarded while waiting for the client to close the connection.
const LINGER_BYTES: usize = 4 << 20;

/// A stream with deadlines.
///
/// Reads fail with [`io::ErrorKind::TimedOut`] if the headers of a request do not arrive in time. They return the end of the stream if the
/// connection is idle for too long. Writes fail with the same error if a buffer is not sent in time. Shutdown waits a moment until the peer
/// closes its side (RFC 9112, section 9.6). Closing a socket with unread input resets the connection, and the client would not receive the
/// reason of a rejected request.
#[derive(Debug)]
pub(super) struct Guarded<T> {
    inner: T,
    held: Arc<ConnectionEntry>,
    clock: Clock,
    limits: Limits,
    /// Deadline for a request or the rest of its headers: the time, and the timer that wakes the task then.
    reading: Option<(Monotonic, Pin<Box<Sleep>>)>,
    /// Deadline for the pending write; `None` if no write is blocked.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Deadline and remaining byte limit for the close of the peer; set once our side is closed.
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Guarded<T> {
    pub(super) fn new(inner: T, held: Arc<ConnectionEntry>, clock: Clock, limits: Limits) -> Self {
        Self { inner, held, clock, limits, reading: None, deadline: None, lingering: None }
    }

    /// Returns the inner stream.
    pub(super) fn into_inner(self) -> T {
        self.inner
    }

    /// Decides after an empty read whether to keep waiting, close the connection, or fail.
    fn nothing_came(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(waiting) = self.held.waiting() else {
            self.reading = None;
            return Poll::Pending;
        };
        let until = match waiting {
            Waiting::Idle(since) => Monotonic(since.0.saturating_add(self.limits.idle)),
            Waiting::Headers(since) => Monotonic(since.0.saturating_add(self.limits.headers)),
        };
        if self.reading.as_ref().is_none_or(|(moment, _)| *moment != until) {
            self.reading = Some((until, Box::pin(sleep(until.since(self.clock.monotonic())))));
        }
        if let Some((_, timer)) = &mut self.reading {
            ready!(timer.as_mut().poll(cx));
        }
        Poll::Ready(match waiting {
            Waiting::Idle(_) => Ok(()),
            Waiting::Headers(_) => {
                let message = "the request headers did not arrive in time";
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }
        })
    }

    /// Evaluates the result of writing `wanted` bytes.
    fn judge(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(n)) if n == wanted => self.deadline = None,
            Poll::Ready(Err(_)) => {}
            // Partial progress does not extend the deadline, so a client cannot hold a connection with single bytes.
            Poll::Ready(Ok(_)) | Poll::Pending => {
                let stall = self.limits.stall;
                let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(stall)));
                if written.is_pending() && deadline.as_mut().poll(cx).is_ready() {
                    let message = "the client did not read the response in time";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
                }
            }
        }
        written
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if read.is_pending() {
            return self.nothing_came(cx);
        }
        let came = &buf.filled()[before..];
        if !came.is_empty() {
            self.held.bytes_came(came.ends_with(END_OF_HEADERS));
        }
        read
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.judge(cx, bytes.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.judge(cx, slices.iter().map(|slice| slice.len()).sum(), written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        if self.held.flushed() {
            // The reading side must be polled again, because its deadline for the next request starts now.
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        }
        let (deadline, left) = this.lingering.get_or_insert_with(|| (Box::pin(sleep(LINGER)), LINGER_BYTES));
        let mut scratch = [0; 8 << 10];
        loop {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut this.inner).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() && *left > buf.filled().len() => {
                    *left -= buf.filled().len();
                }
                // The end of the stream, an error, or too much data: equivalent for a finished connection.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return deadline.as_mut().poll(cx).map(Ok),
            }
        }
    }
}
