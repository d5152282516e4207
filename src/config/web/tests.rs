use super::*;
use crate::config::load_web;
use crate::config::tests::{good, report};

/// Returns the settings of a web configuration file without problems.
fn web(text: &str) -> Web {
    let (web, problems) = load_web(text.as_bytes(), "/etc/perf/web.yml", &Web::default()).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    web
}

/// Returns the problems of a web configuration file, without its path.
fn problems(text: &str) -> String {
    let problems = load_web(text.as_bytes(), "web.yml", &Web::default())
        .map_or_else(|all| all.0, |(_, warnings)| warnings);
    problems.iter().map(|problem| format!("{problem}\n").replace("web.yml:", "")).collect()
}

const CERTIFICATE: &str = "cert_file: server.crt, key_file: /k/server.key";

#[test]
fn hosts_are_names_without_scheme_port_and_path() {
    let hosts = |list: &str| good(&format!("web: {{hosts: [{list}]}}")).web.hosts;
    assert_eq!(hosts("'*.example.org', Node_1.local"), ["*.example.org", "Node_1.local"]);
    assert_eq!(good("web: {hosts: a.example}").web.hosts, ["a.example"]);
    assert_eq!(good("web: {}").web, Web::default());
    for wrong in
        ["http://a.example", "a.example:80", "a.example/x", "'*'", "'*.*.a'", "'a..b'", "''", "'[::1]'"]
    {
        let report = report(&format!("web: {{hosts: [{wrong}]}}"));
        assert!(
            report.contains(" is not a host name; leave out the scheme, the port and the path"),
            "{report}"
        );
    }
}

#[test]
fn by_default_pages_and_reloads_are_for_this_machine() {
    let access = good("collection: {}").web.access;
    assert_eq!(
        access,
        Access { metrics: Audience::All, profiles: Audience::Loopback, admin: Audience::Loopback }
    );
    let access = good("web: {access: {metrics: authenticated, profiles: all}, kubernetes: {}}").web.access;
    let metrics = Audience::Authenticated;
    assert_eq!(access, Access { metrics, profiles: Audience::All, ..Access::default() });
}

#[test]
fn the_api_server_is_that_of_the_pod_unless_it_is_named() {
    let pod: Environment =
        [("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("KUBERNETES_SERVICE_PORT", "443")].into_iter().collect();
    let url = |text: &str, environment: &Environment| {
        let reviewer = web(text).kubernetes.unwrap();
        reviewer.server(environment).map(|server| server.url().to_owned())
    };
    assert_eq!(url("kubernetes: {}", &pod).unwrap(), "https://10.0.0.1:443");
    assert_eq!(url("kubernetes: {url: \"https://k:6443/\"}", &pod).unwrap(), "https://k:6443");
    let why = url("kubernetes: {}", &Environment::default()).unwrap_err();
    assert!(why.contains("set `url`, or the variables KUBERNETES_SERVICE_HOST"), "{why}");
    let files = web("kubernetes: {url: \"https://k\", ca: ca.crt, token: /t}").kubernetes.unwrap();
    assert_eq!((files.ca, files.token), (Some("/etc/perf/ca.crt".into()), Some("/t".into())));
    assert!(
        problems("kubernetes: {url: \"http://k\"}").contains("tokens are sent over TLS only; use the form")
    );
    assert!(problems("kubernetes: {url: k}").contains("use the form `https://kubernetes.default.svc`"));
}

#[test]
fn a_file_of_other_exporters_is_read() {
    let hash = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";
    let web = web(&format!(
        "tls_server_config:
  cert_file: server.crt
  key_file: /k/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ../ca.crt
  client_allowed_sans: [prometheus.example, 10.0.0.1, ops@example.org]
  min_version: TLS13
  prefer_server_cipher_suites: false
  curve_preferences: [CurveP256, X25519]
http_server_config:
  http2: true
  headers: {{X-Frame-Options: sameorigin, Strict-Transport-Security: max-age=60, X-XSS-Protection: ''}}
basic_auth_users: {{anna: {hash}, ben: '{hash}'}}
auth_excluded_paths: [/-/healthy]
rate_limit: {{interval: 100ms, burst: 20}}
"
    ));
    let tls = web.tls.unwrap();
    assert_eq!(tls.certificate, Pem::File("/etc/perf/server.crt".into()), "relative to the file");
    assert_eq!(tls.key, Pem::File("/k/server.key".into()));
    assert_eq!(tls.client_ca, Some(Pem::File("/etc/perf/../ca.crt".into())));
    assert_eq!(tls.client_auth, ClientAuth::RequireAndVerify);
    assert_eq!(tls.client_names, ["prometheus.example", "10.0.0.1", "ops@example.org"]);
    assert_eq!((tls.versions, tls.suites, tls.prefers_own_order), ([false, true], None, false));
    assert_eq!(tls.groups, Some(vec![NamedGroup::secp256r1, NamedGroup::X25519]));
    let headers = [("x-frame-options", "sameorigin"), ("strict-transport-security", "max-age=60")];
    assert_eq!(web.headers, headers.map(|(name, value)| (name, value.to_owned())));
    assert_eq!(web.users.keys().collect::<Vec<_>>(), ["anna", "ben"]);
    assert_eq!(web.open_paths, ["/-/healthy"]);
    assert_eq!(web.rate, Some(Rate { interval: Duration::from_millis(100), burst: 20 }));
}

#[test]
fn a_rate_limit_of_zero_is_none() {
    for text in
        ["rate_limit: {interval: 0, burst: 0}", "rate_limit: {interval: 0s}", "rate_limit: {burst: 0}"]
    {
        assert_eq!(web(text).rate, None, "{text}");
    }
}

#[test]
fn the_file_takes_precedence_over_the_section_by_key() {
    let base = good("web: {hosts: [a.example], access: {admin: all}, auth_excluded_paths: [/a]}").web;
    let (web, _) = load_web(b"auth_excluded_paths: [/b]", "web.yml", &base).unwrap();
    assert_eq!(web, Web { open_paths: vec!["/b".into()], ..base.clone() });
    let (web, _) = load_web(b"", "web.yml", &base).unwrap();
    assert_eq!(web, base);
}

#[test]
fn weak_cipher_suites_and_curves_are_left_out_with_a_warning() {
    let text = format!(
        "tls_server_config: {{{CERTIFICATE}, cipher_suites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, \
         TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256], curve_preferences: [CurveP521, CurveP384]}}"
    );
    let (web, warnings) = load_web(text.as_bytes(), "web.yml", &Web::default()).unwrap();
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].ends_with(
            "the cipher suite TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA is not supported, and is left out"
        )
    );
    let tls = web.tls.unwrap();
    assert_eq!(
        tls.suites.unwrap(),
        [
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        ]
    );
    assert_eq!(tls.groups.unwrap(), [NamedGroup::secp384r1]);
    let only_weak = format!("tls_server_config: {{{CERTIFICATE}, curve_preferences: [CurveP521]}}");
    let (web, warnings) = load_web(only_weak.as_bytes(), "web.yml", &Web::default()).unwrap();
    assert_eq!((web.tls.unwrap().groups, warnings.len()), (None, 2));
}

#[test]
fn certificates_of_public_authorities_do_not_authenticate() {
    let text = format!("tls_server_config: {{{CERTIFICATE}, client_auth_type: VerifyClientCertIfGiven}}");
    let (web, warnings) = load_web(text.as_bytes(), "web.yml", &Web::default()).unwrap();
    assert_eq!((web.tls.unwrap().client_auth, warnings.len()), (ClientAuth::None, 1));
}

#[test]
fn a_header_may_be_a_number() {
    let web = web("http_server_config: {headers: {X-XSS-Protection: 1}}");
    assert_eq!(web.headers, [("x-xss-protection", "1".to_owned())]);
}

#[test]
fn mistakes_are_named_with_the_correction() {
    let mut all = String::new();
    for text in [
        "junk: 1",
        "tls_server_config: {key_file: k}",
        "tls_server_config: {cert_file: c}",
        "tls_server_config: {cert_file: '', key_file: k}",
        "tls_server_config: {cert: a, cert_file: b, key_file: k}",
        &format!("tls_server_config: {{{CERTIFICATE}, client_ca_file: ca.crt}}"),
        &format!("tls_server_config: {{{CERTIFICATE}, client_auth_type: RequireAndVerifyClientCert}}"),
        &format!("tls_server_config: {{{CERTIFICATE}, client_auth_type: Always}}"),
        &format!("tls_server_config: {{{CERTIFICATE}, client_allowed_sans: [a]}}"),
        &format!("tls_server_config: {{{CERTIFICATE}, min_version: TLS11}}"),
        &format!("tls_server_config: {{{CERTIFICATE}, min_version: TLS13, max_version: TLS12}}"),
        &format!("tls_server_config: {{{CERTIFICATE}, cipher_suites: [TLS_NONE]}}"),
        "http_server_config: {headers: {X-Frame-Options: allow}}",
        "http_server_config: {headers: {X-Content-Type-Options: sniff}}",
        "http_server_config: {headers: {Server: a}}",
        "http_server_config: {headers: {X-XSS-Protection: \"a\\nb\"}}",
        "basic_auth_users: {anna: secret}",
        "basic_auth_users: {anna: $2y$99$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG}",
        "basic_auth_users: {'a:b': $2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG}",
        "auth_excluded_paths: [metrics]",
        "access: {profiles: nobody}",
        "rate_limit: {interval: 1}",
        "rate_limit: {interval: 1s, burst: 0}",
    ] {
        let told = problems(text);
        assert!(!told.is_empty(), "{text}");
        assert!(!told.contains("secret"), "{told}");
        all.push_str(&told);
    }
    insta::assert_snapshot!(all);
}

#[test]
fn nobody_is_excluded_unless_somebody_can_authenticate() {
    let of = |text: &str| web(text).require_clients();
    let refused = of("access: {profiles: authenticated}").unwrap_err();
    assert!(refused.starts_with("`access.profiles: authenticated` excludes all clients"), "{refused}");
    assert!(of("access: {admin: authenticated}").is_err());
    let unverified = format!("tls_server_config: {{{CERTIFICATE}, client_auth_type: RequireAnyClientCert}}");
    assert!(of(&format!("access: {{admin: authenticated}}\n{unverified}")).is_err());
    let verified = format!(
        "tls_server_config: {{{CERTIFICATE}, client_auth_type: VerifyClientCertIfGiven, client_ca_file: a}}"
    );
    assert_eq!(of(&format!("access: {{admin: authenticated}}\n{verified}")), Ok(()));
}

#[test]
fn secrets_are_not_in_debug_output() {
    let hash = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";
    let shown = format!(
        "{:?}",
        web(&format!("basic_auth_users: {{anna: {hash}}}\ntls_server_config: {{cert: a, key: TOP}}"))
    );
    assert!(shown.contains("anna") && !shown.contains("X0h1") && !shown.contains("TOP"), "{shown}");
}
