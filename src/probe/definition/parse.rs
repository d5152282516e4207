//! Parser for probe locations.
//!
//! ```text
//! kprobe, kretprobe   [module ":"] function ["+" N]
//! uprobe, uretprobe   path ":" (symbol ["+" N] | N)
//! usdt                path ":" [provider ":"] name
//! ```
//!
//! Paths are absolute. The last colon ends the path (for `usdt` the last but one, if no slash follows it). `\:` is a colon inside the path.

use std::borrow::Cow;
use std::sync::Arc;

use super::{At, Location, LocationError, ProbeKind};
use crate::event::{Fault, Parsed, digits, fault};

/// Maximum length of the text, in bytes: `PATH_MAX` and a symbol.
const TEXT_LIMIT: usize = 8192;
/// Maximum length of a symbol name, in bytes. The kernel's symbols have at most 511.
const SYMBOL_LIMIT: usize = 1024;

impl Location {
    /// Parses the location of a probe of this kind.
    ///
    /// # Errors
    /// The first invalid position, with an example of a location of this kind.
    pub fn parse(kind: ProbeKind, text: &str) -> Result<Self, LocationError> {
        location(kind, text).map_err(|fault| fault.of(text))
    }

    /// Parses the part of a location after the path: a function, an offset, or the name of a USDT probe.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse). Positions refer to `{path}:{place}`.
    pub(super) fn in_file(kind: ProbeKind, path: &str, place: &str) -> Result<Self, LocationError> {
        Self::parse(kind, &format!("{}:{place}", escaped(path)))
    }
}

/// Returns an error for a location of a kind, with an example.
fn wrong(kind: ProbeKind, at: usize, message: &str) -> Fault {
    let example = match kind {
        ProbeKind::Kprobe => "write it as tcp_sendmsg, tcp_sendmsg+0x10 or nf_conntrack:nf_conntrack_in",
        ProbeKind::Kretprobe => "write it as tcp_sendmsg or nf_conntrack:nf_conntrack_in",
        ProbeKind::Uprobe => "write it as /usr/bin/bash:readline, …:readline+0x10 or …:0x1234",
        ProbeKind::Uretprobe => "write it as /usr/bin/bash:readline or …:0x1234",
        ProbeKind::Usdt => "write it as /usr/bin/postgres:postgresql:query__start or …:query__start",
    };
    Fault::new(at, message, example)
}

fn location(kind: ProbeKind, text: &str) -> Parsed<Location> {
    if text.len() > TEXT_LIMIT {
        return Err(wrong(kind, TEXT_LIMIT, "the text is longer than 8 KiB"));
    }
    if let Some(at) = text.find(char::is_control) {
        return Err(wrong(kind, at, "control characters are not allowed"));
    }
    match kind {
        ProbeKind::Kprobe | ProbeKind::Kretprobe => kernel(kind, text),
        ProbeKind::Uprobe | ProbeKind::Uretprobe => user(kind, text),
        ProbeKind::Usdt => usdt(text),
    }
}

fn kernel(kind: ProbeKind, text: &str) -> Parsed<Location> {
    if text.starts_with('/') {
        let remedy = "use a uprobe for a location in a file, or a kernel function such as tcp_sendmsg";
        return fault(0, "a kernel probe cannot be in a file", remedy);
    }
    let (module, at) = match text.split_once(':') {
        Some((module, _)) => (Some(module), module.len() + 1),
        None => (None, 0),
    };
    let is_module = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if module.is_some_and(|module| module.is_empty() || !module.chars().all(is_module)) {
        return Err(wrong(kind, 0, "invalid module name"));
    }
    let (function, offset) = symbol(kind, text, at)?;
    let is_symbol = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    if let Some(place) = function.find(|c| !is_symbol(c)) {
        return Err(wrong(kind, at + place, "invalid character in the function name"));
    }
    let module = module.map(Arc::from);
    Ok(Location::Kernel { module, function: function.into(), offset, returns: kind.returns() })
}

fn user(kind: ProbeKind, text: &str) -> Parsed<Location> {
    let missing = || wrong(kind, text.len(), "the function or offset in the file is missing");
    let colon = colons(text).last().ok_or_else(missing)?;
    let path = path(kind, &text[..colon])?;
    let at = colon + 1;
    let place = if text[at..].starts_with(|c: char| c.is_ascii_digit()) {
        At::Offset(number(kind, &text[at..], at)?)
    } else {
        let (name, offset) = symbol(kind, text, at)?;
        At::Symbol { name: name.into(), offset }
    };
    Ok(Location::User { path, at: place, returns: kind.returns() })
}

fn usdt(text: &str) -> Parsed<Location> {
    let kind = ProbeKind::Usdt;
    let mut last = colons(text).rev();
    let end = last.next().ok_or_else(|| wrong(kind, text.len(), "the name of the USDT probe is missing"))?;
    let before = last.next().filter(|colon| !text[*colon..end].contains('/'));
    let path = path(kind, &text[..before.unwrap_or(end)])?;
    let word = |from: usize, to: usize| {
        let word = &text[from..to];
        match word.find(|c: char| c.is_whitespace() || c == '/') {
            _ if word.is_empty() => Err(wrong(kind, from, "a name is missing")),
            Some(place) => Err(wrong(kind, from + place, "invalid character in the name of the USDT probe")),
            None => Ok(Arc::from(word)),
        }
    };
    let provider = before.map(|colon| word(colon + 1, end)).transpose()?;
    Ok(Location::Usdt { path, provider, name: word(end + 1, text.len())? })
}

/// Returns the positions of unescaped colons.
fn colons(text: &str) -> impl DoubleEndedIterator<Item = usize> {
    let mut escaped = false;
    let mut found = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        if byte == b':' && !escaped {
            found.push(at);
        }
        escaped = byte == b'\\' && !escaped;
    }
    found.into_iter()
}

fn path(kind: ProbeKind, text: &str) -> Parsed<Arc<str>> {
    if !text.starts_with('/') {
        return Err(wrong(kind, 0, "the file path is not absolute"));
    }
    let mut path = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let escaped = if c == '\\' { rest.next_if(|&next| matches!(next, ':' | '\\')) } else { None };
        path.push(escaped.unwrap_or(c));
    }
    Ok(path.into())
}

/// Escapes the colons and backslashes of a path.
pub(super) fn escaped(path: &str) -> Cow<'_, str> {
    if path.contains([':', '\\']) {
        path.replace('\\', "\\\\").replace(':', "\\:").into()
    } else {
        path.into()
    }
}

/// Parses a symbol and its offset, from `at` to the end.
fn symbol(kind: ProbeKind, text: &str, at: usize) -> Parsed<(&str, u64)> {
    let whole = &text[at..];
    let (name, offset) = match whole.rsplit_once('+') {
        Some((name, digits)) => (name, number(kind, digits, at + name.len() + 1)?),
        None => (whole, 0),
    };
    if name.is_empty() {
        return Err(wrong(kind, at, "the function name is missing"));
    }
    if name.len() > SYMBOL_LIMIT {
        return Err(wrong(kind, at, "the function name exceeds 1024 bytes"));
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        let message = "a function name cannot begin with a digit, and source lines are not supported";
        return Err(wrong(kind, at, message));
    }
    if let Some(percent) = name.find('%') {
        let remedy = if kind.returns() { "remove it" } else { "remove it, and use a return probe instead" };
        return fault(
            at + percent,
            "%return is not supported here, because the kind of the probe determines it",
            remedy,
        );
    }
    if let Some(place) = name.find(char::is_whitespace) {
        return Err(wrong(kind, at + place, "spaces are not allowed in a function name"));
    }
    if kind.returns() && offset != 0 {
        let remedy = format!("write {name} without the offset");
        return fault(at + name.len(), format!("a {kind} cannot have an offset"), remedy);
    }
    Ok((name, offset))
}

fn number(kind: ProbeKind, text: &str, at: usize) -> Parsed<u64> {
    let value = text.strip_prefix("0x").map_or_else(|| digits(text, 10), |hex| digits(hex, 16));
    value.flatten().ok_or_else(|| wrong(kind, at, "invalid offset"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::probe::argument::Argument;

    const KPROBE: ProbeKind = ProbeKind::Kprobe;
    const UPROBE: ProbeKind = ProbeKind::Uprobe;

    fn in_kernel(module: Option<&str>, function: &str, offset: u64, returns: bool) -> Location {
        Location::Kernel { module: module.map(Arc::from), function: function.into(), offset, returns }
    }

    fn at_symbol(path: &str, name: &str, offset: u64, returns: bool) -> Location {
        Location::User { path: path.into(), at: At::Symbol { name: name.into(), offset }, returns }
    }

    fn usdt_probe(path: &str, provider: Option<&str>, name: &str) -> Location {
        Location::Usdt { path: path.into(), provider: provider.map(Arc::from), name: name.into() }
    }

    #[test]
    fn the_places_of_every_kind_are_read() {
        for (kind, text, location) in [
            (KPROBE, "tcp_sendmsg", in_kernel(None, "tcp_sendmsg", 0, false)),
            (KPROBE, "tcp_sendmsg+0x10", in_kernel(None, "tcp_sendmsg", 16, false)),
            (KPROBE, "do_exit.isra.0+16", in_kernel(None, "do_exit.isra.0", 16, false)),
            (KPROBE, "snd-pcm:snd_open", in_kernel(Some("snd-pcm"), "snd_open", 0, false)),
            (ProbeKind::Kretprobe, "vfs_read", in_kernel(None, "vfs_read", 0, true)),
            (UPROBE, "/lib/libc.so.6:malloc", at_symbol("/lib/libc.so.6", "malloc", 0, false)),
            (UPROBE, "/a:b/c:f+0x4", at_symbol("/a:b/c", "f", 4, false)),
            (UPROBE, "/a\\:b:malloc@@GLIBC_2.2.5", at_symbol("/a:b", "malloc@@GLIBC_2.2.5", 0, false)),
            (UPROBE, "/my files/x:f", at_symbol("/my files/x", "f", 0, false)),
            (
                UPROBE,
                "/bin/sh:0x1234",
                Location::User { path: "/bin/sh".into(), at: At::Offset(0x1234), returns: false },
            ),
            (ProbeKind::Uretprobe, "/bin/sh:main", at_symbol("/bin/sh", "main", 0, true)),
            (
                ProbeKind::Usdt,
                "/bin/pg:postgresql:query__start",
                usdt_probe("/bin/pg", Some("postgresql"), "query__start"),
            ),
            (ProbeKind::Usdt, "/bin/pg:query__start", usdt_probe("/bin/pg", None, "query__start")),
            (ProbeKind::Usdt, "/a:b/pg:start", usdt_probe("/a:b/pg", None, "start")),
            (ProbeKind::Usdt, "/a\\:b:start", usdt_probe("/a:b", None, "start")),
        ] {
            assert_eq!(Location::parse(kind, text).unwrap(), location, "{kind} {text}");
            assert_eq!(location.kind(), kind, "{text}");
        }
    }

    #[test]
    fn what_is_no_place_is_refused_where_it_goes_wrong() {
        for (kind, text, at, message) in [
            (KPROBE, "", 0, "the function name is missing"),
            (KPROBE, "/bin/sh:main", 0, "a kernel probe cannot be in a file"),
            (KPROBE, "a b", 1, "spaces are not allowed in a function name"),
            (
                KPROBE,
                "tcp_sendmsg:3",
                12,
                "a function name cannot begin with a digit, and source lines are not supported",
            ),
            (
                KPROBE,
                "tcp_sendmsg%return",
                11,
                "%return is not supported here, because the kind of the probe determines it",
            ),
            (KPROBE, "f+x", 2, "invalid offset"),
            (KPROBE, "f+0x", 2, "invalid offset"),
            (KPROBE, "f+99999999999999999999", 2, "invalid offset"),
            (KPROBE, "f@net/ipv4/tcp.c", 1, "invalid character in the function name"),
            (KPROBE, ":f", 0, "invalid module name"),
            (KPROBE, "f\n", 1, "control characters are not allowed"),
            (ProbeKind::Kretprobe, "vfs_read+4", 8, "a kretprobe cannot have an offset"),
            (UPROBE, "/bin/sh", 7, "the function or offset in the file is missing"),
            (UPROBE, "/bin/sh\\:main", 13, "the function or offset in the file is missing"),
            (UPROBE, "sh:main", 0, "the file path is not absolute"),
            (UPROBE, "/bin/sh:", 8, "the function name is missing"),
            (UPROBE, "/bin/sh:12ab", 8, "invalid offset"),
            (ProbeKind::Uretprobe, "/bin/sh:main+1", 12, "a uretprobe cannot have an offset"),
            (ProbeKind::Usdt, "/bin/pg", 7, "the name of the USDT probe is missing"),
            (ProbeKind::Usdt, "/bin/pg::x", 8, "a name is missing"),
            (ProbeKind::Usdt, "/bin/pg:p:", 10, "a name is missing"),
            (ProbeKind::Usdt, "/bin/pg:p:a b", 11, "invalid character in the name of the USDT probe"),
        ] {
            let error = Location::parse(kind, text).unwrap_err();
            assert_eq!((error.at, &*error.message), (at, message), "{kind} {text}");
        }
        let error = Location::parse(UPROBE, "malloc").unwrap_err();
        assert!(
            error.to_string().ends_with("write it as /usr/bin/bash:readline, …:readline+0x10 or …:0x1234")
        );
    }

    #[test]
    fn an_argument_is_taken_where_it_is_known() {
        for (kind, place, argument, complaint) in [
            (KPROBE, "vfs_read", "$arg1", None),
            (KPROBE, "vfs_read", "file->f_mode", None),
            (KPROBE, "vfs_read", "$retval", Some("use a kretprobe")),
            (KPROBE, "vfs_read+4", "+8($arg1)", Some("$arg1 is available at the function's entry only")),
            (KPROBE, "vfs_read+4", "%di", None),
            (ProbeKind::Kretprobe, "vfs_read", "$retval", None),
            (ProbeKind::Kretprobe, "vfs_read", "$retval->x", None),
            (ProbeKind::Kretprobe, "vfs_read", "count", Some("count is available at the entry only")),
            (UPROBE, "/bin/sh:main", "+0($retval)", Some("use a uretprobe")),
            (UPROBE, "/bin/sh:0x1234", "$arg1", None),
            (UPROBE, "/bin/sh:main", "%di:symbol", Some("use x64 instead")),
            (ProbeKind::Usdt, "/bin/sh:x", "$arg1", None),
            (ProbeKind::Usdt, "/bin/sh:x", "$retval", Some("a USDT probe has $arg1")),
        ] {
            let location = Location::parse(kind, place).unwrap();
            let answer =
                location.check(&Argument::parse(argument).unwrap()).map_err(|error| error.to_string());
            match (complaint, answer) {
                (None, answer) => assert_eq!(answer, Ok(()), "{place} {argument}"),
                (Some(complaint), answer) => {
                    let answer = answer.unwrap_err();
                    assert!(answer.contains(complaint), "{place} {argument}: {answer}");
                }
            }
        }
    }

    fn any_location() -> impl Strategy<Value = Location> {
        let word = || "[a-z_][a-z0-9_]{0,9}";
        let path = || "/[a-z:/\\\\ .+]{0,20}";
        prop_oneof![
            (prop::option::of(word()), word(), any::<u64>(), any::<bool>()).prop_map(
                |(module, function, offset, returns)| {
                    in_kernel(module.as_deref(), &function, if returns { 0 } else { offset }, returns)
                }
            ),
            (path(), word(), any::<u64>(), any::<bool>()).prop_map(
                |(path, name, offset, returns)| at_symbol(
                    &path,
                    &name,
                    if returns { 0 } else { offset },
                    returns
                )
            ),
            (path(), any::<u64>(), any::<bool>()).prop_map(|(path, offset, returns)| Location::User {
                path: path.into(),
                at: At::Offset(offset),
                returns
            }),
            (path(), prop::option::of(word()), word()).prop_map(|(path, provider, name)| usdt_probe(
                &path,
                provider.as_deref(),
                &name
            )),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(location in any_location()) {
            prop_assert_eq!(Location::parse(location.kind(), &location.to_string()).unwrap(), location);
        }

        #[test]
        fn a_place_in_a_function_with_a_plus_sign_is_read_back(name in "[a-z+]{1,4}", offset in 0..3u64) {
            let place = at_symbol("/lib/a.so", &name, offset, false);
            prop_assert_eq!(Location::parse(UPROBE, &place.to_string()).unwrap(), place);
        }

        #[test]
        fn any_text_is_a_place_or_an_error_within_it(text in "\\PC{0,40}|[/a-z:+\\\\0-9x ]{0,40}") {
            for kind in ProbeKind::ALL {
                match Location::parse(kind, &text) {
                    Ok(location) => prop_assert_eq!(Location::parse(kind, &location.to_string()).unwrap(), location),
                    Err(error) => prop_assert!(error.at <= text.len()),
                }
            }
        }
    }
}
