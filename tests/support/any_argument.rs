//! Invariants for arbitrary text parsed as a probe argument, as the arguments of a USDT probe, and as a probe location. Called by a fuzz
//! target and by a test that keeps the target working.

use perf_exporter::probe::argument::{Arch, Argument, Fetch, Site, fetch_text, usdt};
use perf_exporter::probe::{Location, ProbeKind};

/// Checks that a parsed argument is written back as equivalent text, and that the position of each error lies within the text.
pub(crate) fn holds(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let markers = usdt(text, Arch::X86_64);
    match Argument::parse(text) {
        Ok(argument) => argument_holds(&argument, &markers),
        Err(error) => assert!(error.at <= text.len() && format!("{error:#}").lines().count() == 3),
    }
    for machine in [Arch::X86_64, Arch::Aarch64, Arch::Other] {
        for argument in usdt(text, machine).into_iter().flatten() {
            // Any argument of a USDT probe can be written in the kernel's syntax, if it is short enough.
            let told = fetch_text(&argument, Site::User, machine);
            assert!(told.is_ok_and(|told| Argument::parse(&told).is_ok()), "{argument:?}");
        }
    }
    for kind in ProbeKind::ALL {
        match Location::parse(kind, text) {
            Ok(location) => assert_eq!(Location::parse(kind, &location.to_string()), Ok(location)),
            Err(error) => assert!(error.at <= text.len()),
        }
    }
}

fn argument_holds(
    argument: &Argument,
    markers: &[Result<Argument, perf_exporter::probe::argument::ArgumentError>],
) {
    let again = Argument::parse(&argument.to_string()).expect("a written argument can be parsed");
    assert_eq!((&again.name, &again.fetch, again.kind), (&argument.name, &argument.fetch, argument.kind));
    for (site, machine) in
        [(Site::Kernel, Arch::X86_64), (Site::User, Arch::X86_64), (Site::User, Arch::Aarch64)]
    {
        if let Ok(told) = fetch_text(argument, site, machine) {
            assert!(told.len() <= 32 + 1 + 63 && !told.contains(char::is_whitespace));
            assert!(Argument::parse(&told).is_ok(), "{told}");
        }
    }
    if let Ok(at_usdt_probe) = argument.at_usdt_probe(markers) {
        assert!(!is_numbered(&at_usdt_probe.fetch), "{at_usdt_probe:?}");
    }
}

/// Reports whether a fetch is based on an argument by its number. The name of a symbol may contain `$arg`, too.
fn is_numbered(fetch: &Fetch) -> bool {
    match fetch {
        Fetch::Argument(_) => true,
        Fetch::Deref { of, .. } => is_numbered(of),
        _ => false,
    }
}
