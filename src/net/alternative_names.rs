//! E-mail addresses in the subject alternative names of a certificate. The TLS library returns the DNS names and URIs only.
//!
//! The certificate is untrusted input. Each element is read once, in constant time, and elements are never read recursively: the work is
//! linear in the size of the certificate.

/// Tags of DER (X.690) in a certificate (RFC 5280, section 4.1).
mod tag {
    pub(super) const BOOLEAN: u8 = 0x01;
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const OCTET_STRING: u8 = 0x04;
    pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const VERSION: u8 = 0xa0;
    pub(super) const ISSUER_UNIQUE_ID: u8 = 0x81;
    pub(super) const SUBJECT_UNIQUE_ID: u8 = 0x82;
    pub(super) const EXTENSIONS: u8 = 0xa3;
    /// `rfc822Name` in a `GeneralName`.
    pub(super) const EMAIL_ADDRESS: u8 = 0x81;
    /// The number of a tag of more bytes follows this one.
    pub(super) const OF_MORE_BYTES: u8 = 0x1f;
}

/// The object identifier 2.5.29.17 (`subjectAltName`).
const SUBJECT_ALTERNATIVE_NAME: [u8; 3] = [0x55, 0x1d, 0x11];

/// Returns the e-mail addresses of a certificate in DER format. Returns none if its subject alternative names are malformed.
pub fn email_addresses(certificate: &[u8]) -> Vec<&str> {
    subject_alternative_names(certificate).and_then(addresses).unwrap_or_default()
}

/// Returns the content of the extension. The TLS library rejects certificates in which it occurs twice.
fn subject_alternative_names(certificate: &[u8]) -> Option<Der<'_>> {
    let mut fields = Der(certificate).take(tag::SEQUENCE)?.take(tag::SEQUENCE)?;
    fields.take(tag::VERSION);
    fields.take(tag::INTEGER)?;
    // Signature algorithm, issuer, validity, subject, public key.
    for _ in 0..5 {
        fields.take(tag::SEQUENCE)?;
    }
    fields.take(tag::ISSUER_UNIQUE_ID);
    fields.take(tag::SUBJECT_UNIQUE_ID);
    let mut extensions = fields.take(tag::EXTENSIONS)?.take(tag::SEQUENCE)?;
    loop {
        let mut extension = extensions.take(tag::SEQUENCE)?;
        if extension.take(tag::OBJECT_IDENTIFIER)?.0 == SUBJECT_ALTERNATIVE_NAME {
            // Whether the extension is critical.
            extension.take(tag::BOOLEAN);
            return extension.take(tag::OCTET_STRING)?.take(tag::SEQUENCE);
        }
    }
}

fn addresses(mut names: Der<'_>) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    while !names.0.is_empty() {
        let (tag, Der(content)) = names.read()?;
        if tag == tag::EMAIL_ADDRESS {
            found.push(std::str::from_utf8(content).ok().filter(|address| address.is_ascii())?);
        }
    }
    Some(found)
}

/// The rest of a sequence of elements in DER format.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Reads the next element. Returns its tag and its content, or `None` at the end or if it is malformed. Like Go, it accepts only tags of
    /// one byte, and lengths in their shortest form.
    fn read(&mut self) -> Option<(u8, Self)> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        if tag & tag::OF_MORE_BYTES == tag::OF_MORE_BYTES {
            return None;
        }
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // The number of bytes of the length: a certificate is smaller than 16 MiB.
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = bytes.iter().fold(0, |length, &byte| (length << 8) | usize::from(byte));
                if bytes.first() == Some(&0) || length <= 0x7f {
                    return None;
                }
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, Self(content)))
    }

    /// Reads the next element if it has this tag. Returns its content.
    fn take(&mut self, tag: u8) -> Option<Self> {
        if self.0.first() == Some(&tag) { self.read().map(|(_, content)| content) } else { None }
    }
}

#[cfg(test)]
mod tests;
