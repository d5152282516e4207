//! Tracepoints beside system calls, in the words of the kernel.

use crate::cli::follow::Source;
use crate::cli::observe::Failure;
use crate::event::format::Printer;
use crate::event::{Catalog, Kind, parse};
use crate::targets::Glob;

/// Maximum number of tracepoints. Each takes a descriptor on each CPU.
const MAX: usize = 256;

/// Divides the lists of `-e` into system calls and tracepoints, which have a colon. A list that begins with `!` has calls only.
///
/// # Errors
/// If several lists select calls, and one of them inverts its selection.
pub(super) fn divide(lists: &[String]) -> Result<(Option<String>, Vec<&str>), String> {
    let (mut calls, mut events) = (Vec::new(), Vec::new());
    for list in lists {
        let (found, named): (Vec<&str>, Vec<&str>) = match list.starts_with('!') {
            true => (Vec::new(), vec![list]),
            false => list.split(',').map(str::trim).partition(|word| word.contains(':')),
        };
        events.extend(found);
        if !named.is_empty() {
            calls.push(named.join(","));
        }
    }
    if calls.len() > 1 && calls.iter().any(|list| list.starts_with('!')) {
        return Err(
            "-e: ! selects all other calls, so it cannot be combined with another list of calls".into()
        );
    }
    Ok(((!calls.is_empty()).then(|| calls.join(",")), events))
}

/// Finds the tracepoints of these names and patterns.
///
/// # Errors
/// If a name does not exist on this host, or a pattern matches nothing or too much.
pub(super) fn find(
    words: &[&str],
    filter: Option<&str>,
    catalog: &Catalog,
) -> Result<Vec<(Source, Printer)>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for word in words {
        let usage = |reason: String| Failure::Usage(anyhow::anyhow!("-e {word:?}: {reason}"));
        if parse(word).is_ok() && !word.contains(['*', '?', '[']) {
            names.push((*word).to_owned());
            continue;
        }
        let glob = Glob::new(word).map_err(|error| usage(error.to_string()))?;
        let listed = catalog.events().filter(|event| event.kind == Kind::Tracepoint);
        let before = names.len();
        names.extend(listed.map(|event| event.name.to_string()).filter(|name| glob.matches_name(name)));
        if names.len() == before {
            return Err(usage(
                "no tracepoint of this host matches; perf-exporter list tracepoint has all".into(),
            ));
        }
    }
    names.sort_unstable();
    names.dedup();
    if names.len() > MAX {
        let reason = format!("-e: {} tracepoints match, at most {MAX} can be traced", names.len());
        return Err(Failure::Usage(anyhow::anyhow!(reason)));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sources = Source::find_all(&names, filter, catalog)?;
    Ok(sources
        .into_iter()
        .map(|source| {
            let printer = source.format.printer();
            (source, printer)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(lists: &[&str]) -> Result<(Option<String>, Vec<String>), String> {
        let lists: Vec<String> = lists.iter().map(ToString::to_string).collect();
        divide(&lists).map(|(calls, events)| (calls, events.into_iter().map(str::to_owned).collect()))
    }

    #[test]
    fn words_with_a_colon_are_tracepoints() {
        let events = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (lists, calls, found) in [
            (&["open*,sched:sched_switch"][..], Some("open*"), events(&["sched:sched_switch"])),
            (&["kmem:*"], None, events(&["kmem:*"])),
            (&["read", "write", "a:b"], Some("read,write"), events(&["a:b"])),
            (&["!read,write", "a:b"], Some("!read,write"), events(&["a:b"])),
            (&[], None, events(&[])),
        ] {
            assert_eq!(divided(lists).unwrap(), (calls.map(str::to_owned), found), "{lists:?}");
        }
        assert!(divided(&["!read", "write"]).unwrap_err().contains("cannot be combined"));
    }
}
