//! Requests that a browser sends for another site.

use super::*;

#[test]
fn the_page_of_another_site_cannot_reload() {
    let program = program(snapshot(1, 1));
    let server = Running::new(program.clone());
    for field in ["Sec-Fetch-Site: cross-site", "Origin: http://evil.example", "Origin: null"] {
        let answer = server.ask(&format!("POST /-/reload HTTP/1.1\r\n{field}"));
        assert_eq!((answer.code(), *program.reloads.lock().unwrap()), (403, 0), "{field}");
    }
    assert_eq!(server.ask("POST /-/reload HTTP/1.1\r\nOrigin: http://test").code(), 200);
}

#[test]
fn a_name_of_another_site_gets_metrics_and_neither_pages_nor_a_reload() {
    let program = program(snapshot(1, 1));
    let server = Running::new(program.clone());
    let ask = |request: &str| {
        let mut stream = server.connect();
        write!(stream, "{request} HTTP/1.1\r\nHost: evil.example:7373\r\nConnection: close\r\n\r\n").unwrap();
        Answer::read(&mut stream)
    };
    for path in ["/metrics", "/-/healthy", "/-/ready"] {
        assert_eq!(ask(&format!("GET {path}")).code(), 200, "{path}");
    }
    for path in [
        "/",
        "/status",
        "/api/v1/status",
        "/top",
        "/folded",
        "/flamegraph",
        "/debug/pprof/profile",
        "/debug/pprof/",
    ] {
        assert_eq!(ask(&format!("GET {path}")).code(), 403, "{path}");
    }
    let answer = ask("POST /-/reload");
    assert_eq!((answer.code(), *program.reloads.lock().unwrap()), (403, 0));
    assert!(
        answer.text().starts_with("\"evil.example:7373\" is not a name of this server"),
        "{}",
        answer.text()
    );
    assert!(
        answer.text().ends_with("add the name to `web.hosts` in the configuration\n"),
        "{}",
        answer.text()
    );
}

#[test]
fn no_response_can_be_framed_or_loaded_by_another_site() {
    let server = Running::new(program(snapshot(1, 1)));
    for path in ["/metrics", "/status", "/flamegraph", "/-/healthy", "/nothing"] {
        let answer = server.ask(&format!("GET {path} HTTP/1.1"));
        let headers =
            ["x-frame-options", "x-content-type-options", "referrer-policy", "cross-origin-resource-policy"];
        let values = headers.map(|name| answer.header(name).unwrap_or("absent"));
        assert_eq!(values, ["deny", "nosniff", "no-referrer", "same-origin"], "{path}");
    }
}
