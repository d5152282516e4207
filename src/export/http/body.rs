//! The bodies of answers, and the account of each.

use std::io::{self, Write as _};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::{Bytes, Frame, SizeHint};

use super::traffic::Traffic;
use crate::clock::{Clock, Monotonic};
use crate::export::negotiate::Format;
use crate::export::prometheus::{self, CHUNK};
use crate::export::protobuf;
use crate::metrics::Snapshot;

/// What an answer consists of.
#[derive(Debug)]
pub(super) enum Content {
    /// So many bytes, or what is left of them.
    Whole(Bytes),
    /// Metrics, encoded while they are sent.
    Plain(Encoder),
    /// The same, compressed.
    Gzip(Box<Gzip>),
    /// Nothing more.
    Done,
}

/// The encoder of any format.
#[derive(Debug)]
pub(super) enum Encoder {
    Text(prometheus::Encoder),
    Protobuf(protobuf::Encoder),
}

impl Encoder {
    pub(super) fn new(snapshot: Arc<Snapshot>, format: Format) -> Self {
        match format {
            Format::Text(format) => Self::Text(prometheus::Encoder::new(snapshot, format)),
            Format::Protobuf => Self::Protobuf(protobuf::Encoder::new(snapshot)),
        }
    }

    fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Text(encoder) => encoder.next_chunk(out),
            Self::Protobuf(encoder) => encoder.next_chunk(out),
        }
    }
}

/// Compresses pieces as they come.
#[derive(Debug)]
pub(super) struct Gzip {
    encoder: Encoder,
    compressor: GzEncoder<Vec<u8>>,
    piece: Vec<u8>,
}

impl Gzip {
    pub(super) fn new(encoder: Encoder) -> Self {
        // The fastest level: metrics shrink to a twentieth with it, and CPU time is what there is least of.
        let compressor = GzEncoder::new(Vec::new(), Compression::fast());
        Self { encoder, compressor, piece: Vec::new() }
    }

    /// The compressor's output for one more piece, which may be nothing yet; `None` behind the last.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.piece.clear();
        let more = self.encoder.next_chunk(&mut self.piece);
        if more {
            self.compressor.write_all(&self.piece)?;
        } else {
            self.compressor.try_finish()?;
        }
        let output = mem::take(self.compressor.get_mut());
        Ok((more || !output.is_empty()).then_some(output))
    }
}

impl Content {
    /// The next bytes, possibly none; `None` at the end.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let next = match self {
            Self::Whole(bytes) => Some(mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            Self::Plain(encoder) => {
                let mut piece = Vec::with_capacity(CHUNK + 1024);
                encoder.next_chunk(&mut piece).then(|| piece.into())
            }
            Self::Gzip(gzip) => gzip.next()?.map(Bytes::from),
            Self::Done => None,
        };
        if next.is_none() {
            *self = Self::Done;
        }
        Ok(next)
    }
}

/// The account of one answer, closed when it is dropped: sent, or broken off.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) traffic: Traffic,
    pub(super) clock: Clock,
    pub(super) path: &'static str,
    pub(super) code: u16,
    pub(super) began: Monotonic,
    pub(super) bytes: u64,
}

impl Drop for Account {
    fn drop(&mut self) {
        let took = self.clock.monotonic().since(self.began);
        self.traffic.answered(self.path, self.code, self.bytes, took);
    }
}

/// An answer's body as hyper takes it.
#[derive(Debug)]
pub(super) struct Body {
    content: Content,
    account: Account,
    /// Until when the client must have read it.
    deadline: Monotonic,
    /// Whether the others have had their turn since the last piece.
    yielded: bool,
}

impl Body {
    /// `limit` is how long the client may take to read it.
    pub(super) fn new(content: Content, account: Account, limit: Duration) -> Self {
        let deadline = Monotonic(account.clock.monotonic().0.saturating_add(limit));
        Self { content, account, deadline, yielded: true }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if this.account.clock.monotonic() > this.deadline {
            this.content = Content::Done;
            let message = "the client did not read its answer in time";
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, message))));
        }
        // While this one waits for its next turn, hyper sends what it has, and other connections get theirs.
        if !mem::replace(&mut this.yielded, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.yielded = false;
        match this.content.next() {
            Ok(Some(bytes)) if bytes.is_empty() => {
                this.yielded = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Some(bytes)) => {
                this.account.bytes += bytes.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Ok(None) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Done => true,
            Content::Plain(_) | Content::Gzip(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Done => SizeHint::with_exact(0),
            Content::Plain(_) | Content::Gzip(_) => SizeHint::default(),
        }
    }
}
