//! Rejection of requests that a browser sends for another site.
//!
//! A page of another site can make a browser send requests to this server in two ways. Across sites (CSRF), the browser sends the request
//! and withholds the response from the page. By DNS rebinding, a name of that site resolves to the address of this server; the page can
//! then read the response, and the request has this name in `Host`. Scrapes and health checks are exempt from the check of the name,
//! because scrapers use names of any kind, and their responses contain neither stacks nor names of other users' processes.
//!
//! Clients other than browsers send neither `Origin` nor fetch metadata. Browsers send fetch metadata only over TLS and to the own machine,
//! but they send `Origin` with each POST.

use std::net::IpAddr;

use hyper::header::{self, HeaderMap};
use hyper::http::uri::Authority;
use hyper::{StatusCode, Uri};

use super::answer::values;

/// Maximum length of a name in a response, in bytes.
const SHOWN: usize = 100;

/// Names of this server in the header `Host`, in addition to IP addresses and `localhost`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostNames(Box<[Box<str>]>);

impl HostNames {
    /// Collects names. `*.example.org` means all names below `example.org`. Upper and lower case are equal.
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase().into()).collect())
    }

    /// Reports whether a browser may use this name for the server.
    fn contains(&self, host: &str) -> bool {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let address = name.trim_start_matches('[').trim_end_matches(']');
        // Browsers resolve `localhost` and names below it to this machine, whatever a DNS server says.
        let is_local = name == "localhost" || name.ends_with(".localhost");
        is_local || address.parse::<IpAddr>().is_ok() || self.0.iter().any(|known| is_of(&name, known))
    }
}

fn is_of(name: &str, known: &str) -> bool {
    match known.strip_prefix('*') {
        Some(below) => name.len() > below.len() && name.ends_with(below),
        None => name == known,
    }
}

/// What a request does, which decides how it is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exposure {
    /// Returns the health, or does not exist.
    Health,
    /// Returns metrics: for scrapers.
    Scraper,
    /// Returns pages, profiles or the status: for people.
    Person,
    /// Keeps data of the client, for people.
    Upload,
    /// Changes the state of the exporter.
    Change,
}

impl Exposure {
    /// Reports whether requests of other sites have an effect, even if the site does not get the response.
    fn has_effect(self) -> bool {
        matches!(self, Self::Upload | Self::Change)
    }
}

/// A rejected request: the status code and a sentence with the remedy.
pub(super) type Rejected = (StatusCode, String);

/// Checks the target and the headers of a request.
pub(super) fn check(
    exposure: Exposure,
    uri: &Uri,
    headers: &HeaderMap,
    names: &HostNames,
) -> Result<(), Rejected> {
    let mut hosts = headers.get_all(header::HOST).into_iter();
    let host = hosts.next().map(|host| host.to_str().unwrap_or("?"));
    if hosts.next().is_some() {
        return Err((StatusCode::BAD_REQUEST, "the request has more than one Host header".to_owned()));
    }
    if matches!(exposure, Exposure::Health | Exposure::Scraper) {
        return Ok(());
    }
    // Without a name the client is no browser. The name in an absolute target takes precedence over the header (RFC 9112, 3.2.2).
    let target = uri.authority().map(Authority::as_str);
    for host in host.into_iter().chain(target) {
        if !names.contains(without_port(host)) {
            let shown: String = host.chars().take(SHOWN).collect();
            let text = format!(
                "{shown:?} is not a name of this server, so the request may come from another site (DNS rebinding); use an IP \
                 address or localhost, or add the name to `web.hosts` in the configuration"
            );
            return Err((StatusCode::FORBIDDEN, text));
        }
    }
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("?"));
    if is_cross_site(exposure, headers)
        || (exposure.has_effect() && is_foreign(origin, host.unwrap_or_default()))
    {
        let text = "request of another site rejected; open the page of this server itself, or use a client such as curl";
        return Err((StatusCode::FORBIDDEN, text.to_owned()));
    }
    Ok(())
}

/// Reports whether fetch metadata names another site. A link on another site to a page is allowed; its script and its images are not.
fn is_cross_site(exposure: Exposure, headers: &HeaderMap) -> bool {
    let Some(site) = values(headers, "sec-fetch-site").next() else { return false };
    let is_link =
        exposure == Exposure::Person && values(headers, "sec-fetch-mode").next() == Some("navigate");
    !matches!(site, "same-origin" | "none") && !is_link
}

/// Reports whether a page that this server did not serve sent the request.
fn is_foreign(origin: Option<&str>, host: &str) -> bool {
    let Some(origin) = origin else { return false };
    let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    own.is_none_or(|own| host.is_empty() || !own.eq_ignore_ascii_case(host))
}

/// Returns the host of `host:port`. An IPv6 address is in brackets.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn asked(exposure: Exposure, target: &str, fields: &[(&'static str, &str)]) -> Result<(), u16> {
        let mut headers = HeaderMap::new();
        for &(name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let names = HostNames::new(["Node-17", "*.perf.example.org"]);
        check(exposure, &target.parse().unwrap(), &headers, &names).map_err(|(code, _)| code.as_u16())
    }

    #[test]
    fn pages_are_served_by_address_localhost_and_configured_names_only() {
        for (host, allowed) in [
            ("10.0.0.7:7373", true),
            ("10.0.0.7", true),
            ("[::1]:7373", true),
            ("[fe80::1]", true),
            ("localhost:7373", true),
            ("LOCALHOST.", true),
            ("a.localhost", true),
            ("node-17:7373", true),
            ("NODE-17", true),
            ("a.perf.example.org:80", true),
            ("perf.example.org", false),
            ("notperf.example.org", false),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("10.0.0.7.evil.example", false),
            ("node-17.evil.example", false),
            ("", false),
            ("\u{e9}vil", false),
        ] {
            let outcome = asked(Exposure::Person, "/status", &[("host", host)]);
            assert_eq!(outcome, if allowed { Ok(()) } else { Err(403) }, "{host}");
            for (exposure, path) in [(Exposure::Scraper, "/metrics"), (Exposure::Health, "/-/healthy")] {
                assert_eq!(asked(exposure, path, &[("host", host)]), Ok(()), "{host}");
            }
        }
        assert_eq!(asked(Exposure::Person, "/status", &[]), Ok(()), "HTTP/1.0");
        assert_eq!(asked(Exposure::Person, "http://evil.example/top", &[("host", "localhost")]), Err(403));
    }

    #[test]
    fn two_host_headers_are_never_accepted() {
        for exposure in
            [Exposure::Health, Exposure::Scraper, Exposure::Person, Exposure::Upload, Exposure::Change]
        {
            assert_eq!(asked(exposure, "/", &[("host", "localhost"), ("host", "localhost")]), Err(400));
        }
    }

    #[test]
    fn only_the_own_pages_and_clients_without_an_origin_change_the_state() {
        let change = |fields: &[(&'static str, &str)]| {
            let fields = [fields, &[("host", "localhost:7373")]].concat();
            let outcome = asked(Exposure::Change, "/-/reload", &fields);
            assert_eq!(asked(Exposure::Upload, "/api/v1/baselines", &fields), outcome);
            outcome
        };
        assert_eq!(change(&[]), Ok(()));
        assert_eq!(change(&[("origin", "http://localhost:7373")]), Ok(()));
        assert_eq!(
            change(&[("origin", "https://LOCALHOST:7373"), ("sec-fetch-site", "same-origin")]),
            Ok(())
        );
        for origin in
            ["http://localhost", "http://localhost:80", "http://evil.example", "null", "", "localhost:7373"]
        {
            assert_eq!(change(&[("origin", origin)]), Err(403), "{origin}");
        }
        for site in ["cross-site", "same-site", "nonsense"] {
            assert_eq!(change(&[("sec-fetch-site", site)]), Err(403), "{site}");
            assert_eq!(
                change(&[("sec-fetch-site", site), ("sec-fetch-mode", "navigate")]),
                Err(403),
                "{site}"
            );
        }
    }

    #[test]
    fn another_site_may_link_to_a_page_and_not_load_it() {
        let page = |mode: &str| {
            let fields = [("host", "localhost"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode)];
            asked(Exposure::Person, "/flamegraph", &fields)
        };
        assert_eq!(page("navigate"), Ok(()));
        assert_eq!((page("no-cors"), page("cors")), (Err(403), Err(403)));
    }
}
