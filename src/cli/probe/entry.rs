//! Entries of the section `probes`, as written in the YAML.

use std::borrow::Cow;
use std::fmt;

use crate::metrics::fit_name;
use crate::probe::{Definition, Location, Root, Within};

/// An entry on one line: `malloc: {uprobe: "/usr/lib/libc.so.6:malloc", arguments: ["size=%di:u64"], labels: [size]}`.
pub(super) struct Entry<'e> {
    name: String,
    definition: &'e Definition,
    /// Outputs of the entry in YAML, such as labels or a histogram. Empty to count hits only.
    then: String,
}

impl<'e> Entry<'e> {
    /// Creates an entry whose name is derived from `name`.
    pub(super) fn new(name: &str, definition: &'e Definition, then: impl Into<String>) -> Self {
        Self { name: entry_name(name), definition, then: then.into() }
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Definition { location, within, arguments } = self.definition;
        let place = location.to_string();
        write!(f, "{}: {{{}: {}", self.name, location.kind(), quoted(&place))?;
        match within {
            // The command line names one root.
            Within::Root(Root::Host) | Within::Containers(_) => {}
            Within::Root(Root::Process(pid)) => write!(f, ", in: {{pid: {pid}}}")?,
            Within::Root(Root::Cgroup(cgroup)) => write!(f, ", in: {{cgroup: {}}}", quoted(cgroup))?,
        }
        if !arguments.is_empty() {
            let arguments: Vec<_> = arguments.iter().map(|argument| quoted(&argument.text)).collect();
            write!(f, ", arguments: [{}]", arguments.join(", "))?;
        }
        if !self.then.is_empty() {
            write!(f, ", {}", self.then)?;
        }
        f.write_str("}")
    }
}

/// Converts a name to a valid entry name.
pub(in crate::cli) fn entry_name(name: &str) -> String {
    let name = fit_name(name);
    let name = name.trim_start_matches('_');
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        true => format!("_{name}"),
        false => name.to_owned(),
    }
}

/// Returns a text as a YAML scalar for a flow mapping. Texts that are not plain words are quoted.
pub(in crate::cli) fn quoted(text: &str) -> Cow<'_, str> {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let first = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let means_more = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"]
        .iter()
        .any(|word| word.eq_ignore_ascii_case(text));
    if is_word && first && !means_more {
        text.into()
    } else {
        serde_json::Value::from(text).to_string().into()
    }
}

/// Reports whether a location survives printing and parsing. Names that contain separators do not.
pub(super) fn can_be_written(location: &Location) -> bool {
    Location::parse(location.kind(), &location.to_string()).is_ok_and(|read| read == *location)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::config;
    use crate::probe::argument::Argument;
    use crate::probe::{At, ProbeKind};

    fn at(path: &str, name: &str, root: Root, arguments: &[&str]) -> Definition {
        let at = At::Symbol { name: name.into(), offset: 0 };
        let location = Location::User { path: path.into(), at, returns: false };
        let arguments = arguments.iter().map(|text| Argument::parse(text).unwrap()).collect();
        Definition { location, within: Within::Root(root), arguments }
    }

    #[test]
    fn an_entry_is_one_line_of_yaml() {
        let malloc = at("/lib/libc.so.6", "malloc", Root::Host, &["size=%di:u64"]);
        assert_eq!(
            Entry::new("malloc", &malloc, "labels: [size]").to_string(),
            r#"malloc: {uprobe: "/lib/libc.so.6:malloc", arguments: ["size=%di:u64"], labels: [size]}"#
        );
        let inside = at("/bin/a:b", "main", Root::Cgroup("/a b".into()), &[]);
        assert_eq!(
            Entry::new("__main.cold", &inside, "").to_string(),
            r#"main_cold: {uprobe: "/bin/a\\:b:main", in: {cgroup: "/a b"}}"#
        );
        let location = Location::parse(ProbeKind::Kprobe, "do_exit").unwrap();
        let kernel = Definition { location, within: Within::default(), arguments: Vec::new() };
        assert_eq!(Entry::new("exit_count", &kernel, "").to_string(), "exit_count_events: {kprobe: do_exit}");
    }

    proptest! {
        #[test]
        fn an_entry_is_read_as_what_it_is_about(
            path in "/[ -~é]{1,20}", name in "[!-~é]{1,20}", called in "\\PC{0,12}", pid in prop::option::of(1u32..4_000_000)
        ) {
            let root = pid.map_or(Root::Host, Root::Process);
            let definition = at(&path, &name, root, &["a=+8(%di):string"]);
            prop_assume!(can_be_written(&definition.location));
            let yaml = format!("probes:\n  {}\n", Entry::new(&called, &definition, "labels: [a]"));
            let (config, warnings) = config::load(yaml.as_bytes(), "f").map_err(|error| TestCaseError::fail(format!("{yaml}{error:?}")))?;
            prop_assert_eq!(warnings.len(), 0);
            let read: Vec<_> = config.traced.iter().filter_map(|traced| match &traced.source {
                config::traced::EventSource::Probe(definition) => Some(definition),
                _ => None,
            }).collect();
            prop_assert_eq!(read, vec![&definition]);
        }
    }

    #[test]
    fn words_that_yaml_takes_for_something_else_are_quoted() {
        for word in ["on", "Null", "1e5", "", "a b", "a:b", "-"] {
            assert!(quoted(word).starts_with('"'), "{word}");
        }
        assert_eq!(quoted("tcp_sendmsg"), "tcp_sendmsg");
        let names: Vec<Arc<str>> =
            ["1x", "_", "é", "__x64_sys_read"].map(|name| entry_name(name).into()).to_vec();
        assert_eq!(names, ["_1x", "_", "_", "x64_sys_read"].map(Arc::from));
    }
}
