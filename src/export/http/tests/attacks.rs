//! Requests that are no requests, or more than one.

use std::net::Shutdown;

use super::*;

/// Sends bytes, ends the own side, and returns what the server sends until it closes the connection.
fn sent(running: &Running, bytes: &[u8]) -> Vec<u8> {
    let mut stream = running.connect();
    // The server may close the connection before everything is sent.
    drop(stream.write_all(bytes));
    drop(stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    answer
}

/// A proxy in front may see the end of a body elsewhere. What follows a body is therefore never a request.
#[test]
fn a_request_cannot_be_smuggled_in_the_body_of_another() {
    let program = program(snapshot(1, 1));
    let reloads = Arc::clone(&program.reloads);
    let running = Running::with(program, Limits::default());
    let smuggled = "POST /-/reload HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for head in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
        "Content-Length: +0\r\n\r\n",
        "Content-Length: 3\r\n\r\nabc",
        "Content-Length: 1\r\n\r\n\r\n",
    ] {
        for line in ["GET /-/healthy", "GET /metrics", "HEAD /metrics", "DELETE /metrics"] {
            let answer =
                sent(&running, format!("{line} HTTP/1.1\r\nHost: localhost\r\n{head}{smuggled}").as_bytes());
            let answers = answer.windows(9).filter(|window| *window == b"HTTP/1.1 ").count();
            assert!(answers <= 1, "{line} {head:?}: {}", String::from_utf8_lossy(&answer));
            assert_eq!(*reloads.lock().unwrap(), 0, "{line} {head:?}");
        }
    }
    sent(&running, format!("GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n{smuggled}").as_bytes());
    assert_eq!(*reloads.lock().unwrap(), 1, "without a body, a request may follow");
}

/// `MUTATIONS` sets the number of requests.
#[test]
fn mutated_requests_are_answered_or_cut_off_and_the_server_lives() {
    let number: u64 = std::env::var("MUTATIONS").map_or(2000, |number| number.parse().unwrap());
    let running = Running::with(program(snapshot(1, 1)), Limits::default());
    let valid = [
        "GET /metrics?created=true HTTP/1.1\r\nHost: localhost:7373\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5\r\n\
         Accept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n",
        "POST /-/reload HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: 0\r\n\r\n",
        "GET /status HTTP/1.0\r\nAuthorization: Basic YTpi\r\nSec-Fetch-Site: none\r\n\r\n",
        "HEAD /folded?comm=a* HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for _ in 0..number {
        let mut bytes = valid[random(valid.len())].as_bytes().to_vec();
        for _ in 0..=random(4) {
            if bytes.is_empty() {
                break;
            }
            let at = random(bytes.len());
            match random(5) {
                0 => bytes[at] = u8::try_from(random(256)).unwrap(),
                1 => bytes.insert(at, b"\r\n\0 :,%\xff"[random(8)]),
                2 => drop(bytes.remove(at)),
                3 => {
                    let end = at + random(bytes.len() - at);
                    let part = bytes[at..end].repeat(1 + random(30));
                    bytes.splice(at..at, part);
                }
                _ => bytes.truncate(at.max(1)),
            }
        }
        let answer = sent(&running, &bytes);
        let shown =
            || (String::from_utf8_lossy(&bytes).into_owned(), String::from_utf8_lossy(&answer).into_owned());
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{:?}", shown());
    }
    running.is_alive_for(1);
}
