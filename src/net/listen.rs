//! Addresses to listen on.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Prefix of the path of a unix socket.
const UNIX: &str = "unix:";

/// Maximum length of the path of a unix socket, in bytes (`sockaddr_un`, without the NUL).
const MAX_PATH: usize = 107;

/// Address to listen on. As text `127.0.0.1:7373`, `[::]:7373` or `unix:/run/perf-exporter/http.sock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// IP address and port; port 0 selects a free one.
    Tcp(SocketAddr),
    /// Absolute path of a unix socket.
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(path) = text.strip_prefix(UNIX) else {
            return text.parse().map(Self::Tcp).map_err(|_| "not an IP address and a port");
        };
        match path {
            _ if !path.starts_with('/') || path.ends_with('/') => {
                Err("not the absolute path of a socket, such as `unix:/run/perf-exporter/http.sock`")
            }
            _ if path.len() > MAX_PATH => Err("longer than the 107 bytes that the path of a socket may have"),
            _ if path.contains('\0') => Err("not a path: it contains a NUL"),
            _ => Ok(Self::Unix(path.into())),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

/// Sockets of the HTTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Addresses for all clients.
    pub all: Vec<ListenAddress>,
    /// Addresses for administrators. Their clients have the rights of clients on this machine.
    pub admin: Vec<ListenAddress>,
    /// Permissions of unix sockets.
    pub socket_mode: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["127.0.0.1:7373", "[::1]:0", "unix:/run/perf-exporter/http.sock"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        let long = format!("unix:/{}", "s".repeat(MAX_PATH));
        for (text, reason) in [
            ("localhost:7373", "IP address"),
            ("unix:run.sock", "absolute path"),
            ("unix:/run/", "absolute path"),
            ("unix:", "absolute path"),
            ("unix:/a\0b", "NUL"),
            (&long, "107 bytes"),
        ] {
            let refused = text.parse::<ListenAddress>().unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        assert!(long[..long.len() - 1].parse::<ListenAddress>().is_ok());
    }
}
