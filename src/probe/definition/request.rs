//! A probe as `perf probe --add` has it, from a person at a shell.
//!
//! ```text
//! request = [[group ":"] event "="] place {argument}
//! place   = function ["+" N | "%return"] | N | "%" [provider ":"] marker
//! ```
//!
//! The grammar is that of `perf-probe(1)`, without lines of the source. In which file it is, is said beside it.

use std::sync::Arc;

use super::{At, Definition, Location, LocationError, ProbeKind};
use crate::event::{Parsed, fault};
use crate::files::Root;
use crate::probe::argument::Argument;

/// The longest text, in bytes.
const TEXT_LIMIT: usize = 16 << 10;
/// The longest name of an event, in bytes (`MAX_EVENT_NAME_LEN` of the kernel, without its NUL).
const NAME_LIMIT: usize = 63;
/// What perf writes in front of the provider of a marker.
const MARKERS: &str = "sdt_";

/// A probe that somebody asks for, and what it is to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The group, if one is named.
    pub group: Option<Arc<str>>,
    /// The event: as given, else after the function or the marker.
    pub event: Arc<str>,
    /// The probe.
    pub definition: Definition,
}

impl Request {
    /// Reads a request for a probe in a file, by its absolute path in a [`Root`], or in the kernel.
    ///
    /// # Errors
    /// The first place that is not in the language, or an argument that is not known there.
    pub fn parse(text: &str, file: Option<(&str, &Root)>) -> Result<Self, LocationError> {
        let (name, place, arguments) = words(text).map_err(|fault| fault.of(text))?;
        let location = location(place, file.map(|(path, _)| path))?;
        let arguments = arguments.split_ascii_whitespace().zip(1..);
        let arguments = arguments.map(|(text, number)| {
            let argument = Argument::parse_nth(text, number)?;
            location.check(&argument)?;
            Ok(argument)
        });
        let arguments = arguments.collect::<Result<_, LocationError>>()?;
        let (group, event) = match name {
            Some((group, event)) => (group.map(Arc::from), event.into()),
            None => (None, event_of(&location).into()),
        };
        let root = file.map_or(Root::Host, |(_, root)| root.clone());
        Ok(Self { group, event, definition: Definition { location, root, arguments } })
    }
}

/// The group and the event.
type Name<'t> = (Option<&'t str>, &'t str);

/// The name, the place and the arguments.
fn words(text: &str) -> Parsed<(Option<Name<'_>>, &str, &str)> {
    if text.len() > TEXT_LIMIT {
        return fault(TEXT_LIMIT, "the text is longer than 16 KiB", "take fewer arguments");
    }
    let start = text.len() - text.trim_start().len();
    let (first, arguments) = text[start..].split_once(char::is_whitespace).unwrap_or((&text[start..], ""));
    let (name, place) = match first.split_once('=') {
        // In a lazy pattern of perf it is a part of the source.
        Some((name, place)) if !name.contains(';') => (Some((name, start)), place),
        _ => (None, first),
    };
    if place.is_empty() {
        let remedy = "write it as 'FUNCTION ARGUMENT…', as in 'malloc size=%di:u64'";
        return fault(start + first.len(), "what to probe is missing", remedy);
    }
    let name = name.map(|(name, at)| split_name(name, at)).transpose()?;
    Ok((name, place, arguments))
}

fn split_name(name: &str, at: usize) -> Parsed<Name<'_>> {
    let (group, event) = match name.split_once(':') {
        Some((group, event)) => (Some(group), event),
        None => (None, name),
    };
    let is_name = |name: &str| {
        name.len() <= NAME_LIMIT
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match group.into_iter().chain([event]).find(|name| !is_name(name)) {
        Some(wrong) => fault(
            at,
            format!("{wrong:?} cannot be the name of an event"),
            format!("those are letters, digits and _, no digit first, and at most {NAME_LIMIT}"),
        ),
        None => Ok((group, event)),
    }
}

fn location(place: &str, file: Option<&str>) -> Result<Location, LocationError> {
    let refuse = |message: &str, remedy: &str| fault(0, message, remedy).map_err(|fault| fault.of(place));
    if let Some(marker) = place.strip_prefix('%') {
        let Some(path) = file else {
            return refuse("a marker is in a program", "name the file: -x /usr/bin/postgres");
        };
        return Location::in_file(ProbeKind::Usdt, path, marker.strip_prefix(MARKERS).unwrap_or(marker));
    }
    let (function, returns) = match place.strip_suffix("%return") {
        Some(function) => (function, true),
        None => (place, false),
    };
    let lines =
        "lines of the source are not known here; FUNCTION+OFFSET is so many bytes behind its beginning";
    if function.contains(';') || function.rsplit_once(':').is_some_and(|(_, line)| is_line(line)) {
        return refuse("this is a line of the source", lines);
    }
    let Some(path) = file else {
        let kind = if returns { ProbeKind::Kretprobe } else { ProbeKind::Kprobe };
        return Location::parse(kind, function);
    };
    if function.contains(':') {
        return refuse(
            "a name of a function with a colon",
            "name its offset in the file; a marker is %PROVIDER:NAME",
        );
    }
    let kind = if returns { ProbeKind::Uretprobe } else { ProbeKind::Uprobe };
    // perf wants the @ of a version escaped, for it has files behind one.
    Location::in_file(kind, path, &function.replace("\\@", "@"))
}

fn is_line(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// What perf calls the event of a place.
fn event_of(location: &Location) -> String {
    let returned = if location.kind().returns() { "__return" } else { "" };
    match location {
        Location::Kernel { function: name, .. } | Location::User { at: At::Symbol { name, .. }, .. } => {
            // Without the version, and what compilers put behind a name.
            let end = name.find(['@', '.']).filter(|&end| end > 0).unwrap_or(name.len());
            format!("{}{returned}", &name[..end])
        }
        Location::User { at: At::Offset(offset), .. } => format!("abs_{offset:x}{returned}"),
        Location::Usdt { name, .. } => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, file: Option<&str>) -> Result<Request, LocationError> {
        Request::parse(text, file.map(|path| (path, &Root::Host)))
    }

    #[test]
    fn what_perf_probe_takes_is_read() {
        const C: Option<&str> = Some("/lib/libc.so.6");
        for (text, file, event, kind, place, arguments) in [
            ("tcp_sendmsg", None, "tcp_sendmsg", ProbeKind::Kprobe, "tcp_sendmsg", &[][..]),
            (
                "  tcp_sendmsg+0x10 %di ",
                None,
                "tcp_sendmsg",
                ProbeKind::Kprobe,
                "tcp_sendmsg+0x10",
                &["arg1=%di"],
            ),
            ("x=vfs_read%return $retval", None, "x", ProbeKind::Kretprobe, "vfs_read", &["arg1=$retval"]),
            ("f.isra.0%return", None, "f__return", ProbeKind::Kretprobe, "f.isra.0", &[]),
            ("nf_nat:f", None, "f", ProbeKind::Kprobe, "nf_nat:f", &[]),
            ("malloc s=%di:u64", C, "malloc", ProbeKind::Uprobe, "/lib/libc.so.6:malloc", &["s=%di:u64"]),
            ("malloc\\@G_2", C, "malloc", ProbeKind::Uprobe, "/lib/libc.so.6:malloc@G_2", &[]),
            ("0x1234", C, "abs_1234", ProbeKind::Uprobe, "/lib/libc.so.6:0x1234", &[]),
            ("%setjmp", C, "setjmp", ProbeKind::Usdt, "/lib/libc.so.6:setjmp", &[]),
            (
                "%sdt_libc:setjmp $arg1",
                C,
                "setjmp",
                ProbeKind::Usdt,
                "/lib/libc.so.6:libc:setjmp",
                &["arg1=$arg1"],
            ),
            ("%libc:setjmp", C, "setjmp", ProbeKind::Usdt, "/lib/libc.so.6:libc:setjmp", &[]),
            ("f", Some("/a:b"), "f", ProbeKind::Uprobe, "/a\\:b:f", &[]),
        ] {
            let request = read(text, file).unwrap_or_else(|error| panic!("{text}: {error}"));
            let location = &request.definition.location;
            assert_eq!(
                (&*request.event, location.kind(), &*location.to_string()),
                (event, kind, place),
                "{text}"
            );
            let taken: Vec<String> = request.definition.arguments.iter().map(ToString::to_string).collect();
            assert_eq!(taken, arguments, "{text}");
        }
        let named = read("perf_exporter:x=f", None).unwrap();
        assert_eq!((named.group.as_deref(), &*named.event), (Some("perf_exporter"), "x"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_write() {
        for (text, file, told) in [
            ("", None, "what to probe is missing"),
            ("x=", None, "what to probe is missing"),
            ("1x=f", None, "cannot be the name of an event"),
            ("a:b:c=f", None, "cannot be the name of an event"),
            ("schedule:12", None, "this is a line of the source"),
            ("schedule;rq=*", None, "this is a line of the source"),
            ("main:12", Some("/bin/sh"), "this is a line of the source"),
            ("a:b", Some("/bin/sh"), "a name of a function with a colon"),
            ("%x:y", None, "name the file: -x"),
            ("/bin/sh", None, "a uprobe"),
            ("f+8%return", None, "has no offset"),
            ("f $retval", None, "make it a kretprobe"),
            ("f%return size", None, "is known at the entry only"),
            ("f size=", None, "missing"),
        ] {
            let error = read(text, file).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}|[a-z%=:+@ $0-9]{0,40}", in_file in any::<bool>()) {
            if let Ok(request) = read(&text, in_file.then_some("/bin/sh")) {
                prop_assert!(!request.event.is_empty());
            }
        }
    }
}
