//! System calls with known arguments that a worker makes a known number of times.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::load::number;

/// A system call that a worker can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls<'a> {
    /// Reads this many bytes of `/dev/zero` in one call.
    Read(u64),
    /// Opens a file that does not exist.
    Open(&'a [u8]),
    /// Sends this many bytes in one call to a local port, always through the same connection.
    Send(u16, u64),
    /// Sleeps for this many milliseconds.
    Sleep(u64),
}

impl Calls<'_> {
    /// Returns the order for a worker to make the call `times` times, one after the other.
    pub(crate) fn times(self, times: u64) -> String {
        match self {
            Self::Read(bytes) => format!("read {times} {bytes}"),
            // A path may contain any byte, but an order is a line of words.
            Self::Open(path) => {
                let path: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("open {times} {path}")
            }
            Self::Send(port, bytes) => format!("send {times} {port} {bytes}"),
            Self::Sleep(milliseconds) => format!("sleep {times} {milliseconds}"),
        }
    }
}

/// Runs an order in the worker. Returns `false` if the order is unknown.
pub(super) fn run(order: &str, arguments: &[&str]) -> bool {
    match (order, arguments) {
        ("read", [times, bytes]) => read(number(times), number(bytes)),
        ("open", [times, path]) => open(number(times), path),
        ("send", [times, port, bytes]) => send(number(times), number(port), number(bytes)),
        ("sleep", [times, milliseconds]) => {
            let time = Duration::from_millis(number(milliseconds));
            (0..number(times)).for_each(|_| thread::sleep(time));
        }
        _ => return false,
    }
    true
}

fn read(times: u64, bytes: u64) {
    let mut zeros = File::open("/dev/zero").unwrap();
    let mut buffer = vec![0; bytes.try_into().unwrap()];
    for _ in 0..times {
        assert_eq!(zeros.read(&mut buffer).unwrap(), buffer.len());
    }
}

fn open(times: u64, path: &str) {
    let bytes = path.as_bytes().chunks(2).map(|digits| str::from_utf8(digits).unwrap());
    let bytes = bytes.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect();
    let path = PathBuf::from(OsString::from_vec(bytes));
    for _ in 0..times {
        assert!(File::open(&path).is_err(), "{} exists", path.display());
    }
}

/// Sends over a blocking socket, which accepts all bytes in one call.
fn send(times: u64, port: u64, bytes: u64) {
    let mut stream = TcpStream::connect(("127.0.0.1", port.try_into().unwrap())).unwrap();
    let bytes = vec![0; bytes.try_into().unwrap()];
    for _ in 0..times {
        assert_eq!(stream.write(&bytes).unwrap(), bytes.len());
    }
}
