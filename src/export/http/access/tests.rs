use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::clock::Timestamp;
use crate::config::web::Rate;
use crate::net::server_tls::Secret;

fn web(access: Access, users: &[&str]) -> Web {
    let hash = bcrypt::hash("secret", 4).unwrap();
    let users: BTreeMap<_, _> = users.iter().map(|user| ((*user).to_owned(), Secret(hash.clone()))).collect();
    Web { access, users, ..Web::default() }
}

/// Returns the status of the response, or 200 and the user.
fn asked(
    rules: &Rules,
    exposure: Exposure,
    (path, authorization): (&str, Option<&str>),
    client: &Client,
) -> (u16, Option<String>) {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_static("10.0.0.1:7373"));
    if let Some(value) = authorization {
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
    }
    let uri: Uri = path.parse().unwrap();
    let verb = if exposure == Exposure::Change { "post" } else { "get" };
    let request = Asked { exposure, path, verb, uri: &uri, headers: &headers };
    let clock = Clock::manual(Timestamp(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match runtime.block_on(rules.check(request, client, &clock, &RequestCpu::default())) {
        Ok(user) => (200, user.map(|user| user.to_string())),
        Err(answer) => (answer.code.as_u16(), None),
    }
}

fn client(address: &str) -> Client {
    let peer = Peer::of(address.parse::<IpAddr>().unwrap());
    Client { peer, is_local: peer.is_on_this_machine(), certificate: None, requirements: None }
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}

#[test]
fn by_default_metrics_are_for_all_and_pages_and_reloads_for_this_machine() {
    let rules = Rules::default();
    for (address, allowed) in [
        ("127.0.0.1", 200),
        ("127.9.9.9", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.0.0.7", 403),
        ("::ffff:10.0.0.7", 403),
        ("2001:db8::1", 403),
        ("0.0.0.0", 403),
    ] {
        let client = client(address);
        for (exposure, path) in [(Exposure::Person, "/flamegraph"), (Exposure::Change, "/-/reload")] {
            assert_eq!(asked(&rules, exposure, (path, None), &client).0, allowed, "{path} from {address}");
        }
        assert_eq!(asked(&rules, Exposure::Scraper, ("/metrics", None), &client).0, 200, "{address}");
    }
}

#[test]
fn clients_of_an_address_for_administrators_have_the_rights_of_this_machine() {
    let of_admin = Client { is_local: true, ..client("10.0.0.7") };
    for (audience, allowed) in [(Audience::Loopback, 200), (Audience::Authenticated, 403)] {
        let rules = Rules::new(
            &web(Access { profiles: audience, admin: audience, ..Access::default() }, &[]),
            [],
            None,
        );
        for (exposure, path) in [(Exposure::Person, "/flamegraph"), (Exposure::Change, "/-/reload")] {
            assert_eq!(asked(&rules, exposure, (path, None), &of_admin).0, allowed, "{path}: {audience:?}");
        }
    }
}

#[test]
fn a_verified_certificate_opens_what_is_for_this_machine() {
    let with = Client { certificate: Some("ops".into()), ..client("10.0.0.7") };
    let authenticated = Audience::Authenticated;
    let strict = Access { metrics: authenticated, profiles: authenticated, admin: authenticated };
    for access in [Access::default(), strict] {
        let rules = Rules::new(&web(access, &[]), [], None);
        assert_eq!(asked(&rules, Exposure::Scraper, ("/metrics", None), &with).0, 200);
        assert_eq!(asked(&rules, Exposure::Person, ("/top", None), &with).0, 200);
        assert_eq!(asked(&rules, Exposure::Change, ("/-/reload", None), &with).0, 200);
    }
}

#[test]
fn each_audience_is_who_its_name_says() {
    let [local, remote] = ["127.0.0.1", "10.0.0.7"].map(client);
    for (audience, of_local, of_remote) in
        [(Audience::Loopback, 200, 403), (Audience::Authenticated, 403, 403), (Audience::All, 200, 200)]
    {
        let rules = Rules::new(&web(Access { profiles: audience, ..Access::default() }, &[]), [], None);
        for (client, expected) in [(&local, of_local), (&remote, of_remote)] {
            assert_eq!(asked(&rules, Exposure::Person, ("/top", None), client).0, expected, "{audience}");
            let reload = asked(&rules, Exposure::Change, ("/-/reload", None), client).0;
            assert_eq!(reload, if client.is_local { 200 } else { 403 }, "reload is a rule of its own");
            assert_eq!(
                asked(&rules, Exposure::Scraper, ("/metrics", None), client).0,
                200,
                "and so are metrics"
            );
            let rules = Rules::new(&web(Access { metrics: audience, ..Access::default() }, &[]), [], None);
            assert_eq!(
                asked(&rules, Exposure::Scraper, ("/metrics", None), client).0,
                expected,
                "{audience}"
            );
            assert_eq!(asked(&rules, Exposure::Health, ("/-/healthy", None), client).0, 200, "{audience}");
        }
    }
}

/// The reviewer has no API server: a request gets 503 if and only if it would be reviewed.
#[test]
fn a_token_is_reviewed_only_for_what_the_client_may_not_do_otherwise() {
    let server = Some(KubernetesServer::new("http://127.0.0.1:1", None, None));
    let rules = Rules::new(&Web::default(), [], None).with_reviews_by(server.clone());
    let [local, remote] = ["127.0.0.1", "10.0.0.7"].map(client);
    let token = Some("Bearer x");
    for (exposure, path, authorization, client, expected) in [
        (Exposure::Scraper, "/metrics", token, &remote, 200),
        (Exposure::Health, "/-/healthy", token, &remote, 200),
        (Exposure::Person, "/top", token, &local, 200),
        (Exposure::Person, "/top", token, &remote, 503),
        (Exposure::Change, "/-/reload", token, &remote, 503),
        (Exposure::Person, "/top", None, &remote, 403),
        (Exposure::Person, "/top", Some("Basic x"), &remote, 403),
    ] {
        assert_eq!(
            asked(&rules, exposure, (path, authorization), client).0,
            expected,
            "{path} {authorization:?}"
        );
    }
    let settings = Web { open_paths: vec!["/-/healthy".into()], ..web(Access::default(), &["anna"]) };
    let rules = Rules::new(&settings, [], None).with_reviews_by(server);
    assert_eq!(asked(&rules, Exposure::Health, ("/-/healthy", token), &remote).0, 200, "an excluded path");
    let password = basic("anna", "secret");
    for (authorization, expected) in [(token, 503), (Some(&*password), 200), (None, 401)] {
        assert_eq!(asked(&rules, Exposure::Scraper, ("/metrics", authorization), &local).0, expected);
    }
}

#[test]
fn with_users_every_request_needs_a_password_but_that_of_an_excluded_path() {
    let settings = Web { open_paths: vec!["/-/healthy".into()], ..web(Access::default(), &["anna", "ben"]) };
    let rules = Rules::new(&settings, [], None);
    for client in ["127.0.0.1", "10.0.0.7"].map(client) {
        let asked = |exposure, path, authorization: Option<String>| {
            asked(&rules, exposure, (path, authorization.as_deref()), &client)
        };
        assert_eq!(asked(Exposure::Scraper, "/metrics", None).0, 401);
        assert_eq!(asked(Exposure::Health, "/-/healthy", None).0, 200);
        assert_eq!(asked(Exposure::Health, "/-/healthy/", None).0, 401);
        let right = Some(basic("anna", "secret"));
        assert_eq!(asked(Exposure::Scraper, "/metrics", right.clone()), (200, Some("anna".into())));
        assert_eq!(asked(Exposure::Person, "/top", right.clone()), (200, Some("anna".into())));
        assert_eq!(asked(Exposure::Change, "/-/reload", right.clone()), (200, Some("anna".into())));
        for wrong in [
            basic("anna", "Secret"),
            basic("carl", "secret"),
            basic("", ""),
            "Bearer c2VjcmV0".into(),
            "Basic !".into(),
        ] {
            assert_eq!(asked(Exposure::Scraper, "/metrics", Some(wrong.clone())).0, 401, "{wrong}");
        }
    }
}

#[test]
fn requests_above_the_rate_are_rejected_with_the_time_to_wait() {
    let rate = Some(Rate { interval: Duration::from_secs(1), burst: 2 });
    let rules = Rules::new(&Web { rate, ..Web::default() }, [], None);
    let codes = [(); 3].map(|()| asked(&rules, Exposure::Scraper, ("/metrics", None), &client("10.0.0.7")).0);
    assert_eq!(codes, [200, 200, 429]);
}

#[test]
fn a_refusal_names_every_way_in() {
    let answer = forbidden(Audience::Loopback, "profiles", false, true);
    let super::super::body::Content::Whole(text) = answer.content else { panic!("not a text") };
    insta::assert_snapshot!(String::from_utf8(text.to_vec()).unwrap());
}
