//! Metadata sources of containers, as real hosts have them and as hostile servers: answers are used, errors are reported, and no request
//! blocks for long.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use perf_exporter::clock::Clock;
use perf_exporter::config::containers::{Containers, Pods, Socket};
use perf_exporter::container::{self, Directory, MetadataContext, Metrics, ask_once};
use perf_exporter::host::{Environment, Roots};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const ID: &str = "4f0cdeadbeef00112233445566778899aabbccddeeff00112233445566778899";

/// Returns a configuration without metadata sources.
fn nobody() -> Containers {
    Containers { cri: Socket::Off, docker: Socket::Off, ..Containers::default() }
}

fn docker(socket: &Path) -> Containers {
    Containers { docker: Socket::At(socket.to_owned()), ..nobody() }
}

/// Makes one request. Returns the number of containers, or the error.
fn asked(wanted: &Containers) -> Result<usize, String> {
    let (directory, problems) =
        ask_once(wanted, &Roots::default(), &Environment::default(), &Clock::system(), true);
    assert_eq!(problems, Vec::<String>::new());
    let [asked] = <[_; 1]>::try_from(directory.sources()).unwrap();
    match asked.failure {
        Some(failure) => Err(failure.why),
        None => Ok(asked.answered.map(|_| asked.containers).expect("a request was made")),
    }
}

/// Listens on a socket and sends `answer` to each client. An empty answer leaves the connection open.
fn talker(dir: &tempfile::TempDir, answer: &'static [u8]) -> PathBuf {
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let Ok(1..) = stream.read(&mut request) else { continue };
            stream.write_all(answer).ok();
            if answer.is_empty() {
                silent.push(stream);
            }
        }
    });
    path
}

#[test]
fn what_docker_says_is_read_whatever_it_is() {
    let table: [(&[u8], Result<usize, &str>); 7] = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", Ok(0)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n[{\"Id\":\"a\"}]\r\n0\r\n\r\n", Ok(1)),
        (
            b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nno \x1b[2J!\n",
            Err("the server returned 500 Internal Server Error: no \u{fffd}[2J!"),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<html",
            Err("the response is not a list of containers: "),
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[", Err("the response was incomplete: ")),
        (b"SSH-2.0-OpenSSH\r\n", Err("invalid HTTP version parsed")),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", Err("invalid HTTP version parsed")),
    ];
    for (answer, expected) in table {
        let dir = tempfile::tempdir().unwrap();
        match (asked(&docker(&talker(&dir, answer))), expected) {
            (Ok(containers), Ok(expected)) => assert_eq!(containers, expected),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (said, expected) => panic!("{said:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn what_speaks_no_grpc_is_no_runtime() {
    for answer in
        [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"hello\n"]
    {
        let dir = tempfile::tempdir().unwrap();
        let wanted = Containers { cri: Socket::At(talker(&dir, answer)), ..nobody() };
        asked(&wanted).unwrap_err();
    }
}

#[test]
fn a_socket_that_is_not_there_is_named_with_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let why = asked(&docker(&dir.path().join("none"))).unwrap_err();
    assert!(why.contains("No such file or directory"), "{why}");
    assert!(why.ends_with("in a container, the directory of the socket must be mounted"), "{why}");
    let cri = Containers { cri: Socket::At(dir.path().join("none")), ..nobody() };
    let why = asked(&cri).unwrap_err();
    assert!(why.ends_with("in a container, the directory of the socket must be mounted"), "{why}");
}

#[test]
fn who_says_nothing_is_left_after_five_seconds() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(asked(&docker(&talker(&dir, b""))), Err("no response within 5s".to_owned()));
}

#[test]
fn sockets_are_found_where_runtimes_have_them() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::under(dir.path());
    let wanted = Containers::default();
    let found = |roots: &Roots| {
        let (found, problems) = container::find(&wanted, roots, &Environment::default());
        assert_eq!(problems, Vec::<String>::new());
        found.iter().map(|found| found.kind().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(&roots), Vec::<String>::new(), "a host without containers is not an error");
    let _listeners: Vec<UnixListener> = ["run/k3s/containerd/containerd.sock", "run/podman/podman.sock"]
        .map(|path| roots.mounted(path))
        .map(|path| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            UnixListener::bind(path).unwrap()
        })
        .into();
    assert_eq!(found(&roots), ["cri", "docker"]);
}

/// An HTTP server that gives the same answer to each request and keeps the requests. It uses TLS if it has a certificate.
fn server(status: &'static str, body: &'static str, tls: bool) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let config = tls.then(|| {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls");
        let certificate = CertificateDer::from_pem_file(data.join("server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(data.join("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        Arc::new(config.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap())
    });
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let serve = |stream: &mut dyn ReadWrite| {
                let mut request = [0; 4096];
                let Ok(length @ 1..) = stream.read(&mut request) else { return };
                seen.lock().unwrap().push(String::from_utf8_lossy(&request[..length]).into_owned());
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).ok();
                stream.flush().ok();
            };
            match &config {
                None => serve(&mut stream),
                Some(config) => {
                    let connection = rustls::ServerConnection::new(Arc::clone(config)).unwrap();
                    let mut stream = rustls::StreamOwned::new(connection, stream);
                    serve(&mut stream);
                    stream.conn.send_close_notify();
                    stream.flush().ok();
                }
            }
        }
    });
    let scheme = if tls { "https" } else { "http" };
    (format!("{scheme}://{address}"), requests)
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

const PODS: &str = concat!(
    r#"{"kind":"PodList","items":[{"metadata":{"name":"web-0","namespace":"shop","uid":"u-1"},"#,
    r#""status":{"containerStatuses":[{"name":"app","containerID":"containerd://4f0c"}]}}]}"#
);

fn token(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("token");
    std::fs::write(&path, "s3cret\n").unwrap();
    path
}

#[test]
fn a_kubelet_is_asked_for_its_pods_with_the_token_of_the_account() {
    let dir = tempfile::tempdir().unwrap();
    let (url, requests) = server("200 OK", PODS, true);
    let pods = Pods { url: Some(url), token: Some(token(&dir)), insecure: true, ..Pods::default() };
    assert_eq!(asked(&Containers { kubelet: Some(pods), ..nobody() }), Ok(1));
    let requests = requests.lock().unwrap();
    assert!(requests[0].starts_with("GET /pods HTTP/1.1\r\n"), "{requests:?}");
    assert!(requests[0].contains("authorization: Bearer s3cret\r\n"), "{requests:?}");
}

#[test]
fn a_certificate_of_a_stranger_is_refused_before_the_token_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let (url, requests) = server("200 OK", PODS, true);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls");
    let pods = |ca: &str| Pods {
        url: Some(url.clone()),
        token: Some(token(&dir)),
        ca: Some(data.join(ca)),
        ..Pods::default()
    };
    let wanted = |ca| Containers { kubelet: Some(pods(ca)), ..nobody() };
    let why = asked(&wanted("other-ca.pem")).unwrap_err();
    assert!(why.contains("certificate") && why.contains("`insecure: true`"), "{why}");
    assert_eq!(*requests.lock().unwrap(), Vec::<String>::new());
    assert_eq!(asked(&wanted("ca.pem")), Ok(1));
}

#[test]
fn a_token_is_not_sent_where_everybody_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let (url, requests) = server("200 OK", PODS, false);
    let pods = Pods { url: Some(url), token: Some(token(&dir)), ..Pods::default() };
    assert_eq!(asked(&Containers { kubelet: Some(pods), ..nobody() }), Ok(1));
    assert!(!requests.lock().unwrap()[0].contains("s3cret"));
}

#[test]
fn the_api_server_is_asked_for_the_pods_of_this_node_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (url, requests) = server("403 Forbidden", "no pods", false);
    let (_, address) = url.split_once("//").unwrap();
    let (host, port) = address.split_once(':').unwrap();
    let environment: Environment =
        [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port), ("NODE_NAME", "worker-1")]
            .into_iter()
            .collect();
    let in_pod = Containers { api_server: Some(Pods::default()), ..nobody() };
    let (found, _) = container::find(&in_pod, &Roots::default(), &environment);
    let expected =
        format!("https://{address}/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3Dworker-1");
    assert_eq!(found[0].place(), expected);
    let pods = Pods { url: Some(url), node: Some("n".into()), token: Some(token(&dir)), ..Pods::default() };
    let why = asked(&Containers { api_server: Some(pods), ..nobody() }).unwrap_err();
    assert!(
        why.starts_with("the server returned 403 Forbidden: no pods; the service account needs"),
        "{why}"
    );
    assert!(
        requests.lock().unwrap()[0]
            .starts_with("GET /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3Dn ")
    );
}

#[test]
fn where_a_pod_does_not_know_its_cluster_that_is_said() {
    let in_pod = Containers { api_server: Some(Pods::default()), ..nobody() };
    let problems = |environment: &[(&str, &str)]| {
        container::find(&in_pod, &Roots::default(), &environment.iter().copied().collect()).1.join("")
    };
    assert!(problems(&[]).contains("KUBERNETES_SERVICE_HOST"));
    let service = [("KUBERNETES_SERVICE_HOST", "::1"), ("KUBERNETES_SERVICE_PORT", "443")];
    assert!(problems(&service).contains("NODE_NAME"));
    let odd = [service[0], service[1], ("NODE_NAME", "a&b")];
    assert!(problems(&odd).contains("is not a valid node name"));
}

#[test]
fn containers_get_their_names_whoever_else_is_dead() {
    let (dead, alive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let answer: &'static str = Box::leak(
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[{{\"Id\":\"{ID}\",\"Names\":[\"/db\"]}}]")
            .into_boxed_str(),
    );
    let wanted = Containers {
        cri: Socket::At(dead.path().join("none")),
        docker: Socket::At(talker(&alive, answer.as_bytes())),
        ..Containers::default()
    };
    let registry = prometheus::Registry::new();
    let directory = Arc::new(Directory::new(Clock::system()));
    let (_settings, receiver) = tokio::sync::watch::channel(Arc::new(wanted));
    let surroundings = MetadataContext {
        roots: Roots::default(),
        environment: Environment::default(),
        clock: Clock::system(),
        metrics: Metrics::new(&registry).unwrap(),
    };
    container::start(Arc::clone(&directory), receiver, surroundings).unwrap();
    let path = format!("/docker/{ID}");
    let mut tries = 0;
    let identity = loop {
        if let Some(identity) = directory.identity(&path) {
            break identity;
        }
        assert!(tries < 3000, "{:?}", directory.sources());
        tries += 1;
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(identity.pairs().collect::<BTreeMap<_, _>>(), BTreeMap::from([("container", "db")]));
    let sources = directory.sources();
    assert!(sources[0].failure.is_some() && sources[1].failure.is_none(), "{sources:?}");
    let lookups = |source: &str, result: &str| {
        let families = registry.gather();
        let family =
            families.iter().find(|family| family.name() == "perf_exporter_container_lookups_total").unwrap();
        let has = |metric: &&prometheus::proto::Metric| {
            metric.get_label().iter().map(prometheus::proto::LabelPair::value).eq([result, source])
        };
        family.get_metric().iter().find(has).map(|metric| metric.get_counter().get_value())
    };
    assert!(lookups("docker", "ok") >= Some(1.0));
    assert!(lookups("cri", "failed") >= Some(1.0));
}
