use std::path::Path;

use proptest::prelude::*;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::*;
use crate::host;

/// A self-signed certificate with a critical extension (`openssl req -x509 -addext subjectAltName=critical,DNS:…,email:…,URI:…,IP:…,otherName:…,email:…`):
/// a DNS name, an address, a URI, an IP address, a name of a user (`otherName`), and another
/// address. Its subject contains an address that is no alternative name.
fn certificate(file: &str) -> CertificateDer<'static> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(file);
    CertificateDer::from_pem_slice(&host::read(&path).unwrap()).unwrap()
}

const ADDRESSES: [&str; 2] = ["scraper@example.org", "Second@example.org"];

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut bytes = vec![tag];
    match length {
        0..=0x7f => bytes.push(length as u8),
        0x80..=0xff => bytes.extend([0x81, length as u8]),
        0x100..=0xffff => bytes.extend([0x82, (length >> 8) as u8, length as u8]),
        _ => bytes.extend([0x83, (length >> 16) as u8, (length >> 8) as u8, length as u8]),
    }
    [bytes, content.to_vec()].concat()
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    element(tag::SEQUENCE, &parts.concat())
}

/// Returns a certificate with these fields after the public key, as far as the reader looks at it.
fn with(fields: &[Vec<u8>]) -> Vec<u8> {
    let before = [vec![element(tag::INTEGER, &[1])], vec![sequence(&[]); 5]].concat();
    sequence(&[sequence(&[&before, fields].concat())])
}

fn extension(identifier: &[u8], between: &[u8], value: &[u8]) -> Vec<u8> {
    let identifier = element(tag::OBJECT_IDENTIFIER, identifier);
    sequence(&[identifier, between.to_vec(), element(tag::OCTET_STRING, value)])
}

fn extensions(all: &[Vec<u8>]) -> Vec<u8> {
    element(tag::EXTENSIONS, &sequence(all))
}

fn names(names: &[Vec<u8>]) -> Vec<u8> {
    extension(&SUBJECT_ALTERNATIVE_NAME, &[], &sequence(names))
}

fn email(address: &[u8]) -> Vec<u8> {
    element(tag::EMAIL_ADDRESS, address)
}

#[test]
fn addresses_of_the_extension_are_read_and_no_other_text_of_the_certificate() {
    assert_eq!(email_addresses(&certificate("names.pem")), ADDRESSES);
    assert!(email_addresses(&certificate("client.pem")).is_empty(), "no address");
    assert!(email_addresses(&certificate("ca.pem")).is_empty(), "no extension");
}

#[test]
fn optional_fields_and_other_extensions_before_it_are_skipped() {
    let other = extension(&[0x55, 0x1d, 0x0f], &[], &sequence(&[email(b"usage@example.org")]));
    let critical = extension(
        &SUBJECT_ALTERNATIVE_NAME,
        &element(tag::BOOLEAN, &[0xff]),
        &sequence(&[element(0x82, b"a"), email(b"a@b")]),
    );
    let unique = |tag| element(tag, &[0; 3]);
    for before in [
        vec![],
        vec![unique(tag::ISSUER_UNIQUE_ID)],
        vec![unique(tag::SUBJECT_UNIQUE_ID)],
        vec![unique(tag::ISSUER_UNIQUE_ID), unique(tag::SUBJECT_UNIQUE_ID)],
    ] {
        let fields = [before, vec![extensions(&[other.clone(), critical.clone()])]].concat();
        assert_eq!(email_addresses(&with(&fields)), ["a@b"]);
    }
}

#[test]
fn many_and_long_addresses_are_read() {
    let many = vec![email(b"a@b"); 10_000];
    // Lengths of one to three bytes.
    for length in [0, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000, 70_000] {
        let long = "x".repeat(length);
        let all = [&many[..], &[email(long.as_bytes())]].concat();
        let certificate = with(&[extensions(&[names(&all)])]);
        let found = email_addresses(&certificate);
        assert_eq!((found.len(), found[9_999], found[10_000]), (10_001, "a@b", &*long));
    }
}

#[test]
fn malformed_names_have_no_addresses_not_even_those_before_the_mistake() {
    for mistake in [
        email(b"a\xff@b"),
        email("ä@b".as_bytes()),
        vec![tag::EMAIL_ADDRESS],
        vec![tag::EMAIL_ADDRESS, 5, b'a'],
        // Lengths of no byte, of four bytes, and without the announced bytes.
        vec![tag::EMAIL_ADDRESS, 0x80, b'a', 0, 0],
        vec![tag::EMAIL_ADDRESS, 0x84, 0, 0, 0, 1, b'a'],
        vec![tag::EMAIL_ADDRESS, 0x82, 0],
        vec![tag::EMAIL_ADDRESS, 0x83, 0xff, 0xff, 0xff, b'a'],
        // Lengths that have a shorter form.
        vec![tag::EMAIL_ADDRESS, 0x81, 1, b'a'],
        [&[tag::EMAIL_ADDRESS, 0x82, 0, 0x80][..], &[b'a'; 0x80]].concat(),
        [&[tag::EMAIL_ADDRESS, 0x83, 0, 1, 0][..], &[b'a'; 0x100]].concat(),
        // A tag of two bytes.
        vec![0x9f, tag::EMAIL_ADDRESS, 1, b'a'],
    ] {
        let certificate = with(&[extensions(&[names(&[email(b"a@b"), mistake.clone()])])]);
        assert!(email_addresses(&certificate).is_empty(), "{mistake:x?}");
    }
    let elsewhere = with(&[names(&[email(b"a@b")])]);
    assert!(email_addresses(&elsewhere).is_empty(), "an extension outside of the extensions");
}

#[test]
fn a_truncated_certificate_has_no_addresses() {
    let whole = certificate("names.pem");
    for length in 0..whole.len() {
        assert!(email_addresses(&whole[..length]).is_empty(), "{length}");
    }
}

proptest! {
    /// Each found address is an element of the certificate: its tag, its length and its text follow each other.
    #[test]
    fn any_change_of_a_certificate_is_read_without_a_panic_and_adds_no_text(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        rest in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = [&*certificate("names.pem"), &rest].concat();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        for address in email_addresses(&bytes) {
            prop_assert!(address.is_ascii());
            let written = address.as_bytes();
            prop_assert!(written.is_empty() || bytes.windows(written.len()).any(|part| part == written));
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        email_addresses(&bytes);
        email_addresses(&with(std::slice::from_ref(&bytes)));
        email_addresses(&with(&[extensions(&[names(&[bytes])])]));
    }
}
