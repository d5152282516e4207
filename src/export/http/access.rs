//! Rules of access: the clients of each resource, their passwords and tokens, and the rate of their requests.
//!
//! The rules are read from the configuration ([`Web`]) and replaced as a whole when it changes.

use std::fmt;
use std::sync::Arc;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{StatusCode, Uri};

use super::RequestCpu;
use super::admission::Peer;
use super::answer::Answer;
use super::guard::{self, Exposure, HostNames};
use super::password::{Login, Users};
use super::rate::TokenBucket;
use super::review::{Review, Reviewer};
use crate::clean::clean;
use crate::clock::Clock;
use crate::config::Web;
use crate::config::web::{Access, Audience};
use crate::lock::Lock;
use crate::net::kubernetes::KubernetesServer;
use crate::net::server_tls::{Requirements, ServerTls};

/// Value of `WWW-Authenticate`.
const CHALLENGE: &str = "Basic realm=\"perf-exporter\", charset=\"UTF-8\"";

/// Response to a request on a connection that other TLS settings have admitted.
const REPLACED: &str =
    "the TLS settings have changed since this connection was opened; open a new connection";

/// Maximum length of a path in the log, in bytes.
const SHOWN: usize = 100;

/// Rules of access in force.
#[derive(Debug, Default)]
pub struct Rules {
    names: HostNames,
    access: Access,
    users: Option<Arc<Users>>,
    reviewer: Option<Reviewer>,
    open_paths: Vec<String>,
    rate: Option<Lock<TokenBucket>>,
    tls: Option<ServerTls>,
    /// Headers of each response.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Rules {
    /// Creates the rules. `names` are names of this server in addition to those of the settings.
    pub fn new<'a>(web: &'a Web, names: impl IntoIterator<Item = &'a str>, tls: Option<ServerTls>) -> Self {
        let header = |(name, value): &(&'static str, String)| {
            Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?))
        };
        Self {
            names: HostNames::new(web.hosts.iter().map(String::as_str).chain(names)),
            access: web.access,
            users: Users::new(&web.users).map(Arc::new),
            reviewer: None,
            open_paths: web.open_paths.clone(),
            rate: web.rate.map(|rate| Lock::new(TokenBucket::new(rate.interval, rate.burst))),
            tls,
            headers: web.headers.iter().filter_map(header).collect(),
        }
    }

    /// Asks this API server about clients with bearer tokens.
    #[must_use]
    pub fn with_reviews_by(self, server: Option<KubernetesServer>) -> Self {
        Self { reviewer: server.map(Reviewer::new), ..self }
    }

    /// Reports whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the TLS configuration; `None` = unencrypted connections.
    pub(super) fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }

    /// Reports whether the TLS settings in force require of a client what those required that admitted its connection. Other connections must be
    /// closed: their client may have no acceptable certificate. Unix sockets have no TLS.
    pub(super) fn admits(&self, client: &Client) -> bool {
        let required = self.tls.as_ref().map(|tls| &tls.requirements);
        matches!(client.peer, Peer::User(_)) || client.requirements.as_ref() == required
    }

    /// Checks a request. Returns the user of a password or of a token.
    ///
    /// # Errors
    /// Returns the response to a request that is not allowed, with the remedy.
    pub(super) async fn check(
        &self,
        request: Asked<'_>,
        client: &Client,
        clock: &Clock,
        cpu: &RequestCpu,
    ) -> Result<Option<Arc<str>>, Answer> {
        let Asked { exposure, uri, headers, .. } = request;
        if !self.admits(client) {
            let answer = Answer::text(StatusCode::MISDIRECTED_REQUEST, REPLACED);
            return Err(answer.with(header::CONNECTION, "close"));
        }
        if self.rate.as_ref().is_some_and(|rate| !rate.lock().take(clock.monotonic())) {
            return Err(too_many("more requests than web.rate_limit allows", 1));
        }
        guard::check(exposure, uri, headers, &self.names).map_err(|(code, text)| Answer::text(code, text))?;
        let (audience, key) = match exposure {
            Exposure::Health => (Audience::All, ""),
            Exposure::Scraper => (self.access.metrics, "metrics"),
            Exposure::Person | Exposure::Upload => (self.access.profiles, "profiles"),
            Exposure::Change => (self.access.admin, "admin"),
        };
        let is_allowed = |is_authenticated: bool| match audience {
            Audience::All => true,
            Audience::Authenticated => is_authenticated,
            Audience::Loopback => is_authenticated || client.is_local,
        };
        let has_certificate = client.certificate.is_some();
        let is_open = (self.users.is_none() || self.is_excluded(uri)) && is_allowed(has_certificate);
        if let (Some(reviewer), Some(token), false) = (&self.reviewer, bearer(headers), is_open) {
            return reviewed(reviewer, token, request, client, clock).await.map(Some);
        }
        let user = match &self.users {
            Some(users) => self.logged_in(users, request, client, (clock, cpu)).await?,
            None => None,
        };
        if is_allowed(user.is_some() || has_certificate) {
            Ok(user)
        } else {
            Err(forbidden(audience, key, self.users.is_some(), self.reviewer.is_some()))
        }
    }

    /// Reports whether requests of this path need no password.
    fn is_excluded(&self, uri: &Uri) -> bool {
        self.open_paths.iter().any(|path| path == uri.path())
    }

    async fn logged_in(
        &self,
        users: &Arc<Users>,
        Asked { uri, headers, .. }: Asked<'_>,
        client: &Client,
        (clock, cpu): (&Clock, &RequestCpu),
    ) -> Result<Option<Arc<str>>, Answer> {
        match users.check(headers.get(header::AUTHORIZATION), client.peer, clock, cpu).await {
            Login::Of(user) => Ok(Some(user)),
            _ if self.is_excluded(uri) => Ok(None),
            Login::Missing => Err(unauthorized("this server requires a user name and a password")),
            Login::Wrong => {
                let path = clean(uri.path(), SHOWN);
                tracing::warn!(
                    name: "perf_exporter.access.wrong_password",
                    peer = %client.peer,
                    %path,
                    "wrong user name or password"
                );
                Err(unauthorized("wrong user name or password"))
            }
            Login::Limited(seconds) => Err(too_many("too many wrong passwords from your address", seconds)),
            Login::Busy => Err(later("too many passwords are being checked; try again in a few seconds")),
        }
    }
}

/// Asks the API server whether the client may use the resource. Returns the user.
async fn reviewed(
    reviewer: &Reviewer,
    token: &str,
    Asked { path, verb, .. }: Asked<'_>,
    client: &Client,
    clock: &Clock,
) -> Result<Arc<str>, Answer> {
    match reviewer.review(token, (verb, path), client.peer, clock).await {
        Review::Allowed(user) => Ok(user),
        Review::Refused(user) => {
            let text = format!(
                "{user:?} may not {verb} {path}: bind a ClusterRole with the verb {verb} on the nonResourceURL {path}, such as those in \
                 deploy/kubernetes/components/authorization"
            );
            Err(Answer::text(StatusCode::FORBIDDEN, text))
        }
        Review::Invalid => {
            tracing::warn!(
                name: "perf_exporter.access.wrong_token",
                peer = %client.peer,
                path,
                "token rejected by the API server"
            );
            let text = "the API server does not accept this token; create one with `kubectl create token SERVICEACCOUNT`";
            Err(Answer::text(StatusCode::UNAUTHORIZED, text).with(header::WWW_AUTHENTICATE, "Bearer"))
        }
        Review::Limited(seconds) => Err(too_many("too many invalid tokens from your address", seconds)),
        Review::Busy => Err(later("too many tokens are being reviewed; try again in a few seconds")),
        Review::Failed(why) => {
            tracing::warn!(peer = %client.peer, path, "reviewing a token failed: {why}");
            Err(later("the API server has not reviewed the token; the log of the exporter says why"))
        }
    }
}

/// Returns the token of `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// A request, as far as access to it depends on it.
#[derive(Clone, Copy)]
pub(super) struct Asked<'r> {
    pub(super) exposure: Exposure,
    /// Known path of the resource.
    pub(super) path: &'r str,
    /// Verb of the request in rules of Kubernetes: `post` for uploads, reloads and other changes, `delete` for the end of a set of events, otherwise `get`.
    pub(super) verb: &'static str,
    pub(super) uri: &'r Uri,
    pub(super) headers: &'r HeaderMap,
}

/// The client of a connection.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) peer: Peer,
    /// Whether it has the rights of clients on this machine: it is one, or uses an address for administrators.
    pub(super) is_local: bool,
    /// Name in the verified certificate of the client.
    pub(super) certificate: Option<Arc<str>>,
    /// Requirements of the TLS settings that admitted the connection; `None` without TLS.
    pub(super) requirements: Option<Arc<Requirements>>,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.certificate {
            Some(name) => write!(f, "{} ({name:?})", self.peer),
            None => self.peer.fmt(f),
        }
    }
}

fn unauthorized(text: &str) -> Answer {
    Answer::text(StatusCode::UNAUTHORIZED, text).with(header::WWW_AUTHENTICATE, CHALLENGE)
}

fn too_many(text: &str, seconds: u64) -> Answer {
    Answer::text(StatusCode::TOO_MANY_REQUESTS, text).with_made(header::RETRY_AFTER, &seconds.to_string())
}

fn later(text: &str) -> Answer {
    Answer::text(StatusCode::SERVICE_UNAVAILABLE, text).with(header::RETRY_AFTER, "5")
}

fn forbidden(audience: Audience, key: &str, has_users: bool, has_reviewer: bool) -> Answer {
    let what = match key {
        "admin" => "the configuration is reloaded only for",
        "metrics" => "metrics are only for",
        _ => "profiles and pages show stacks and names of processes, and are only for",
    };
    let clients = match audience {
        Audience::Authenticated => "authenticated clients",
        _ => "clients on the machine itself, and authenticated clients",
    };
    let password = if has_users { "use a password" } else { "set passwords in web.basic_auth_users" };
    let token = match has_reviewer {
        true => {
            "- or use a token of the cluster: curl -H \"Authorization: Bearer $(kubectl create token SERVICEACCOUNT)\"\n"
        }
        false => "",
    };
    let text = format!(
        "{what} {clients}:\n\
         - from elsewhere, use a tunnel, and open http://localhost:7373/:\n\
         \x20   kubectl port-forward POD 7373\n\
         \x20   ssh -L 7373:localhost:7373 NODE\n\
         {token}\
         - or {password}, or client certificates in web.tls_server_config\n\
         - or set `web: {{access: {{{key}: all}}}}` if all clients on the network may see them"
    );
    Answer::text(StatusCode::FORBIDDEN, text)
}

#[cfg(test)]
mod tests;
