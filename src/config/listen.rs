//! Checks of the addresses to listen on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::decode::At;
use super::file::File;
use super::problem::shown;
use super::report::Report;
use super::value::{Address, List};
use crate::net::listen::{Listen, ListenAddress};

/// Port in proposed addresses.
const PORT: u16 = 7373;

/// Returns the sockets of `file`, with those of `base` for omitted keys.
pub(super) fn listen(file: &File, base: &Listen, report: &mut Report<'_>) -> Listen {
    let mut addresses = |written: &Option<At<List<Address>>>, base: &[ListenAddress]| {
        let Some(At { value: list, .. }) = written else { return base.to_vec() };
        list.iter().filter_map(|written| address(written, report)).collect()
    };
    let listen = Listen {
        all: addresses(&file.listen, &base.all),
        admin: addresses(&file.admin, &base.admin),
        socket_mode: file.socket_mode.as_ref().map_or(base.socket_mode, |written| written.value.0),
    };
    if let Some(At { node, value: list }) = &file.listen
        && list.is_empty()
    {
        let hint = "omit `listen` to use the built-in address; `127.0.0.1:7373` restricts it to this machine";
        report.error(*node, "no address to serve metrics on", hint);
    }
    listen
}

fn address(
    At { node, value: Address(text) }: &At<Address>,
    report: &mut Report<'_>,
) -> Option<ListenAddress> {
    match text.parse() {
        Ok(address) => Some(address),
        Err(reason) => {
            let message = format!("{} is {reason}", shown(text));
            if text.starts_with("unix:") {
                report.error(*node, message, None);
            } else {
                report.error(*node, message, better_address(text));
            }
            None
        }
    }
}

/// Returns a correction for an invalid address.
fn better_address(text: &str) -> String {
    if let Ok(address) = text.parse::<IpAddr>() {
        return format!("add the port: `{}`", SocketAddr::new(address, PORT));
    }
    if text.starts_with('/') {
        return format!("write `unix:{text}` for a unix socket");
    }
    if text.contains("://") {
        return format!(
            "leave out the scheme and the path: `{}`",
            SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT)
        );
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    match (host, port.parse::<u16>()) {
        ("" | "*", Ok(port)) => format!("write `0.0.0.0:{port}` for every address of this host"),
        ("localhost", Ok(port)) => format!("host names are not resolved: write `127.0.0.1:{port}`"),
        (_, Ok(port)) => {
            format!(
                "host names are not resolved: write an address of this host, or `0.0.0.0:{port}` for all of them"
            )
        }
        (_, Err(_)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty() => {
            "the maximum port is 65535".to_owned()
        }
        _ => "use the form `0.0.0.0:7373` or `[::]:7373`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::tests::{good, report};

    #[test]
    fn an_invalid_address_is_refused_with_a_correction() {
        for (text, hint) in [
            ("':9100'", "write `0.0.0.0:9100` for every address of this host"),
            ("'*:9100'", "write `0.0.0.0:9100` for every address of this host"),
            ("'9100'", "write `0.0.0.0:9100` for every address of this host"),
            ("localhost:9100", "host names are not resolved: write `127.0.0.1:9100`"),
            ("127.0.0.1", "add the port: `127.0.0.1:7373`"),
            ("'::1'", "add the port: `[::1]:7373`"),
            ("http://0.0.0.0:9100/metrics", "leave out the scheme and the path: `0.0.0.0:7373`"),
            ("0.0.0.0:91000", "the maximum port is 65535"),
            (
                "node1:91",
                "host names are not resolved: write an address of this host, or `0.0.0.0:91` for all of them",
            ),
            ("/run/perf.sock", "write `unix:/run/perf.sock` for a unix socket"),
            ("here", "use the form `0.0.0.0:7373` or `[::]:7373`"),
        ] {
            let report = report(&format!("listen: {text}"));
            let text = text.trim_matches('\'');
            assert_eq!(report, format!("1:9: listen: `{text}` is not an IP address and a port; {hint}"));
        }
        assert!(report("listen: 9100").ends_with("found the number 9100; write `0.0.0.0:9100`"));
        assert!(
            report("admin: unix:here").contains("admin: `unix:here` is not the absolute path of a socket")
        );
        assert!(report("listen: []").contains("no address to serve metrics on"));
    }

    #[test]
    fn there_can_be_several_addresses_and_others_for_administrators() {
        let read = |text| good(text).listen;
        let built_in = Config::default().listen;
        assert_eq!(read("admin: 127.0.0.1:7374").all, built_in.all);
        let listen =
            read("listen: ['[::]:80', unix:/run/a.sock]\nadmin: unix:/run/b.sock\nsocket_mode: '0600'");
        let text =
            |addresses: &[ListenAddress]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(&listen.all), ["[::]:80", "unix:/run/a.sock"]);
        assert_eq!(text(&listen.admin), ["unix:/run/b.sock"]);
        assert_eq!((listen.socket_mode, built_in.socket_mode), (0o600, 0o660));
    }

    #[test]
    fn the_mode_of_sockets_is_an_octal_number() {
        for (text, problem) in [
            ("660", "write `\"0660\"`"),
            ("'0999'", "permissions"),
            ("'07777'", "permissions"),
            ("rw", "permissions"),
        ] {
            let report = report(&format!("socket_mode: {text}"));
            assert!(report.contains(problem), "{report}");
        }
    }
}
