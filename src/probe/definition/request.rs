//! Probe definitions in the syntax of `perf probe --add`, from the command line.
//!
//! ```text
//! request = [[group ":"] event "="] place {argument}
//! place   = function ["+" N | "%return"] | N | "%" [provider ":"] name
//! ```
//!
//! The grammar is that of `perf-probe(1)`, without source lines. The file is specified separately.

use std::sync::Arc;

use super::{At, Definition, Location, LocationError, ProbeKind, Within};
use crate::event::{ParseErrors, Parsed, fault, is_identifier};
use crate::files::Root;
use crate::probe::argument::{Argument, Site};

/// Maximum length of the text, in bytes.
const TEXT_LIMIT: usize = 16 << 10;
/// Maximum length of an event name, in bytes (`MAX_EVENT_NAME_LEN` of the kernel, without its NUL).
const NAME_LIMIT: usize = 63;
/// Prefix that perf adds to the provider of a USDT probe.
const USDT_PREFIX: &str = "sdt_";

/// A requested probe and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The group, if specified.
    pub group: Option<Arc<str>>,
    /// The event name: as given, or else derived from the function or the USDT probe.
    pub event: Arc<str>,
    /// The probe.
    pub definition: Definition,
}

impl Request {
    /// Parses a request for a probe in a file, by its absolute path in a [`Root`], or in the kernel.
    ///
    /// # Errors
    /// A position of the location that does not conform to the grammar, or else each argument that does not, or is not available there.
    pub fn parse(text: &str, file: Option<(&str, &Root)>) -> Result<Self, ParseErrors> {
        let (name, place, arguments) = words(text).map_err(|fault| fault.of(text))?;
        let location = location(place, file.map(|(path, _)| path))?;
        let arguments = arguments.split_ascii_whitespace().zip(1..);
        let arguments = ParseErrors::collect(arguments.map(|(text, number)| {
            let argument = Argument::parse_nth(text, number)?;
            location.check(&argument)?;
            Ok::<_, LocationError>(argument)
        }))?;
        let (group, event) = match name {
            Some((group, event)) => (group.map(Arc::from), event.into()),
            None => (None, event_of(&location).into()),
        };
        let within = Within::Root(file.map_or(Root::Host, |(_, root)| root.clone()));
        Ok(Self { group, event, definition: Definition { location, within, arguments } })
    }
}

/// Group and event.
type Name<'t> = (Option<&'t str>, &'t str);

/// Splits a request into the name, the location and the arguments.
fn words(text: &str) -> Parsed<(Option<Name<'_>>, &str, &str)> {
    if text.len() > TEXT_LIMIT {
        return fault(TEXT_LIMIT, "the text is longer than 16 KiB", "use fewer arguments");
    }
    let start = text.len() - text.trim_start().len();
    let (first, arguments) = text[start..].split_once(char::is_whitespace).unwrap_or((&text[start..], ""));
    let (name, place) = match first.split_once('=') {
        // In a lazy pattern of perf, the `=` is part of the source text.
        Some((name, place)) if !name.contains(';') => (Some((name, start)), place),
        _ => (None, first),
    };
    if place.is_empty() {
        let remedy = "write it as 'FUNCTION ARGUMENT…', as in 'malloc size=%di:u64'";
        return fault(start + first.len(), "the probe location is missing", remedy);
    }
    let name = name.map(|(name, at)| split_name(name, at)).transpose()?;
    Ok((name, place, arguments))
}

fn split_name(name: &str, at: usize) -> Parsed<Name<'_>> {
    let (group, event) = match name.split_once(':') {
        Some((group, event)) => (Some(group), event),
        None => (None, name),
    };
    let is_name = |name: &str| name.len() <= NAME_LIMIT && is_identifier(name);
    match group.into_iter().chain([event]).find(|name| !is_name(name)) {
        Some(wrong) => fault(
            at,
            format!("{wrong:?} is not a valid event name"),
            format!("use letters, digits and _, no leading digit, and at most {NAME_LIMIT} bytes"),
        ),
        None => Ok((group, event)),
    }
}

fn location(place: &str, file: Option<&str>) -> Result<Location, LocationError> {
    let refuse = |message: &str, remedy: &str| fault(0, message, remedy).map_err(|fault| fault.of(place));
    if let Some(usdt_probe) = place.strip_prefix('%') {
        let Some(path) = file else {
            return refuse("a USDT probe requires a program", "specify the file: -x /usr/bin/postgres");
        };
        return Location::in_file(
            ProbeKind::Usdt,
            path,
            usdt_probe.strip_prefix(USDT_PREFIX).unwrap_or(usdt_probe),
        );
    }
    let (function, returns) = match place.strip_suffix("%return") {
        Some(function) => (function, true),
        None => (place, false),
    };
    let lines = "source lines are not supported; use FUNCTION+OFFSET with an offset in bytes";
    if function.contains(';') || function.rsplit_once(':').is_some_and(|(_, line)| is_line(line)) {
        return refuse("this is a source line", lines);
    }
    let Some(path) = file else {
        return Location::parse(ProbeKind::at(Site::Kernel, returns), function);
    };
    if function.contains(':') {
        return refuse(
            "function names with a colon are not supported",
            "use the function's file offset; write a USDT probe as %PROVIDER:NAME",
        );
    }
    // perf requires the @ of a version to be escaped, because it expects a source file after an @.
    Location::in_file(ProbeKind::at(Site::User, returns), path, &function.replace("\\@", "@"))
}

fn is_line(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the event name that perf generates for a location.
fn event_of(location: &Location) -> String {
    let returned = if location.kind().returns() { "__return" } else { "" };
    match location {
        Location::Kernel { function: name, .. } | Location::User { at: At::Symbol { name, .. }, .. } => {
            // Without the version and the compiler's suffix.
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

    fn read(text: &str, file: Option<&str>) -> Result<Request, ParseErrors> {
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
            ("", None, "the probe location is missing"),
            ("x=", None, "the probe location is missing"),
            ("1x=f", None, "is not a valid event name"),
            ("a:b:c=f", None, "is not a valid event name"),
            ("schedule:12", None, "this is a source line"),
            ("schedule;rq=*", None, "this is a source line"),
            ("main:12", Some("/bin/sh"), "this is a source line"),
            ("a:b", Some("/bin/sh"), "function names with a colon are not supported"),
            ("%x:y", None, "specify the file: -x"),
            ("/bin/sh", None, "a uprobe"),
            ("f+8%return", None, "cannot have an offset"),
            ("f $retval", None, "use a kretprobe"),
            ("f%return size", None, "is available at the entry only"),
            ("f size=", None, "missing"),
        ] {
            let error = read(text, file).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn each_wrong_argument_is_an_error() {
        let error = read("f a=%di b= c=+0(%si:u8 d=%dx", Some("/bin/sh")).unwrap_err();
        let wrong: Vec<&str> = error.0.iter().map(|error| &*error.text).collect();
        assert_eq!(wrong, ["b=", "c=+0(%si:u8"], "{error}");
        assert_eq!(error.to_string().matches("; ").count(), 1, "{error}");
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
