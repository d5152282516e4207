//! Requests to servers of Kubernetes: the API server and the kubelet.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};

use super::USER_AGENT;
use super::error_text::causes;
use super::http::{client, read_answer};
use super::tls::{Tls, Trust};
use crate::host::{self, Environment};

/// Directory of a pod's service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Maximum size of a token file, in bytes.
const TOKEN: u64 = 1 << 16;

/// A server, with the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesServer {
    /// URL without a slash at the end.
    url: String,
    trust: Trust,
    token: Option<PathBuf>,
}

impl KubernetesServer {
    /// Creates a server. Omitted credentials are those of the pod's service account. The token is not sent over an unencrypted connection.
    pub fn new(url: &str, ca: Option<&Path>, token: Option<&Path>) -> Self {
        let account = |name: &str| Path::new(ACCOUNT).join(name);
        let ca = ca.map_or_else(|| account("ca.crt"), Path::to_owned);
        let token = token.map_or_else(|| account("token"), Path::to_owned);
        Self {
            url: url.trim_end_matches('/').to_owned(),
            trust: Trust::Files(Tls { ca: Some(ca), ..Tls::default() }),
            token: url.starts_with("https:").then_some(token),
        }
    }

    /// Accepts any certificate of the server.
    #[must_use]
    pub fn insecure(self) -> Self {
        Self { trust: Trust::Anybody, ..self }
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the response to a GET request of a path with its query, at most `limit` bytes.
    ///
    /// # Errors
    /// Returns the reason, with the remedy.
    pub(crate) async fn get(&self, path: &str, limit: usize) -> Result<Bytes, String> {
        self.request(Method::GET, path, Bytes::new(), limit).await
    }

    /// Returns the response to a POST request with a JSON body, at most `limit` bytes.
    ///
    /// # Errors
    /// Returns the reason, with the remedy.
    pub(crate) async fn post(&self, path: &str, json: Vec<u8>, limit: usize) -> Result<Bytes, String> {
        self.request(Method::POST, path, json.into(), limit).await
    }

    async fn request(&self, method: Method, path: &str, body: Bytes, limit: usize) -> Result<Bytes, String> {
        let url = format!("{}{path}", self.url);
        let uri: Uri = url.parse().map_err(|error| format!("{url:?}: {error}"))?;
        let client = client(&uri, || self.trust.client())?;
        let mut request = Request::builder().method(method).uri(uri).header(header::USER_AGENT, USER_AGENT);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(path) = &self.token {
            request = request.header(header::AUTHORIZATION, bearer(path)?);
        }
        let request = request.body(body.into()).map_err(|error| error.to_string())?;
        let response = client.request(request).await.map_err(|error| {
            let mut why = causes(&error);
            if self.trust != Trust::Anybody && why.contains("certificate") {
                why.push_str("; set `ca`");
            }
            why
        })?;
        let status = response.status();
        read_answer(response, limit).await.map_err(|mut why| {
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                why.push_str("; the service account needs the role in deploy/kubernetes");
            }
            why
        })
    }
}

/// Returns the URL of the API server from the environment of a pod.
///
/// # Errors
/// Returns the remedy if the environment is not that of a pod.
pub fn in_cluster(environment: &Environment) -> Result<String, String> {
    let (host, port) = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT");
    match (environment.get(host), environment.get(port)) {
        (Some(host), Some(port)) if host.contains(':') => Ok(format!("https://[{host}]:{port}")),
        (Some(host), Some(port)) => Ok(format!("https://{host}:{port}")),
        _ => Err(format!(
            "the address is missing: set `url`, or the variables {host} and {port}, which every pod has"
        )),
    }
}

/// Read for each request, because tokens are replaced every hour.
fn bearer(path: &Path) -> Result<HeaderValue, String> {
    let token = host::read_at_most(path, TOKEN).map_err(|error| error.to_string())?;
    let token = String::from_utf8_lossy(&token);
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| format!("{} does not contain a token", path.display()))?;
    value.set_sensitive(true);
    Ok(value)
}
