//! The section `web`, and the file of `--web.config.file`, which has the same keys. Its format is that of Prometheus' exporter-toolkit
//! (`docs/web-configuration.md` there), with the additional keys `hosts` and `access`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rustls::{CipherSuite, NamedGroup};
use schemars::JsonSchema;
use serde::Deserialize;

use super::decode::At;
use super::problem::{one_of, shown};
use super::push::address;
use super::report::Report;
use super::value::{HeaderText, List, Period, Texts};
use super::yaml::NodeId;
use crate::host::Environment;
use crate::named_enum::named_enum;
use crate::net::kubernetes::{KubernetesServer, in_cluster};
use crate::net::server_tls::{ClientAuth, Pem, Secret, ServerTlsSettings};

/// Access to the HTTP server. `--web.config.file` reads the same keys from a file of its own, in the format of Prometheus'
/// exporter-toolkit. Its keys take precedence.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "Web", deny_unknown_fields)]
pub(super) struct WrittenWeb {
    /// Host names by which browsers may open pages and profiles, in addition to IP addresses, `localhost` and the name of the machine.
    /// `*.example.org` means all names below `example.org`. Protects against DNS rebinding. Scrapes and health checks accept any name.
    #[schemars(extend("examples" = [["perf.example.org"], ["*.svc.cluster.local"]]))]
    pub(super) hosts: Option<At<List<String>>>,
    /// Clients of metrics, of pages and profiles, and clients that may reload the configuration. Health checks are open to all.
    pub(super) access: Option<WrittenAccess>,
    /// TLS, instead of unencrypted connections.
    pub(super) tls_server_config: Option<At<WrittenTlsServer>>,
    /// Protocol and headers of responses.
    pub(super) http_server_config: Option<WrittenHttp>,
    /// Names and passwords of users, hashed with bcrypt (`htpasswd -nBC 10 ""`). Every request needs a password then, metrics as well.
    /// Use TLS: without it, passwords can be read on the network.
    pub(super) basic_auth_users: Option<At<Texts>>,
    /// Bearer tokens of a Kubernetes cluster. The API server decides about clients that `access` excludes and that send a token: which user
    /// it is (TokenReview), and whether this user may use the path (SubjectAccessReview with `nonResourceURLs`). `{}` is enough in a pod,
    /// whose service account needs the ClusterRole `system:auth-delegator`. Use TLS: without it, tokens can be read on the network.
    pub(super) kubernetes: Option<At<WrittenReviewer>>,
    /// Paths that need no password.
    #[schemars(extend("examples" = [["/-/healthy", "/-/ready"]]))]
    pub(super) auth_excluded_paths: Option<At<List<String>>>,
    /// Maximum rate of all requests. Further requests are rejected with the status 429.
    pub(super) rate_limit: Option<WrittenRate>,
}

/// Clients of each resource.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "Access", deny_unknown_fields)]
pub(super) struct WrittenAccess {
    /// Clients that may read metrics; `all` by default.
    pub(super) metrics: Option<At<Audience>>,
    /// Clients that may open profiles, pages and the status, which show stacks and names of processes; `loopback` by default.
    pub(super) profiles: Option<At<Audience>>,
    /// Clients that may reload the configuration; `loopback` by default.
    pub(super) admin: Option<At<Audience>>,
}

named_enum! {
    /// Clients that may use a resource.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Audience {
        /// Clients on this machine (loopback addresses), and authenticated clients. `kubectl port-forward` and ssh tunnels end at the
        /// loopback address. So does a proxy on this machine: use `authenticated` behind one.
        #[default]
        Loopback = "loopback",
        /// Clients with a password, a verified certificate, or a token that Kubernetes permits.
        Authenticated = "authenticated",
        /// All clients.
        All = "all",
    }
}

/// The API server that reviews tokens.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "TokenReviewer", deny_unknown_fields)]
pub(super) struct WrittenReviewer {
    /// URL of the API server; the address in the environment of every pod by default.
    pub(super) url: Option<At<String>>,
    /// File with the certificate authorities of the API server; that of the service account by default.
    pub(super) ca: Option<At<String>>,
    /// File with the bearer token of this exporter; that of the service account by default.
    pub(super) token: Option<At<String>>,
}

/// TLS of the server. Files are read again when they change.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "TlsServer", deny_unknown_fields)]
pub(super) struct WrittenTlsServer {
    /// Certificate chain of the server in PEM format, instead of `cert_file`.
    pub(super) cert: Option<At<String>>,
    /// Private key of the server in PEM format, instead of `key_file`.
    pub(super) key: Option<At<String>>,
    /// Certificate authorities of clients in PEM format, instead of `client_ca_file`.
    pub(super) client_ca: Option<At<String>>,
    /// File with the certificate chain of the server. Relative paths start at the directory of the configuration file.
    pub(super) cert_file: Option<At<String>>,
    /// File with the private key of the server.
    pub(super) key_file: Option<At<String>>,
    /// File with the certificate authorities of clients.
    pub(super) client_ca_file: Option<At<String>>,
    /// Whether clients need a certificate; `NoClientCert` by default. Only `VerifyClientCertIfGiven` and `RequireAndVerifyClientCert`
    /// authenticate clients.
    pub(super) client_auth_type: Option<At<ClientAuthType>>,
    /// Subject alternative names (DNS names, e-mail addresses, IP addresses, URIs), of which the certificate of a client must have one.
    /// Requires a `client_auth_type` that requires certificates.
    pub(super) client_allowed_sans: Option<At<List<String>>>,
    /// Minimum version; `TLS12` by default, which is the oldest one supported.
    pub(super) min_version: Option<At<Version>>,
    /// Maximum version; `TLS13` by default.
    pub(super) max_version: Option<At<Version>>,
    /// Cipher suites of TLS 1.2, by their names in Go; all safe ones by default. TLS 1.3 has fixed ones.
    pub(super) cipher_suites: Option<At<List<String>>>,
    /// Whether the order of `cipher_suites` takes precedence over that of the client; `true` by default.
    pub(super) prefer_server_cipher_suites: Option<bool>,
    /// Groups of the key exchange, in order of preference: `X25519`, `CurveP256`, `CurveP384`.
    pub(super) curve_preferences: Option<At<List<String>>>,
}

/// Whether clients need a certificate.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(super) enum ClientAuthType {
    /// No certificate is requested.
    NoClientCert,
    /// A certificate is optional, and not verified.
    RequestClientCert,
    /// A certificate is required, but not verified. Older files call it `RequireClientCert`.
    #[serde(alias = "RequireClientCert")]
    RequireAnyClientCert,
    /// A certificate is optional, and verified.
    VerifyClientCertIfGiven,
    /// A certificate is required and verified.
    RequireAndVerifyClientCert,
}

/// A TLS version. Older ones are not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
pub(super) enum Version {
    /// TLS 1.2.
    #[serde(rename = "TLS12")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "TLS13")]
    Tls13,
}

/// Protocol and headers of responses.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "HttpServer", deny_unknown_fields)]
pub(super) struct WrittenHttp {
    /// Accepted and without effect: the server uses HTTP/1.1, which every client supports.
    #[expect(dead_code, reason = "other programs of the format have the key")]
    pub(super) http2: Option<bool>,
    /// Headers of all responses.
    pub(super) headers: Option<WrittenHeaders>,
}

/// Headers of all responses. An empty value leaves the header as it is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "ResponseHeaders", deny_unknown_fields)]
pub(super) struct WrittenHeaders {
    /// `Content-Security-Policy`. The default of pages allows nothing but their own contents.
    #[serde(rename = "Content-Security-Policy")]
    pub(super) content_security_policy: Option<At<HeaderText>>,
    /// `X-Frame-Options`: `deny`, the default, or `sameorigin`.
    #[serde(rename = "X-Frame-Options")]
    pub(super) frame_options: Option<At<HeaderText>>,
    /// `X-Content-Type-Options`: `nosniff`, the default.
    #[serde(rename = "X-Content-Type-Options")]
    pub(super) content_type_options: Option<At<HeaderText>>,
    /// `X-XSS-Protection`.
    #[serde(rename = "X-XSS-Protection")]
    pub(super) xss_protection: Option<At<HeaderText>>,
    /// `Strict-Transport-Security`.
    #[serde(rename = "Strict-Transport-Security")]
    pub(super) strict_transport_security: Option<At<HeaderText>>,
}

/// Maximum rate of all requests.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename = "RateLimit", deny_unknown_fields)]
pub(super) struct WrittenRate {
    /// Mean time between two requests; `0s` disables the limit.
    pub(super) interval: Option<At<Period>>,
    /// Number of requests that may follow each other immediately; 1 by default. 0 is accepted if the limit is disabled.
    #[schemars(range(min = 0, max = BURST_MAX))]
    pub(super) burst: Option<At<u64>>,
}

/// Maximum of `rate_limit.burst`.
const BURST_MAX: u64 = 1_000_000;

/// Access to the HTTP server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Web {
    /// Host names by which browsers may open pages and profiles, in addition to addresses, `localhost` and the name of the machine.
    pub hosts: Vec<String>,
    /// Clients of each resource.
    pub access: Access,
    /// TLS; `None` = unencrypted connections.
    pub tls: Option<ServerTlsSettings>,
    /// Headers of all responses: valid names and values.
    pub headers: Vec<(&'static str, String)>,
    /// bcrypt hashes of passwords, by user; empty = requests need no password.
    pub users: BTreeMap<String, Secret>,
    /// API server that reviews tokens.
    pub kubernetes: Option<TokenReviewer>,
    /// Paths that need no password.
    pub open_paths: Vec<String>,
    /// Maximum rate of requests.
    pub rate: Option<Rate>,
}

/// Access to the API server that reviews tokens. The service account of the pod supplies what is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenReviewer {
    /// URL.
    pub url: Option<String>,
    /// File with the certificate authorities.
    pub ca: Option<PathBuf>,
    /// File with the bearer token.
    pub token: Option<PathBuf>,
}

impl TokenReviewer {
    /// Returns the server.
    ///
    /// # Errors
    /// Returns an error if there is neither a URL nor the environment of a pod.
    pub fn server(&self, environment: &Environment) -> Result<KubernetesServer, String> {
        let url = self.url.clone().map_or_else(|| in_cluster(environment), Ok)?;
        Ok(KubernetesServer::new(&url, self.ca.as_deref(), self.token.as_deref()))
    }
}

/// Clients of each resource. Health is open to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Clients that may read metrics.
    pub metrics: Audience,
    /// Clients that may open pages and profiles.
    pub profiles: Audience,
    /// Clients that may change the state.
    pub admin: Audience,
}

impl Default for Access {
    fn default() -> Self {
        Self { metrics: Audience::All, profiles: Audience::Loopback, admin: Audience::Loopback }
    }
}

/// Maximum rate of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Mean time between two requests.
    pub interval: Duration,
    /// Number of requests that may follow each other immediately.
    pub burst: u32,
}

impl Web {
    /// Checks that clients exist that may use each resource. To be called when all files are merged.
    ///
    /// # Errors
    /// Returns the problem and the remedy.
    pub fn require_clients(&self) -> Result<(), String> {
        let authenticates = !self.users.is_empty()
            || self.kubernetes.is_some()
            || self.tls.as_ref().is_some_and(|tls| tls.client_auth.verifies());
        let Access { metrics, profiles, admin } = self.access;
        for (key, audience) in [("metrics", metrics), ("profiles", profiles), ("admin", admin)] {
            if audience == Audience::Authenticated && !authenticates {
                return Err(format!(
                    "`access.{key}: authenticated` excludes all clients, because none can authenticate; add \
                     `basic_auth_users`, `kubernetes`, or `client_auth_type: RequireAndVerifyClientCert` with a `client_ca_file`"
                ));
            }
        }
        Ok(())
    }
}

/// Returns the checked section, with the values of `base` for omitted keys. Relative paths start at the directory of the file.
pub(super) fn web(written: Option<&WrittenWeb>, base: &Web, report: &mut Report<'_>) -> Web {
    let Some(written) = written else { return base.clone() };
    let access = written.access.as_ref();
    let audience = |written: Option<At<Audience>>, base| written.map_or(base, |at| at.value);
    Web {
        hosts: written.hosts.as_ref().map_or_else(|| base.hosts.clone(), |hosts| host_names(hosts, report)),
        access: Access {
            metrics: audience(access.and_then(|access| access.metrics), base.access.metrics),
            profiles: audience(access.and_then(|access| access.profiles), base.access.profiles),
            admin: audience(access.and_then(|access| access.admin), base.access.admin),
        },
        tls: match &written.tls_server_config {
            Some(tls) => tls_server(tls, report),
            None => base.tls.clone(),
        },
        headers: match written.http_server_config.as_ref().and_then(|http| http.headers.as_ref()) {
            Some(headers) => response_headers(headers, report),
            None => base.headers.clone(),
        },
        users: written.basic_auth_users.as_ref().map_or_else(|| base.users.clone(), |all| users(all, report)),
        kubernetes: match &written.kubernetes {
            Some(written) => Some(reviewer(&written.value, report)),
            None => base.kubernetes.clone(),
        },
        open_paths: match &written.auth_excluded_paths {
            Some(paths) => open_paths(paths, report),
            None => base.open_paths.clone(),
        },
        rate: written.rate_limit.as_ref().map_or(base.rate, |limit| rate(limit, report)),
    }
}

fn reviewer(written: &WrittenReviewer, report: &mut Report<'_>) -> TokenReviewer {
    let dir = report.directory();
    let path = |at: &Option<At<String>>| at.as_ref().map(|at| dir.join(&at.value));
    TokenReviewer {
        url: written.url.as_ref().and_then(|at| {
            let usual = "use the form `https://kubernetes.default.svc`";
            let uri = address(at, |_| usual.into(), report)?;
            if uri.scheme_str() != Some("https") {
                report.error(at.node, "tokens are sent over TLS only", usual);
            }
            Some(at.value.clone())
        }),
        ca: path(&written.ca),
        token: path(&written.token),
    }
}

fn host_names(hosts: &At<List<String>>, report: &mut Report<'_>) -> Vec<String> {
    for At { node, value } in hosts.value.iter().filter(|host| !is_host_name(&host.value)) {
        let hint = "leave out the scheme, the port and the path: `perf.example.org`, or `*.example.org` for all names below it";
        report.error(*node, format!("{} is not a host name", shown(value)), hint);
    }
    hosts.value.iter().map(|host| host.value.clone()).collect()
}

fn is_host_name(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn open_paths(paths: &At<List<String>>, report: &mut Report<'_>) -> Vec<String> {
    for At { node, value } in paths.value.iter().filter(|path| !path.value.starts_with('/')) {
        report.error(*node, format!("{} is not a path", shown(value)), format!("write `/{value}`"));
    }
    paths.value.iter().map(|path| path.value.clone()).collect()
}

fn users(users: &At<Texts>, report: &mut Report<'_>) -> BTreeMap<String, Secret> {
    for (name, hash) in &users.value.0 {
        if name.value.contains(':') || name.value.is_empty() {
            report.error(name.node, "a user name is not empty, and contains no colon", None);
        }
        if !is_bcrypt(&hash.value) {
            let hint = "create it with `htpasswd -nBC 10 \"\" | tr -d ':\\n'`, and put it in quotes";
            report.error(hash.node, "the password is not a bcrypt hash ($2y$…, 60 characters)", hint);
        }
    }
    users.value.0.iter().map(|(name, hash)| (name.value.clone(), Secret(hash.value.clone()))).collect()
}

/// Reports whether a text has the form of a bcrypt hash: `$2b$10$` and 53 characters.
fn is_bcrypt(text: &str) -> bool {
    let mut parts = text.split('$');
    let (empty, version, cost, rest) = (parts.next(), parts.next(), parts.next(), parts.next());
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    empty == Some("")
        && matches!(version, Some("2a" | "2b" | "2x" | "2y"))
        && cost.is_some_and(|cost| cost.len() == 2 && matches!(cost.parse(), Ok(4..=31)))
        && rest.is_some_and(|rest| rest.len() == 53 && rest.bytes().all(is_base64))
        && parts.next().is_none()
}

fn rate(written: &WrittenRate, report: &mut Report<'_>) -> Option<Rate> {
    let Period(interval) = written.interval.as_ref().map_or(Period::seconds(0), |at| at.value);
    // exporter-toolkit's default is a burst of 0 without a limit.
    let burst = written.burst.filter(|burst| burst.value != 0 || !interval.is_zero());
    let burst = report.number(&burst, BURST_MAX).unwrap_or(1);
    (!interval.is_zero()).then_some(Rate { interval, burst })
}

fn response_headers(written: &WrittenHeaders, report: &mut Report<'_>) -> Vec<(&'static str, String)> {
    let all = [
        ("content-security-policy", &written.content_security_policy, &[][..]),
        ("x-frame-options", &written.frame_options, &["deny", "sameorigin"]),
        ("x-content-type-options", &written.content_type_options, &["nosniff"]),
        ("x-xss-protection", &written.xss_protection, &[]),
        ("strict-transport-security", &written.strict_transport_security, &[]),
    ];
    let mut headers = Vec::new();
    for (name, written, allowed) in all {
        let Some(At { node, value: HeaderText(value) }) = written else { continue };
        let is_allowed = allowed.is_empty() || allowed.iter().any(|known| value.eq_ignore_ascii_case(known));
        if value.is_empty() {
            continue;
        }
        if !is_allowed {
            let hint = format!("use {}", one_of(allowed));
            report.error(*node, format!("{} is not a value of {name}", shown(value)), hint);
        } else if hyper::header::HeaderValue::from_str(value).is_err() {
            report.error(*node, format!("{} is not the value of a header", shown(value)), None);
        }
        headers.push((name, value.clone()));
    }
    headers
}

fn tls_server(written: &At<WrittenTlsServer>, report: &mut Report<'_>) -> Option<ServerTlsSettings> {
    let At { node, value: tls } = written;
    let dir = report.directory();
    let mut source = |name: &str, text: &Option<At<String>>, file: &Option<At<String>>| match (text, file) {
        (Some(text), Some(_)) => {
            let message = format!("`{name}` and `{name}_file` exclude each other");
            report.error(text.node, message, format!("remove `{name}`"));
            None
        }
        (Some(text), None) if !text.value.is_empty() => Some(Pem::Text(Secret(text.value.clone()))),
        (_, Some(file)) if !file.value.is_empty() => Some(Pem::File(dir.join(&file.value))),
        _ => None,
    };
    let certificate = source("cert", &tls.cert, &tls.cert_file);
    let key = source("key", &tls.key, &tls.key_file);
    let client_ca = source("client_ca", &tls.client_ca, &tls.client_ca_file);
    for (name, found) in [("cert", &certificate), ("key", &key)] {
        if found.is_none() && !report.blames(*node) {
            report.error(
                *node,
                format!("`{name}_file` is missing"),
                format!("add `{name}_file: FILE`, in PEM format"),
            );
        }
    }
    let client_auth = client_auth(tls, client_ca.is_some(), *node, report);
    let at_least = tls.min_version.as_ref().map_or(Version::Tls12, |at| at.value);
    let at_most = tls.max_version.as_ref().map_or(Version::Tls13, |at| at.value);
    if let Some(max) = tls.max_version.as_ref().filter(|_| at_least > at_most) {
        report.error(max.node, "`max_version` is below `min_version`", None);
    }
    let accepts = |version| at_least <= version && version <= at_most;
    Some(ServerTlsSettings {
        certificate: certificate?,
        key: key?,
        client_auth,
        client_ca,
        client_names: client_names(tls, client_auth, report),
        versions: [accepts(Version::Tls12), accepts(Version::Tls13)],
        suites: tls
            .cipher_suites
            .as_ref()
            .and_then(|suites| known(suites, "cipher suite", SUITES, &REFUSED_SUITES, report)),
        groups: tls
            .curve_preferences
            .as_ref()
            .and_then(|curves| known(curves, "curve", GROUPS, &["CurveP521"], report)),
        prefers_own_order: tls.prefer_server_cipher_suites.unwrap_or(true),
    })
}

fn client_auth(
    tls: &WrittenTlsServer,
    has_authorities: bool,
    node: NodeId,
    report: &mut Report<'_>,
) -> ClientAuth {
    let client_auth = match tls.client_auth_type.as_ref().map(|at| at.value) {
        None | Some(ClientAuthType::NoClientCert) => ClientAuth::None,
        Some(ClientAuthType::RequestClientCert) => ClientAuth::Request,
        Some(ClientAuthType::RequireAnyClientCert) => ClientAuth::RequireAny,
        Some(ClientAuthType::VerifyClientCertIfGiven) => ClientAuth::VerifyIfGiven,
        Some(ClientAuthType::RequireAndVerifyClientCert) => ClientAuth::RequireAndVerify,
    };
    if has_authorities && client_auth == ClientAuth::None {
        let hint = "add `client_auth_type: RequireAndVerifyClientCert`";
        report.error(node, "client certificates have an authority, but are not requested", hint);
    }
    if has_authorities || !client_auth.verifies() {
        return client_auth;
    }
    let hint = "add `client_ca_file: FILE`, in PEM format";
    if client_auth == ClientAuth::RequireAndVerify {
        report.error(node, "client certificates cannot be verified without an authority", hint);
    } else {
        // Go would accept certificates of the public authorities of the system, and so every holder of a public certificate.
        report.warning(
            node,
            "client certificates are not requested, because they cannot be verified without an authority",
            hint,
        );
    }
    ClientAuth::None
}

fn client_names(tls: &WrittenTlsServer, auth: ClientAuth, report: &mut Report<'_>) -> Vec<String> {
    let Some(names) = tls.client_allowed_sans.as_ref() else { return Vec::new() };
    if !matches!(auth, ClientAuth::RequireAny | ClientAuth::RequireAndVerify)
        && names.value.iter().next().is_some()
    {
        let hint = "add `client_auth_type: RequireAndVerifyClientCert`";
        report.error(
            names.node,
            "names of clients are checked only if each client needs a certificate",
            hint,
        );
    }
    names.value.iter().map(|name| name.value.clone()).collect()
}

/// Supported cipher suites of TLS 1.2 and TLS 1.3, by their names in Go. Those of TLS 1.3 are always available.
const SUITES: [(&str, CipherSuite); 9] = [
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Cipher suites of Go that the TLS library does not have, because they are weak.
const REFUSED_SUITES: [&str; 8] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];

/// Supported groups of the key exchange, by their names in Go.
const GROUPS: [(&str, NamedGroup); 3] = [
    ("X25519", NamedGroup::X25519),
    ("CurveP256", NamedGroup::secp256r1),
    ("CurveP384", NamedGroup::secp384r1),
];

/// Returns the values of known names. Names in `refused` are left out with a warning, so that files of other programs can be used.
fn known<T: Copy, const N: usize>(
    written: &At<List<String>>,
    what: &str,
    known: [(&'static str, T); N],
    refused: &[&str],
    report: &mut Report<'_>,
) -> Option<Vec<T>> {
    let names = known.map(|(name, _)| name);
    let mut found = Vec::new();
    for At { node, value } in written.value.iter() {
        if let Some((_, one)) = known.iter().find(|(name, _)| name == value) {
            found.push(*one);
        } else if refused.contains(&value.as_str()) {
            report.warning(*node, format!("the {what} {value} is not supported, and is left out"), None);
        } else {
            report.error(
                *node,
                format!("{} is not a {what}", shown(value)),
                format!("use {}", one_of(&names)),
            );
        }
    }
    let is_understood = written.value.iter().all(|name| refused.contains(&name.value.as_str()));
    if found.is_empty() && is_understood && !written.value.is_empty() {
        report.warning(written.node, format!("no supported {what} is left; all safe ones are used"), None);
    }
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests;
