//! Digests of secrets, with a key that changes with each start.

use ring::hmac;
use ring::rand::SystemRandom;

/// Digest of a secret.
pub(super) type Digest = [u8; 32];

/// Computes digests.
#[derive(Debug)]
pub(super) struct Digester(hmac::Key);

impl Digester {
    /// Creates a random key.
    pub(super) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self(key.expect("the kernel has random numbers"))
    }

    /// Returns the digest of texts. It also depends on the boundaries between them.
    pub(super) fn digest<const N: usize>(&self, texts: [&[u8]; N]) -> Digest {
        let mut context = hmac::Context::with_key(&self.0);
        for text in texts {
            context.update(&(text.len() as u64).to_le_bytes());
            context.update(text);
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_depends_on_the_boundaries_of_the_texts_and_on_the_start() {
        let digester = Digester::new();
        let [one, other] = [[&b"a"[..], b"bc"], [b"ab", b"c"]].map(|texts| digester.digest(texts));
        assert_ne!(one, other);
        assert_eq!(one, digester.digest([b"a", b"bc"]));
        assert_ne!(one, Digester::new().digest([b"a", b"bc"]));
    }
}
