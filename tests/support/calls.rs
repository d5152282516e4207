//! System calls with known arguments, made by a worker so many times.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::load::number;

/// What a worker can be told to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls<'a> {
    /// Reads so many bytes of `/dev/zero` at once.
    Read(u64),
    /// Opens a file that is not there.
    Open(&'a [u8]),
    /// Sends so many bytes at once to a port of this machine, all through one connection.
    Send(u16, u64),
    /// Sleeps for so many milliseconds.
    Sleep(u64),
}

impl Calls<'_> {
    /// What to tell a worker that it makes the call so many times, each after the one before.
    pub(crate) fn times(self, times: u64) -> String {
        match self {
            Self::Read(bytes) => format!("read {times} {bytes}"),
            // A path may hold any byte, and an order is a line of words.
            Self::Open(path) => {
                let path: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("open {times} {path}")
            }
            Self::Send(port, bytes) => format!("send {times} {port} {bytes}"),
            Self::Sleep(milliseconds) => format!("sleep {times} {milliseconds}"),
        }
    }
}

/// The side of the worker. `false` if nobody knows that order.
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
        assert!(File::open(&path).is_err(), "{} is there", path.display());
    }
}

/// A blocking socket takes all of it in one call.
fn send(times: u64, port: u64, bytes: u64) {
    let mut stream = TcpStream::connect(("127.0.0.1", port.try_into().unwrap())).unwrap();
    let bytes = vec![0; bytes.try_into().unwrap()];
    for _ in 0..times {
        assert_eq!(stream.write(&bytes).unwrap(), bytes.len());
    }
}
