//! Reviews of bearer tokens by the API server of a Kubernetes cluster. It identifies the user of a token (TokenReview), and decides whether
//! the user may use a path (SubjectAccessReview).
//!
//! Rules of the cluster (RBAC) decide, as with kube-rbac-proxy. A decision is remembered for a while, so that scrapes cause few requests.
//! Invalid tokens count as guesses of the client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::admission::Peer;
use super::digest::{Digest, Digester};
use super::guesses::Guesses;
use crate::clean::clean;
use crate::clock::{Clock, Monotonic};
use crate::lock::Lock;
use crate::net::kubernetes::KubernetesServer;

/// Time for which a permission is remembered. After a change of rules, a client can use a path for so long.
const ALLOWED: Duration = Duration::from_secs(60);

/// Time for which a refusal is remembered.
const REFUSED: Duration = Duration::from_secs(10);

/// Maximum number of remembered decisions.
const REMEMBERED: usize = 1000;

/// Maximum number of concurrent reviews.
const CONCURRENT: usize = 16;

/// Time limit of a review, which is two requests.
const DEADLINE: Duration = Duration::from_secs(5);

/// Maximum size of a response of the API server, in bytes.
const ANSWER: usize = 1 << 20;

/// Maximum length of the name of a user, in bytes.
const NAME: usize = 256;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Outcome of a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Review {
    /// This user may use the path.
    Allowed(Arc<str>),
    /// This user may not use the path.
    Refused(Arc<str>),
    /// The token is not valid in this cluster.
    Invalid,
    /// The peer has sent too many invalid tokens. It may try again after this number of seconds.
    Limited(u64),
    /// Too many reviews are in progress.
    Busy,
    /// The API server has not answered, for this reason.
    Failed(String),
}

/// The reviewer of tokens.
#[derive(Debug)]
pub(super) struct Reviewer {
    server: KubernetesServer,
    digester: Digester,
    decisions: Lock<BTreeMap<Digest, Decision>>,
    guesses: Guesses,
    places: Semaphore,
}

/// A decision about a token and a path.
#[derive(Debug, Clone)]
struct Decision {
    at: Monotonic,
    user: Arc<str>,
    is_allowed: bool,
}

/// The user of a token: fields of both kinds of reviews.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

/// A review with its result.
#[derive(Debug, Deserialize)]
struct Reviewed<T> {
    status: T,
}

/// Result of a `TokenReview`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
}

/// Result of a `SubjectAccessReview`.
#[derive(Debug, Deserialize)]
struct AccessStatus {
    allowed: bool,
    #[serde(default)]
    denied: bool,
}

impl Decision {
    fn is_valid(&self, now: Monotonic) -> bool {
        now.since(self.at) < if self.is_allowed { ALLOWED } else { REFUSED }
    }

    fn review(&self) -> Review {
        let user = Arc::clone(&self.user);
        if self.is_allowed { Review::Allowed(user) } else { Review::Refused(user) }
    }
}

impl Reviewer {
    /// Creates a reviewer that asks this API server. Its service account needs the ClusterRole `system:auth-delegator`.
    pub(super) fn new(server: KubernetesServer) -> Self {
        Self {
            server,
            digester: Digester::new(),
            decisions: Lock::default(),
            guesses: Guesses::default(),
            places: Semaphore::new(CONCURRENT),
        }
    }

    /// Asks the API server whether the user of a token may use a path with this verb of Kubernetes.
    pub(super) async fn review(
        &self,
        token: &str,
        (verb, path): (&str, &str),
        peer: Peer,
        clock: &Clock,
    ) -> Review {
        let digest = self.digester.digest([token, verb, path].map(str::as_bytes));
        let known = self.decisions.lock().get(&digest).cloned();
        let now = clock.monotonic();
        if let Some(known) = known.as_ref().filter(|known| known.is_valid(now)) {
            return known.review();
        }
        let Ok(_place) = self.places.try_acquire() else { return Review::Busy };
        // A token that was valid is no guess: a client that guesses at the same address does not lock out its scraper.
        let is_guess = known.is_none();
        if is_guess && let Some(wait) = self.guesses.take(peer, now) {
            return Review::Limited(wait.as_secs() + 1);
        }
        let asked = timeout(DEADLINE, self.ask(token, verb, path)).await;
        let decided = match asked {
            Ok(Ok(decided)) => decided,
            Ok(Err(why)) => return self.failed(why, peer, is_guess),
            Err(_) => return self.failed(format!("no response within {DEADLINE:?}"), peer, is_guess),
        };
        let Some((user, is_allowed)) = decided else {
            self.decisions.lock().remove(&digest);
            return Review::Invalid;
        };
        if is_guess {
            self.guesses.put_back(peer);
        }
        let decision = Decision { at: now, user, is_allowed };
        let review = decision.review();
        self.remember(digest, decision);
        review
    }

    /// A failure of the API server is not a guess of the client.
    fn failed(&self, why: String, peer: Peer, is_guess: bool) -> Review {
        if is_guess {
            self.guesses.put_back(peer);
        }
        Review::Failed(why)
    }

    fn remember(&self, digest: Digest, decision: Decision) {
        let mut decisions = self.decisions.lock();
        if decisions.len() >= REMEMBERED {
            let now = decision.at;
            decisions.retain(|_, known| known.is_valid(now));
            if decisions.len() >= REMEMBERED {
                decisions.clear();
            }
        }
        decisions.insert(digest, decision);
    }

    /// Returns the user and whether it may use the path; `None` if the token is invalid.
    async fn ask(&self, token: &str, verb: &str, path: &str) -> Result<Option<(Arc<str>, bool)>, String> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        });
        let status: TokenStatus = self.post(TOKEN_REVIEWS, &review).await?;
        if !status.authenticated || status.user.username.is_empty() {
            return Ok(None);
        }
        let User { username, uid, groups, extra } = status.user;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": username,
                "uid": uid,
                "groups": groups,
                "extra": extra,
                "nonResourceAttributes": {"path": path, "verb": verb},
            },
        });
        let status: AccessStatus = self.post(ACCESS_REVIEWS, &review).await?;
        Ok(Some((clean(&username, NAME).into(), status.allowed && !status.denied)))
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, review: &Value) -> Result<T, String> {
        let body = self.server.post(path, review.to_string().into_bytes(), ANSWER).await?;
        let reviewed = serde_json::from_slice(&body).map(|Reviewed { status }| status);
        reviewed.map_err(|error| format!("the response is not a review: {error}"))
    }
}

#[cfg(test)]
mod tests;
