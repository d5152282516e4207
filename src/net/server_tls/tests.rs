use std::fs;

use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConnection};

use super::*;
use crate::net::tls::{Tls, Trust};

fn pem(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(file)
}

fn settings(client_auth: ClientAuth) -> ServerTlsSettings {
    ServerTlsSettings {
        certificate: Pem::File(pem("server.pem")),
        key: Pem::File(pem("server.key")),
        client_auth,
        client_ca: Some(Pem::File(pem("ca.pem"))),
        client_names: Vec::new(),
        versions: [true; 2],
        suites: None,
        groups: None,
        prefers_own_order: true,
    }
}

fn certificate(file: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&host::read(&pem(file)).unwrap()).unwrap()
}

/// Connects in memory, and returns how the server has completed the handshake.
fn handshake(server: &ServerTls, client: &Arc<ClientConfig>) -> Option<HandshakeKind> {
    let mut server = ServerConnection::new(Arc::clone(&server.config)).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), "localhost".try_into().unwrap()).unwrap();
    while client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    server.handshake_kind()
}

#[test]
fn each_connection_with_a_verified_certificate_is_verified_anew() {
    let files =
        Tls { ca: Some(pem("ca.pem")), certificate: Some(pem("client.pem")), key: Some(pem("client.key")) };
    for (versions, client_auth, second) in [
        ([true, true], ClientAuth::RequireAndVerify, HandshakeKind::Full),
        ([true, false], ClientAuth::RequireAndVerify, HandshakeKind::Full),
        ([true, true], ClientAuth::VerifyIfGiven, HandshakeKind::Full),
        ([true, true], ClientAuth::None, HandshakeKind::Resumed),
        ([true, false], ClientAuth::None, HandshakeKind::Resumed),
    ] {
        let server = ServerTlsSettings { versions, ..settings(client_auth) }.open().unwrap();
        let client = Arc::new(Trust::Files(files.clone()).client().unwrap());
        assert_eq!(handshake(&server, &client), Some(HandshakeKind::Full));
        assert_eq!(
            handshake(&server, &client),
            Some(second),
            "{client_auth:?}, TLS 1.2 and 1.3: {versions:?}"
        );
    }
}

#[test]
fn a_certificate_needs_one_of_the_names_letter_by_letter() {
    let certificate = certificate("names.pem");
    let has = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        has_one_of(&names, &certificate).unwrap()
    };
    for name in [
        "scraper.example",
        "scraper@example.org",
        "Second@example.org",
        "10.0.0.1",
        "spiffe://example.org/scraper",
    ] {
        assert!(has(&[name]) && has(&["unknown", name]), "{name}");
    }
    for name in [
        "",
        "names",
        "Scraper@example.org",
        "scraper@example.or",
        "scraper@example.org ",
        // The subject, and a name of another kind.
        "subject@example.org",
        "other@example.org",
        "10.0.0.2",
    ] {
        assert!(!has(&[name]), "{name}");
    }
    assert!(!has(&[]));
    let garbage = CertificateDer::from_slice(b"garbage");
    assert_eq!(has_one_of(&["a@b".to_owned()], &garbage), Err(CertificateError::BadEncoding));
}

#[test]
fn a_client_is_known_by_the_first_name_in_its_certificate() {
    assert_eq!(client_name(&certificate("names.pem")), "scraper.example");
    assert_eq!(client_name(&certificate("ca.pem")), "client certificate");
}

#[test]
fn requirements_change_with_everything_that_decides_about_clients_and_not_with_a_renewed_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let authorities = dir.path().join("clients.pem");
    fs::copy(pem("ca.pem"), &authorities).unwrap();
    let before = ServerTlsSettings {
        client_ca: Some(Pem::File(authorities.clone())),
        ..settings(ClientAuth::RequireAndVerify)
    };
    let requirements = before.open().unwrap().requirements;
    let renewed = ServerTlsSettings {
        certificate: Pem::File(pem("client.pem")),
        key: Pem::File(pem("client.key")),
        prefers_own_order: false,
        ..before.clone()
    };
    assert_eq!(renewed.open().unwrap().requirements, requirements);
    for changed in [
        ServerTlsSettings { client_names: vec!["a".to_owned()], ..before.clone() },
        ServerTlsSettings { client_auth: ClientAuth::VerifyIfGiven, ..before.clone() },
        ServerTlsSettings { client_auth: ClientAuth::None, ..before.clone() },
        ServerTlsSettings { versions: [false, true], ..before.clone() },
        ServerTlsSettings { groups: Some(vec![NamedGroup::X25519]), ..before.clone() },
        ServerTlsSettings { client_ca: Some(Pem::File(pem("other-ca.pem"))), ..before.clone() },
    ] {
        assert_ne!(changed.open().unwrap().requirements, requirements, "{changed:?}");
    }
    // The same path with another content.
    fs::copy(pem("other-ca.pem"), &authorities).unwrap();
    assert_ne!(before.open().unwrap().requirements, requirements);
}
