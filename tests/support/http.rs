//! An HTTP client with a deadline, for tests of requests that must be answered while another part hangs.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// An answer: status code and body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: String,
}

/// Requests `path`. Returns the answer if it is complete within `patience`, which includes the connection.
///
/// # Errors
/// `TimedOut` after the deadline; errors of the connection; `InvalidData` if the answer is not HTTP.
pub(crate) fn ask(address: &str, method: &str, path: &str, patience: Duration) -> io::Result<Answer> {
    let end = now() + patience;
    let left = || {
        let left = end.checked_sub(now()).filter(|left| !left.is_zero());
        left.ok_or_else(|| io::Error::from(ErrorKind::TimedOut))
    };
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    // HTTP 1.0: the body ends with the connection.
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let (mut answer, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(size) => answer.extend(&part[..size]),
            // A socket with a timeout returns EINTR after the process was stopped.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        }
    }
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| ErrorKind::InvalidData.into())
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { code, body: body.to_owned() })
}

pub(crate) fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap()
}
