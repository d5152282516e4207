//! Certificates, read from their files for each connection.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::Uri;
use hyper_rustls::ConfigBuilderExt;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme, WantsVerifier,
};

use crate::host;

/// Maximum size of a certificate file, in bytes.
pub(super) const LARGEST: u64 = 4 << 20;

/// Files in PEM format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Certificate authorities for the server; `None` uses those of the system.
    pub ca: Option<PathBuf>,
    /// Client certificate.
    pub certificate: Option<PathBuf>,
    /// Private key of the client certificate.
    pub key: Option<PathBuf>,
}

impl Tls {
    /// Reads the files, as a connection to this URI does. Without TLS, none is read. Blocks on file systems.
    ///
    /// # Errors
    /// Returns an error that names the unreadable or invalid file.
    pub(crate) fn check(&self, uri: &Uri) -> Result<(), String> {
        match uri.scheme_str() {
            Some("https") => Pem::read(self)?.client().map(drop),
            _ => Ok(()),
        }
    }
}

/// Verification of a server certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Verifies with the authorities in these files, or those of the system.
    Files(Tls),
    /// Accepts any server certificate. The connection is encrypted, but the server is not authenticated.
    Anybody,
}

impl Trust {
    /// Creates the rustls configuration.
    ///
    /// # Errors
    /// Returns an error that names the unreadable or invalid file.
    pub(crate) fn client(&self) -> Result<ClientConfig, String> {
        match self {
            Self::Files(tls) => Pem::read(tls)?.client(),
            Self::Anybody => {
                let mut client = without_roots()?;
                let provider = Arc::clone(client.crypto_provider());
                client.dangerous().set_certificate_verifier(Arc::new(AnyCertificate(provider)));
                Ok(client)
            }
        }
    }
}

/// Accepts any certificate if the server has its private key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Content of the files.
#[derive(Debug, Default)]
pub(crate) struct Pem {
    pub(crate) ca: Option<Vec<u8>>,
    /// Certificate and private key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Pem {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns an error that names the unreadable file, and the reason.
    pub(crate) fn read(tls: &Tls) -> Result<Self, String> {
        let read = |path: &Path| host::read_at_most(path, LARGEST).map_err(|error| error.to_string());
        let identity = match (&tls.certificate, &tls.key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            (None, None) => None,
            _ => return Err("a client certificate requires a key, and a key requires a certificate".into()),
        };
        Ok(Self { ca: tls.ca.as_deref().map(read).transpose()?, identity })
    }

    /// Creates the rustls configuration with the default cryptography provider.
    ///
    /// # Errors
    /// Returns an error that describes the invalid content.
    pub(crate) fn client(&self) -> Result<ClientConfig, String> {
        let builder = builder()?;
        let builder = match &self.ca {
            Some(pem) => builder.with_root_certificates(roots(pem, "tls.ca")?),
            None => builder.with_native_roots().map_err(|error: io::Error| {
                format!("the system has no certificate authorities ({error}): set `tls: {{ca: FILE}}`")
            })?,
        };
        let Some((certificate, key)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let chain = certificates(certificate, "tls.certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("tls.key contains no private key in PEM format: {error}"))?;
        builder.with_client_auth_cert(chain, key).map_err(|error| format!("tls.certificate: {error}"))
    }
}

/// Creates a client configuration without authorities, for connections without TLS. Certificates are not read for them.
///
/// # Errors
/// Returns an error only if the cryptography provider fails.
pub(crate) fn without_roots() -> Result<ClientConfig, String> {
    Ok(builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
}

pub(super) fn roots(pem: &[u8], what: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, what)? {
        roots.add(certificate).map_err(|error| format!("{what}: {error}"))?;
    }
    Ok(roots)
}

pub(super) fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(format!("{what} contains no certificate in PEM format")),
        Err(error) => Err(format!("{what} is not in PEM format: {error}")),
    }
}
