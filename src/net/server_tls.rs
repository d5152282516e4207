//! TLS of the HTTP server: certificates of the server, and verification of client certificates.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, CipherSuite, DigitallySignedStruct, DistinguishedName, NamedGroup, ServerConfig,
    SignatureScheme, SupportedProtocolVersion, version,
};
use webpki::EndEntityCert;

use super::alternative_names::email_addresses;
use super::tls::{LARGEST, certificates, roots};
use crate::host;

/// Protocol of the application layer (ALPN).
const HTTP_1_1: &[u8] = b"http/1.1";

/// A text that is not shown in logs and panics.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Source of certificates or of a private key in PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pem {
    /// A file.
    File(PathBuf),
    /// The content itself.
    Text(Secret),
}

impl Pem {
    fn read(&self, what: &str) -> Result<Vec<u8>, String> {
        match self {
            Self::File(path) => {
                host::read_at_most(path, LARGEST).map_err(|error| format!("{what}_file: {error}"))
            }
            Self::Text(Secret(text)) => Ok(text.clone().into_bytes()),
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text(_) => None,
        }
    }
}

/// Whether clients need a certificate: the values of Go's `tls.ClientAuthType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// No certificate is requested.
    #[default]
    None,
    /// A certificate is requested. It is optional, and not verified.
    Request,
    /// A certificate is required, but not verified.
    RequireAny,
    /// A certificate is optional. It is verified.
    VerifyIfGiven,
    /// A certificate is required and verified.
    RequireAndVerify,
}

impl ClientAuth {
    const fn is_required(self) -> bool {
        matches!(self, Self::RequireAny | Self::RequireAndVerify)
    }

    /// Reports whether certificates are verified, so that a client with a certificate is authenticated.
    pub const fn verifies(self) -> bool {
        matches!(self, Self::VerifyIfGiven | Self::RequireAndVerify)
    }
}

/// TLS settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsSettings {
    /// Certificate chain of the server.
    pub certificate: Pem,
    /// Private key of the server.
    pub key: Pem,
    /// Whether clients need a certificate.
    pub client_auth: ClientAuth,
    /// Certificate authorities of clients.
    pub client_ca: Option<Pem>,
    /// Subject alternative names of which a client certificate must have one; empty = any certificate.
    pub client_names: Vec<String>,
    /// Whether TLS 1.2 and TLS 1.3 are accepted.
    pub versions: [bool; 2],
    /// Cipher suites of TLS 1.2, in order of preference; `None` = all safe ones.
    pub suites: Option<Vec<CipherSuite>>,
    /// Key exchange groups, in order of preference; `None` = all safe ones.
    pub groups: Option<Vec<NamedGroup>>,
    /// Whether the order of the server decides about the cipher suite.
    pub prefers_own_order: bool,
}

impl ServerTlsSettings {
    /// Returns the files that the settings refer to.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(Pem::path)
    }

    /// Reads the files and creates the configuration of the TLS library. Blocks on file systems.
    ///
    /// # Errors
    /// Returns an error that names the setting, the unreadable or invalid file, and the reason.
    pub fn open(&self) -> Result<ServerTls, String> {
        let chain = certificates(&self.certificate.read("cert")?, "the certificate of the server")?;
        let key = PrivateKeyDer::from_pem_slice(&self.key.read("key")?)
            .map_err(|error| format!("the key of the server is no private key in PEM format: {error}"))?;
        let provider = Arc::new(self.provider());
        let versions: Vec<&SupportedProtocolVersion> = [&version::TLS12, &version::TLS13]
            .into_iter()
            .zip(self.versions)
            .filter_map(|(version, accepted)| accepted.then_some(version))
            .collect();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| format!("no cipher suite for the accepted versions: {error}"))?;
        let requirements = self.requirements()?;
        let builder = match requirements.verifier(&provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| format!("the certificate of the server does not match its key: {error}"))?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        config.ignore_client_order = self.prefers_own_order;
        if self.client_auth.verifies() {
            // A resumed session keeps the verdict about a certificate, which may have expired since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        let verifies = self.client_auth.verifies();
        Ok(ServerTls { config: Arc::new(config), verifies, requirements: Arc::new(requirements) })
    }

    /// Reads the certificate authorities of clients.
    fn requirements(&self) -> Result<Requirements, String> {
        let authorities = match (self.client_auth.verifies(), &self.client_ca) {
            (false, _) => None,
            (true, Some(ca)) => Some(ca.read("client_ca")?),
            (true, None) => {
                return Err("client certificates cannot be verified without client_ca_file".to_owned());
            }
        };
        Ok(Requirements {
            client_auth: self.client_auth,
            authorities,
            names: self.client_names.clone(),
            versions: self.versions,
            suites: self.suites.clone(),
            groups: self.groups.clone(),
        })
    }

    fn provider(&self) -> CryptoProvider {
        let mut provider = rustls::crypto::ring::default_provider();
        if let Some(wanted) = &self.suites {
            let place = |suite: CipherSuite| wanted.iter().position(|&wanted| wanted == suite);
            // Like Go, TLS 1.3 always has all of its cipher suites.
            provider.cipher_suites.retain(|suite| suite.tls13().is_some() || place(suite.suite()).is_some());
            provider.cipher_suites.sort_by_key(|suite| place(suite.suite()));
        }
        if let Some(wanted) = &self.groups {
            let place = |group: NamedGroup| wanted.iter().position(|&wanted| wanted == group);
            provider.kx_groups.retain(|group| place(group.name()).is_some());
            provider.kx_groups.sort_by_key(|group| place(group.name()));
        }
        provider
    }
}

/// The configuration of the TLS library for the server.
#[derive(Debug, Clone)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    /// Whether a client certificate was verified, so that it authenticates the client.
    pub(crate) verifies: bool,
    /// Requirements that each client of these settings has met.
    pub(crate) requirements: Arc<Requirements>,
}

/// Requirements on clients and their connections. A connection that was opened under other requirements may be one that is not allowed any
/// more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Requirements {
    client_auth: ClientAuth,
    /// Certificate authorities of clients, in PEM format; `None` = certificates are not verified.
    authorities: Option<Vec<u8>>,
    /// Names of which a certificate must have one; empty = any certificate.
    names: Vec<String>,
    versions: [bool; 2],
    suites: Option<Vec<CipherSuite>>,
    groups: Option<Vec<NamedGroup>>,
}

impl Requirements {
    /// Returns the verifier of client certificates; `None` if none is requested.
    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
        if self.client_auth == ClientAuth::None {
            return Ok(None);
        }
        let is_required = self.client_auth.is_required();
        let mut chain = None;
        if let Some(authorities) = &self.authorities {
            let roots = roots(authorities, "client_ca")?;
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
            let builder = if is_required { builder } else { builder.allow_unauthenticated() };
            chain = Some(builder.build().map_err(|error| format!("client_ca: {error}"))?);
        }
        let (names, provider) = (self.names.clone(), Arc::clone(provider));
        Ok(Some(Arc::new(ClientVerifier { chain, names, is_required, provider })))
    }
}

/// Returns the name in a client certificate that identifies the client: its first DNS name, URI or e-mail address.
pub(crate) fn client_name(certificate: &CertificateDer<'_>) -> String {
    let parsed = EndEntityCert::try_from(certificate).ok();
    let name = parsed.as_ref().and_then(|parsed| {
        let names = parsed.valid_dns_names().chain(parsed.valid_uri_names());
        names.chain(email_addresses(certificate)).next().map(str::to_owned)
    });
    name.unwrap_or_else(|| "client certificate".to_owned())
}

/// Verifies that a client has the private key of its certificate, the chain of certificates, and the names in it.
#[derive(Debug)]
struct ClientVerifier {
    /// `None`: any chain is accepted.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    /// Names of which a certificate must have one; empty = any certificate.
    names: Vec<String>,
    is_required: bool,
    provider: Arc<CryptoProvider>,
}

/// Reports whether a certificate has one of these names: a DNS name, an e-mail address, an IP address or a URI, compared as in exporter-toolkit.
fn has_one_of(names: &[String], certificate: &CertificateDer<'_>) -> Result<bool, CertificateError> {
    let parsed = EndEntityCert::try_from(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let texts: Vec<&str> = parsed
        .valid_dns_names()
        .chain(parsed.valid_uri_names())
        .chain(email_addresses(certificate))
        .collect();
    let is_address = |name: &String| {
        let address = name.parse::<IpAddr>().ok().map(|address| ServerName::IpAddress(address.into()));
        address.is_some_and(|address| parsed.verify_is_valid_for_subject_name(&address).is_ok())
    };
    Ok(names.iter().any(|name| texts.contains(&&**name) || is_address(name)))
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.as_ref().map_or(&[], |chain| chain.root_hint_subjects())
    }

    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if let Some(chain) = &self.chain {
            chain.verify_client_cert(certificate, intermediates, now)?;
        }
        if !self.names.is_empty() && !has_one_of(&self.names, certificate)? {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
