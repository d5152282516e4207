//! Invariants for an arbitrary certificate of a client. Called by a fuzz target and by a test that keeps the target working.

use perf_exporter::net::alternative_names::email_addresses;

/// Checks the bytes as a certificate, and as the parts of a certificate that are read: the fields after the public key, the extensions, and the
/// subject alternative names.
pub(crate) fn holds(bytes: &[u8]) {
    let extensions = |all: &[u8]| element(0xa3, &element(0x30, all));
    // The object identifier of subject alternative names.
    let names = |names: &[u8]| {
        let value = element(0x04, &element(0x30, names));
        element(0x30, &[&[0x06, 3, 0x55, 0x1d, 0x11][..], &value].concat())
    };
    addresses_are_elements_of(bytes);
    addresses_are_elements_of(&certificate(bytes));
    addresses_are_elements_of(&certificate(&extensions(bytes)));
    addresses_are_elements_of(&certificate(&extensions(&names(bytes))));
}

/// Returns a certificate with these fields after the public key, as far as the reader looks at it.
fn certificate(fields: &[u8]) -> Vec<u8> {
    let before = [&[0x02, 1, 1][..], &[0x30, 0].repeat(5)].concat();
    element(0x30, &element(0x30, &[&*before, fields].concat()))
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    [&[tag][..], &length_bytes(content.len()), content].concat()
}

/// Returns a length in its shortest form.
fn length_bytes(length: usize) -> Vec<u8> {
    let bytes = length.to_be_bytes();
    match bytes.iter().position(|&byte| byte != 0) {
        None => vec![0],
        Some(at) if length <= 0x7f => bytes[at..].to_vec(),
        Some(at) => [&[0x80 | (bytes.len() - at) as u8][..], &bytes[at..]].concat(),
    }
}

/// Checks that the found addresses are elements of the certificate that follow each other.
fn addresses_are_elements_of(certificate: &[u8]) {
    let found = email_addresses(certificate);
    let mut end = 0;
    for address in &found {
        assert!(address.is_ascii(), "{address:?}");
        let header = [&[0x81][..], &length_bytes(address.len())].concat();
        let start = address.as_ptr().addr() - certificate.as_ptr().addr();
        assert!(start >= end + header.len() && certificate[..start].ends_with(&header), "{address:?}");
        end = start + address.len();
    }
    if !found.is_empty() {
        assert_eq!(email_addresses(&certificate[..end - 1]), [""; 0], "a part of a certificate is none");
        let longer = [certificate, &[0xff; 3][..]].concat();
        assert_eq!(email_addresses(&longer), found, "what follows a certificate is no part of it");
    }
}
