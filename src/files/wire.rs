//! Messages between this process and its helper, on a `SOCK_SEQPACKET` socket pair: a length, JSON of that length, and bytes of a file. A
//! descriptor is attached if a local file was opened.
//!
//! Both ends are the same binary, so the protocol has no versions.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ProcessFile, Root, RootError, Stat, Stuck};
use crate::error::Errno;

/// Maximum number of file bytes in one message.
pub(super) const CHUNK: usize = 64 << 10;
/// Maximum length of a message. Paths have at most `PATH_MAX` bytes, each of which JSON encodes in up to six.
const MESSAGE: usize = CHUNK + (64 << 10);

/// Request to the helper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Request {
    Open(OpenRequest),
    Read { file: u64, offset: u64, length: usize },
    Stat { file: u64 },
    Close { file: u64 },
}

/// File to open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum OpenRequest {
    /// By path in a root.
    Path { root: Root, path: String, cgroup_dir: Option<PathBuf>, purpose: Purpose },
    /// File that a process has mapped at exactly this address range.
    Mapped { pid: u32, range: (u64, u64), device: (u32, u32) },
    /// File of `/proc/PID`.
    Process { pid: u32, file: ProcessFile },
}

/// Reason why a file is opened by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    Read,
    /// To read a file in a directory to which any user can write: a link at the end of the path is not followed.
    ReadPublic,
    /// To put a probe on it.
    Probe,
}

/// Request with a number that identifies its response.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NumberedRequest {
    pub(super) number: u64,
    pub(super) request: Request,
}

/// Response to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The file is open. The attached descriptor is the file itself, or with `file` its `O_PATH` descriptor.
    Opened {
        shown: PathBuf,
        pid: Option<u32>,
        file: Option<u64>,
    },
    /// The file could not be opened.
    NotOpened(RootError),
    /// The bytes after the JSON were read; fewer than requested at the end of the file.
    Read,
    Stat(Stat),
    /// Reading failed.
    Failed(Errno),
}

/// Message of the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Notice {
    Answer {
        number: u64,
        answer: Answer,
    },
    /// All stuck operations, after one became stuck or ended; `lifted` states whether one ended.
    Stuck {
        all: Vec<Stuck>,
        lifted: bool,
    },
}

/// Received message.
#[derive(Debug)]
pub(super) struct Received<M> {
    pub(super) message: M,
    pub(super) bytes: Vec<u8>,
    pub(super) descriptor: Option<OwnedFd>,
}

/// Creates the socket pair.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let family = rustix::net::AddressFamily::UNIX;
    Ok(rustix::net::socketpair(family, rustix::net::SocketType::SEQPACKET, flags, None)?)
}

/// Sends a message with optional file bytes and a descriptor. With `wait`, blocks while the receive queue is full.
///
/// # Errors
/// `EAGAIN` without `wait`; `EPIPE` if the other end is closed.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    wait: bool,
) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?.to_ne_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = if wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
    let pieces = [IoSlice::new(&length), IoSlice::new(&json), IoSlice::new(bytes)];
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(socket, &pieces, &mut ancillary, flags))?;
    Ok(())
}

/// Receives a message; `None` if the other end is closed. `buffer` is reused between calls.
///
/// # Errors
/// See `recvmsg(2)`; also malformed messages.
pub(super) fn receive<M: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Received<M>>> {
    buffer.resize(MESSAGE, 0);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut pieces = [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(socket, &mut pieces, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if received.bytes == 0 {
        return Ok(None);
    }
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(malformed());
    }
    let whole = buffer.get(..received.bytes).ok_or_else(malformed)?;
    let (length, rest) = whole.split_first_chunk().ok_or_else(malformed)?;
    let length = usize::try_from(u32::from_ne_bytes(*length)).map_err(|_| malformed())?;
    let (json, bytes) = rest.split_at_checked(length).ok_or_else(malformed)?;
    let message = serde_json::from_slice(json)?;
    Ok(Some(Received { message, bytes: bytes.to_vec(), descriptor }))
}
