//! Response bodies and their accounting.

use std::io::{self, Write as _};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::{Bytes, Frame, SizeHint};
use tokio::task::{JoinHandle, spawn_blocking};

use super::admission::Slot;
use super::cpu::RequestCpu;
use super::traffic::Traffic;
use crate::budget::{self, Share};
use crate::clock::{Clock, Monotonic};
use crate::export::negotiate::Format;
use crate::export::prometheus::{self, CHUNK};
use crate::export::protobuf;
use crate::metrics::Snapshot;
use crate::span::Span;

/// Size in bytes of a batch that is encoded before it is sent. Most compressed scrapes are one batch. Each batch wakes a thread, which
/// takes milliseconds on a busy machine.
const BATCH: usize = 256 << 10;

/// Maximum size in bytes of the text compressed into one batch: a tenth of a second of work on a slow CPU.
const BATCH_INPUT: usize = 4 << 20;

/// Content of a response.
#[derive(Debug)]
pub(super) enum Content {
    /// Complete bytes, or the rest of them.
    Whole(Bytes),
    /// Metrics that are encoded on another thread: one batch while the previous one is sent.
    Encoded(Work),
}

/// A response that is encoded on blocking threads, one batch at a time. The number of scrapes limits their number.
#[derive(Debug)]
pub(super) struct Work {
    /// Present until the first batch is requested; for HEAD it never is.
    writer: Option<Box<Writer>>,
    /// The next batch; `None` before the first and after the last.
    busy: Option<JoinHandle<io::Result<Batch>>>,
    cpu: RequestCpu,
}

/// A part of a response.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Writer of the next batch; `None` after the last.
    rest: Option<Box<Writer>>,
}

/// Encoder for any format.
#[derive(Debug)]
pub(super) enum Encoder {
    Text(prometheus::Encoder),
    Protobuf(protobuf::Encoder),
}

impl Encoder {
    /// Creates the encoders for `first` and `then`, in this order. The snapshots must have no family in common.
    fn of(first: Arc<Snapshot>, then: Arc<Snapshot>, format: Format) -> [Self; 2] {
        match format {
            Format::Text(format) => [
                Self::Text(prometheus::Encoder::beginning(first, format)),
                Self::Text(prometheus::Encoder::new(then, format)),
            ],
            Format::Protobuf => {
                [first, then].map(|snapshot| Self::Protobuf(protobuf::Encoder::new(snapshot)))
            }
        }
    }

    fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Text(encoder) => encoder.next_chunk(out),
            Self::Protobuf(encoder) => encoder.next_chunk(out),
        }
    }
}

/// Encodes metrics batch by batch.
#[derive(Debug)]
pub(super) struct Writer {
    encoders: [Encoder; 2],
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl Writer {
    /// Creates a writer for the metrics of `first`, then those of `then`. They must have no family in common.
    pub(super) fn new(first: Arc<Snapshot>, then: Arc<Snapshot>, format: Format, gzip: bool) -> Box<Self> {
        // The fastest level: it shrinks metrics to a twentieth, and CPU time is the scarcest resource.
        let gzip = gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Box::new(Self { encoders: Encoder::of(first, then, format), gzip })
    }

    /// Appends about [`CHUNK`] bytes of text; returns `false` at the end.
    fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool {
        self.encoders.iter_mut().any(|encoder| encoder.next_chunk(out))
    }

    /// Encodes about [`BATCH`] bytes.
    fn batch(mut self: Box<Self>) -> io::Result<Batch> {
        let (mut bytes, mut piece, mut input) = (Vec::new(), Vec::with_capacity(CHUNK + 1024), 0);
        loop {
            piece.clear();
            let more = self.next_chunk(&mut piece);
            input += piece.len();
            match &mut self.gzip {
                None => bytes.extend_from_slice(&piece),
                Some(gzip) => {
                    if more {
                        gzip.write_all(&piece)?;
                    } else {
                        gzip.try_finish()?;
                    }
                    bytes.append(gzip.get_mut());
                }
            }
            if !more {
                return Ok(Batch { bytes, rest: None });
            }
            if bytes.len() >= BATCH || input >= BATCH_INPUT {
                return Ok(Batch { bytes, rest: Some(self) });
            }
        }
    }
}

impl Work {
    pub(super) fn new(writer: Box<Writer>, cpu: &RequestCpu) -> Self {
        Self { writer: Some(writer), busy: None, cpu: cpu.clone() }
    }

    /// Returns the next bytes, possibly none, while the following batch is being encoded; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let cpu = &self.cpu;
        let start = |writer: Box<Writer>| {
            let cpu = cpu.clone();
            spawn_blocking(move || cpu.count(|| writer.batch()))
        };
        if let Some(writer) = self.writer.take() {
            self.busy = Some(start(writer));
        }
        let Some(busy) = &mut self.busy else { return Poll::Ready(Ok(None)) };
        let batch = ready!(Pin::new(busy).poll(cx)).map_err(io::Error::other);
        self.busy = None;
        let Batch { bytes, rest } = batch??;
        self.busy = rest.map(start);
        Poll::Ready(Ok(Some(bytes.into())))
    }
}

impl Content {
    /// Returns the next bytes, possibly none; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let next = match self {
            Self::Whole(bytes) => Some(mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            Self::Encoded(work) => ready!(work.poll_next(cx))?,
        };
        if next.is_none() {
            *self = Self::Whole(Bytes::new());
        }
        Poll::Ready(Ok(next))
    }
}

/// Response bytes that count as [`Part::Queues`](crate::budget::Part::Queues) until they are sent.
#[derive(Debug)]
struct Queued {
    bytes: Bytes,
    _held: budget::Account,
}

impl Queued {
    fn count(bytes: Bytes, memory: &Share) -> Bytes {
        let held = memory.account();
        held.set(bytes.len() as u64);
        Bytes::from_owner(Self { bytes, _held: held })
    }
}

impl AsRef<[u8]> for Queued {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Accounting of one response, completed on drop: sent, or aborted.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) traffic: Traffic,
    pub(super) clock: Clock,
    pub(super) path: &'static str,
    pub(super) code: u16,
    pub(super) began: Monotonic,
    pub(super) bytes: u64,
    /// Span of the request; it ends with the response.
    pub(super) span: Span,
    pub(super) _place: Slot,
}

impl Drop for Account {
    fn drop(&mut self) {
        self.span.set("http.response.status_code", i64::from(self.code));
        self.span.set("http.response.body.size", i64::try_from(self.bytes).unwrap_or(i64::MAX));
        if self.code >= 500 {
            self.span.set("error.type", itoa::Buffer::new().format(self.code).to_owned());
            self.span.fail("");
        }
        let took = self.clock.monotonic().since(self.began);
        self.traffic.answered(self.path, self.code, self.bytes, took);
    }
}

/// A response body for hyper.
#[derive(Debug)]
pub(super) struct Body {
    content: Content,
    account: Account,
    memory: Share,
    /// Time by which the client must have read the response.
    deadline: Monotonic,
}

impl Body {
    /// Creates a body. `limit` is the time for the client to read it. Bytes not sent yet count toward `memory`.
    pub(super) fn new(content: Content, account: Account, memory: &Share, limit: Duration) -> Self {
        let deadline = Monotonic(account.clock.monotonic().0.saturating_add(limit));
        let content = match content {
            Content::Whole(bytes) => Content::Whole(Queued::count(bytes, memory)),
            Content::Encoded(_) => content,
        };
        Self { content, account, memory: memory.clone(), deadline }
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
            this.content = Content::Whole(Bytes::new());
            let message = "the client did not read the response in time";
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, message))));
        }
        loop {
            match ready!(this.content.poll_next(cx)) {
                Ok(Some(bytes)) if bytes.is_empty() => {}
                Ok(Some(bytes)) => {
                    this.account.bytes += bytes.len() as u64;
                    let is_batch = matches!(this.content, Content::Encoded(_));
                    let bytes = if is_batch { Queued::count(bytes, &this.memory) } else { bytes };
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Ok(None) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Encoded(_) => SizeHint::default(),
        }
    }
}
