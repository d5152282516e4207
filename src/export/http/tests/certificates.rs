//! Open connections while the TLS settings are replaced.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustls::{ClientConnection, StreamOwned};

use super::*;
use crate::net::server_tls::{ClientAuth, Pem, ServerTlsSettings};
use crate::net::tls::{Tls, Trust};

type Secured = StreamOwned<ClientConnection, TcpStream>;

fn pem(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(file)
}

/// Settings that require a certificate of this authority. Only ca.pem is the authority of the client.
fn settings(authority: &str) -> ServerTlsSettings {
    ServerTlsSettings {
        certificate: Pem::File(pem("server.pem")),
        key: Pem::File(pem("server.key")),
        client_auth: ClientAuth::RequireAndVerify,
        client_ca: Some(Pem::File(pem(authority))),
        client_names: Vec::new(),
        versions: [true; 2],
        suites: None,
        groups: None,
        prefers_own_order: true,
    }
}

fn with_names(names: &[&str]) -> ServerTlsSettings {
    ServerTlsSettings {
        client_names: names.iter().map(|&name| name.to_owned()).collect(),
        ..settings("ca.pem")
    }
}

fn rules(tls: Option<&ServerTlsSettings>) -> Arc<Rules> {
    Arc::new(Rules::new(&Web::default(), ["test"], tls.map(|tls| tls.open().unwrap())))
}

/// A server whose rules can be replaced.
struct Governed {
    server: Running,
    rules: watch::Sender<Arc<Rules>>,
}

impl Governed {
    fn new(tls: Option<&ServerTlsSettings>, limits: Limits) -> Self {
        Self::of(program(snapshot(1, 1)), tls, limits)
    }

    fn of(program: Program, tls: Option<&ServerTlsSettings>, limits: Limits) -> Self {
        let (sender, receiver) = watch::channel(rules(tls));
        Self { server: Running::with(Program { rules: receiver, ..program }, limits), rules: sender }
    }

    fn replace(&self, tls: Option<&ServerTlsSettings>) {
        self.rules.send_replace(rules(tls));
    }

    /// Connects with the certificate of the client.
    fn connect(&self) -> Secured {
        let files = Tls {
            ca: Some(pem("ca.pem")),
            certificate: Some(pem("client.pem")),
            key: Some(pem("client.key")),
        };
        let config = Arc::new(Trust::Files(files).client().unwrap());
        let connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        StreamOwned::new(connection, self.server.connect())
    }

    /// Returns once the server has read everything that was sent before: it reads all sockets with data in turn.
    fn has_read(&self) {
        assert_eq!(ask(&mut self.connect(), "/-/healthy").unwrap(), 200);
    }
}

/// Sends a request, and returns the status of its response. The connection stays open.
fn ask(stream: &mut (impl Read + Write), path: &str) -> std::io::Result<u16> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")?;
    let (code, _) = read(stream)?;
    Ok(code)
}

/// Reads one response with a length. Returns its status and its headers.
fn read(stream: &mut impl Read) -> std::io::Result<(u16, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let answer = Answer::parse(&head);
    let length: usize = answer.header("content-length").unwrap().parse().unwrap();
    stream.read_exact(&mut vec![0; length])?;
    Ok((answer.code(), answer.head))
}

/// Returns what arrives until the connection is closed.
fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    rest
}

#[test]
fn an_open_connection_is_closed_when_clients_need_something_else_than_before() {
    for (changed, is_accepted) in [
        (Some(settings("other-ca.pem")), false),
        (Some(with_names(&["scraper.example"])), false),
        (Some(with_names(&["localhost"])), true),
        (Some(ServerTlsSettings { client_auth: ClientAuth::VerifyIfGiven, ..settings("ca.pem") }), true),
        (None, false),
    ] {
        let governed = Governed::new(Some(&settings("ca.pem")), Limits::default());
        let mut open = governed.connect();
        assert_eq!(ask(&mut open, "/-/healthy").unwrap(), 200);
        governed.replace(changed.as_ref());
        assert_eq!(rest(&mut open), b"", "closed without a response: {changed:?}");
        let again = ask(&mut governed.connect(), "/-/healthy");
        assert_eq!(again.is_ok(), is_accepted, "{changed:?}: {again:?}");
    }
}

#[test]
fn a_renewed_certificate_of_the_server_closes_no_connection() {
    let governed = Governed::new(Some(&settings("ca.pem")), Limits::default());
    let mut open = governed.connect();
    assert_eq!(ask(&mut open, "/-/healthy").unwrap(), 200);
    let (certificate, key) = (Pem::File(pem("client.pem")), Pem::File(pem("client.key")));
    governed.replace(Some(&ServerTlsSettings { certificate, key, ..settings("ca.pem") }));
    governed.has_read();
    assert_eq!(ask(&mut open, "/-/healthy").unwrap(), 200);
}

#[test]
fn a_response_in_progress_is_finished_before_its_connection_is_closed() {
    let program = program(snapshot(1, 1));
    let governed = Governed::of(program.clone(), Some(&settings("ca.pem")), Limits::default());
    let mut open = governed.connect();
    let rendering = program.pages.lock().unwrap();
    write!(open, "GET /status HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    while program.begun.load(Ordering::Relaxed) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    governed.replace(Some(&with_names(&["localhost"])));
    governed.has_read();
    drop(rendering);
    let (code, head) = read(&mut open).unwrap();
    assert_eq!(code, 200);
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!(rest(&mut open), b"");
}

#[test]
fn a_response_that_does_not_end_is_aborted_after_its_time() {
    let endless = Program { snapshot: None, ..program(snapshot(1, 1)) };
    let limits = Limits { answer: Duration::from_millis(50), ..Limits::default() };
    let limits = Limits { collection: Duration::from_secs(3600), ..limits };
    let governed = Governed::of(endless, Some(&settings("ca.pem")), limits);
    let mut open = governed.connect();
    write!(open, "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    governed.has_read();
    governed.replace(Some(&with_names(&["localhost"])));
    // The connection is closed without a response, so also without the last message of TLS.
    let error = open.read(&mut [0; 100]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
    while governed.server.aborted_by("timeout") == 0.0 {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_request_that_is_complete_after_the_change_is_not_answered() {
    let governed = Governed::new(Some(&settings("ca.pem")), Limits::default());
    let mut open = governed.connect();
    write!(open, "GET /metrics HTTP/1.1\r\n").unwrap();
    open.flush().unwrap();
    governed.has_read();
    governed.replace(Some(&with_names(&["localhost"])));
    governed.has_read();
    write!(open, "Host: test\r\n\r\n").unwrap();
    let (code, head) = read(&mut open).unwrap();
    assert_eq!(code, 421);
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!(rest(&mut open), b"");
}

#[test]
fn connections_without_tls_are_closed_when_tls_is_configured_but_not_those_of_unix_sockets() {
    let governed = Governed::new(None, Limits::default());
    let mut open = governed.server.connect();
    assert_eq!(ask(&mut open, "/-/healthy").unwrap(), 200);
    governed.replace(Some(&settings("ca.pem")));
    assert_eq!(rest(&mut open), b"");

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("http.sock");
    let listen =
        Listen { all: vec![ListenAddress::Unix(path.clone())], admin: Vec::new(), socket_mode: 0o600 };
    let (sender, receiver) = watch::channel(rules(None));
    let program = Program { rules: receiver, ..program(snapshot(1, 1)) };
    let _server = Running::on(Listeners::bind(&listen).unwrap(), program, Limits::default());
    let mut open = UnixStream::connect(&path).unwrap();
    assert_eq!(ask(&mut open, "/-/healthy").unwrap(), 200);
    sender.send_replace(rules(Some(&settings("ca.pem"))));
    let mut other = UnixStream::connect(&path).unwrap();
    for stream in [&mut other, &mut open] {
        assert_eq!(ask(stream, "/-/healthy").unwrap(), 200);
    }
}
