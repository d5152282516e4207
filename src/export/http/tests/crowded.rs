//! Overload: more connections and requests than slots.

use super::*;

/// Sends a request on a connection that stays open, and reads the response head and the first `body` bytes after it.
fn ask_on(stream: &mut TcpStream, path: &str, body: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(body.as_bytes()) {
        let mut part = [0; 512];
        let n = stream.read(&mut part).unwrap();
        assert_ne!(n, 0, "the connection was closed");
        bytes.extend_from_slice(&part[..n]);
    }
}

fn healthy(stream: &mut TcpStream) {
    ask_on(stream, "/-/healthy", "healthy\n");
}

/// Reports whether a connection is still open, as far as can be determined without waiting.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    seen.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Waits until a number of connections were aborted for a reason.
fn wait_for(server: &Running, reason: &str, number: f64) {
    while server.aborted_by(reason) < number {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn idle_and_slow_sockets_keep_no_scrape_and_no_health_check_out() {
    for (sockets, sent) in [(33, ""), (500, ""), (500, "GET /metrics HTTP/1.1\r\nX-Slow")] {
        let limits = Limits { connections: 32, ..Limits::default() };
        let server = Running::with(program(snapshot(100, 20)), limits);
        let mut held = Vec::new();
        for n in 0..sockets {
            // Connections of one peer, or of four.
            let mut stream = if n % 2 == 0 { server.connect() } else { server.connect_from(2 + n as u8 % 4) };
            // The server may have closed the connection already.
            drop(stream.write_all(sent.as_bytes()));
            held.push(stream);
            if n % 32 == 0 {
                // One address is that of the peer with the most connections, the other is a new peer.
                [1, 9].into_iter().for_each(|host| server.is_alive_for(host));
            }
        }
        [1, 9].into_iter().for_each(|host| server.is_alive_for(host));
        assert!(server.aborted_by("limit") > 0.0, "{sockets} sockets are not too many");
    }
}

#[test]
fn an_idle_connection_is_closed_before_one_whose_request_arrives() {
    let server = Running::new(program(snapshot(1, 1)));
    let arriving: Vec<_> = (0..13).map(|_| server.connect()).collect();
    let (mut first, mut second) = (server.connect(), server.connect());
    healthy(&mut first);
    healthy(&mut second);
    // From here on the first connection has been idle for longer.
    healthy(&mut first);
    healthy(&mut second);
    // Up to 16 loopback connections may wait.
    let more: Vec<_> = (0..2).map(|_| server.connect()).collect();
    wait_for(&server, "idle", 1.0);
    assert_eq!(read_until_cut(&mut first), 0);
    assert!(is_open(&second) && arriving.iter().chain(&more).all(is_open));
    healthy(&mut second);
}

#[test]
fn a_client_is_told_why_its_connection_made_room() {
    let server = Running::new(program(snapshot(1, 1)));
    let mut first = server.connect();
    let _others: Vec<_> = (0..16).map(|_| server.connect()).collect();
    let answer = Answer::read(&mut first);
    assert_eq!((answer.code(), answer.header("retry-after")), (503, Some("5")));
    assert!(answer.text().contains("limits.connections"), "{}", answer.text());
}

#[test]
fn a_connection_may_be_idle_for_longer_than_headers_may_take() {
    let limits = Limits { headers: Duration::from_millis(100), ..Limits::default() };
    let server = Running::with(program(snapshot(1, 1)), limits);
    let mut stream = server.connect();
    for _ in 0..2 {
        healthy(&mut stream);
        thread::sleep(Duration::from_millis(300));
    }
    stream.write_all(b"GET /-/healthy HT").unwrap();
    assert_eq!(read_until_cut(&mut stream), 0);
    assert_eq!(server.wait_for_abort(), "timeout");
}

#[test]
fn headers_that_begin_behind_another_request_have_no_more_time() {
    let limits = Limits { headers: Duration::from_millis(100), ..Limits::default() };
    let server = Running::with(program(snapshot(1, 1)), limits);
    let mut stream = server.connect();
    stream.write_all(b"GET /-/healthy HTTP/1.1\r\nHost: test\r\n\r\nGET /-/healthy HT").unwrap();
    assert!(read_until_cut(&mut stream) > 0);
    assert_eq!(server.wait_for_abort(), "timeout");
}

#[test]
fn an_idle_connection_ends_quietly() {
    let limits = Limits { idle: Duration::from_millis(50), ..Limits::default() };
    let server = Running::with(program(snapshot(1, 1)), limits);
    let mut stream = server.connect();
    healthy(&mut stream);
    assert_eq!(read_until_cut(&mut stream), 0);
    assert_eq!(server.aborted(), None);
}

#[test]
fn pages_that_hang_are_refused_by_peer_and_by_number_while_scrapes_go_on() {
    let program = program(snapshot(1, 1));
    // Two slots for pages, one of them per peer.
    let server = Running::with(program.clone(), Limits { connections: 8, ..Limits::default() });
    let hang = program.pages.lock().unwrap();
    thread::scope(|scope| {
        let mut waiting = Vec::new();
        for host in [1, 2] {
            let mut stream = server.connect_from(host);
            stream.write_all(b"GET /status HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
            // Responses that are available immediately arrive in the order of the requests.
            while server.ask_from(host, "/api/v1/status").code() != 429 {
                thread::sleep(Duration::from_millis(2));
            }
            waiting.push(scope.spawn(move || Answer::read(&mut stream)));
        }
        let refused = server.ask_from(1, "/api/v1/status");
        assert_eq!((refused.code(), refused.header("retry-after")), (429, Some("5")));
        assert!(refused.text().contains("of your address"), "{}", refused.text());
        let refused = server.ask_from(3, "/status");
        assert_eq!((refused.code(), refused.header("retry-after")), (503, Some("5")));
        assert!(refused.text().contains("limits.connections"), "{}", refused.text());
        [1, 2, 3].into_iter().for_each(|host| server.is_alive_for(host));
        drop(hang);
        waiting.into_iter().for_each(|answer| assert_eq!(answer.join().unwrap().code(), 200));
    });
}

#[test]
fn a_scraper_that_does_not_read_gives_its_place_to_others() {
    let server = Running::new(program(huge()));
    let mut hanging: Vec<_> = (0..8).map(|_| server.connect_from(2)).collect();
    for stream in &mut hanging {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
    }
    let mut other = server.connect_from(3);
    other.write_all(b"HEAD /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(Answer::read(&mut other).code(), 200);
    assert_eq!(server.aborted_by("displaced"), 1.0);
    assert!(read_until_cut(&mut hanging[0]) < 60_000_000);
}

#[test]
fn an_answer_counts_as_memory_until_it_is_sent() {
    let server = Running::with(program(huge()), Limits::default());
    let mut hesitating = server.connect();
    hesitating.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let wait = || thread::sleep(Duration::from_millis(2));
    while server.memory.used() == 0 {
        wait();
    }
    std::io::copy(&mut hesitating, &mut std::io::sink()).unwrap();
    while server.memory.used() > 0 {
        wait();
    }
}
