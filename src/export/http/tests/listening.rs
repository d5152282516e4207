//! Sockets of the server.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use super::*;
use crate::error::Errno;
use crate::host::read_text;
use crate::sys::InheritedSocket;

fn on(all: &[ListenAddress], admin: &[ListenAddress]) -> Result<Listeners, BindError> {
    Listeners::bind(&Listen { all: all.to_vec(), admin: admin.to_vec(), socket_mode: 0o620 })
}

fn tcp(address: impl Into<SocketAddr>) -> ListenAddress {
    ListenAddress::Tcp(address.into())
}

/// Returns the response to a request without a host name of its own.
fn get(path: &Path, target: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn a_port_in_use_is_named_with_a_way_out() {
    let first = on(&[tcp(([127, 0, 0, 1], 0))], &[]).unwrap();
    let (address, _) = first.addresses().remove(0);
    let error = on(&[tcp(([127, 0, 0, 1], 0)), address.clone()], &[]).unwrap_err();
    assert_eq!(error.errno, Errno::EADDRINUSE);
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot listen on {address}: EADDRINUSE: ")), "{text}");
    assert!(text.contains("ss -ltnp") && text.contains("--listen"), "{text}");
}

#[test]
fn an_address_of_another_machine_is_named_with_a_way_out() {
    // 192.0.2.0/24 is reserved for documentation (RFC 5737).
    let error = on(&[tcp(([192, 0, 2, 1], 7373))], &[]).unwrap_err();
    assert_eq!(error.errno, Errno::EADDRNOTAVAIL);
    assert!(error.to_string().contains("no interface has the address 192.0.2.1"), "{error}");
}

#[test]
fn a_forbidden_port_is_named_with_a_way_out() {
    let error = BindError { address: tcp(([0, 0, 0, 0], 80)), errno: Errno::EACCES };
    assert!(error.to_string().contains("CAP_NET_BIND_SERVICE"), "{error}");
}

#[test]
fn several_sockets_serve_and_a_unix_socket_is_one_of_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("http.sock"), dir.path().join("admin.sock"));
    let sockets = [ListenAddress::Unix(path.clone()), tcp(([127, 0, 0, 1], 0))];
    let listeners = on(&sockets, &[ListenAddress::Unix(other.clone())]).unwrap();
    assert_eq!(listeners.addresses().iter().filter(|(_, is_admin)| *is_admin).count(), 1);
    let mode = fs_mode(&path);
    assert_eq!(mode, 0o620);
    let running = Running::on(listeners, program(snapshot(1, 1)), Limits::default());
    for path in [&path, &other] {
        for target in ["/metrics", "/-/healthy", "/status"] {
            let response = get(path, target);
            assert!(response.starts_with("HTTP/1.1 200 "), "{target}: {response}");
        }
    }
    assert!(TcpStream::connect(running.address).is_ok());
    drop(running);
    assert!(!path.exists() && !other.exists(), "the files are removed at the end");
}

fn fs_mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_file_of_a_socket_that_no_process_uses_is_replaced_and_others_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("http.sock");
    let socket = ListenAddress::Unix(path.clone());
    // Like a process that was killed: the file stays.
    drop(UnixListener::bind(&path).unwrap());
    let first = on(std::slice::from_ref(&socket), &[]).unwrap();
    let error = on(std::slice::from_ref(&socket), &[]).unwrap_err();
    assert_eq!(error.errno, Errno::EADDRINUSE);
    assert!(error.to_string().contains("another process listens on it"), "{error}");
    // Another process replaced the file: it is not ours to remove.
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(first);
    assert!(path.exists());
    let file = dir.path().join("file");
    std::fs::write(&file, "text").unwrap();
    let error = on(&[ListenAddress::Unix(file.clone())], &[]).unwrap_err();
    assert!(error.to_string().contains("the file is not a socket"), "{error}");
    assert_eq!(read_text(&file).unwrap(), "text");
    let error = on(&[ListenAddress::Unix(dir.path().join("absent/http.sock"))], &[]).unwrap_err();
    assert!(error.to_string().contains("does not exist: create it"), "{error}");
}

#[test]
fn sockets_of_the_service_manager_serve_and_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("passed.sock");
    let unix = UnixListener::bind(&path).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let passed = |descriptor, name: &str| InheritedSocket { descriptor, name: name.to_owned() };
    let listeners =
        Listeners::inherited(vec![passed(unix.into(), "perf-exporter.socket"), passed(tcp.into(), "admin")]);
    let listeners = listeners.unwrap();
    assert_eq!(
        listeners.addresses().iter().map(|(_, is_admin)| *is_admin).collect::<Vec<_>>(),
        [false, true]
    );
    let running = Running::on(listeners, program(snapshot(1, 1)), Limits::default());
    assert!(get(&path, "/metrics").starts_with("HTTP/1.1 200 "));
    drop(running);
    assert!(path.exists(), "the service manager keeps its file");
    let (connected, _peer) = UnixStream::pair().unwrap();
    let error = Listeners::inherited(vec![passed(connected.into(), "")]).unwrap_err();
    assert!(error.to_string().contains("not a listening stream socket"), "{error}");
}
