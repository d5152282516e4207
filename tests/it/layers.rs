//! Compares the architecture in ARCHITECTURE.md with the code: allowed imports between modules, and the files that may contain `unsafe`.

mod imports;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use perf_exporter::host;

/// The modules in order of dependency: each imports only from modules before it.
const ORDER: [&str; 44] = [
    "error",
    "clean",
    "named_enum",
    "lock",
    "durable",
    "span",
    "host",
    "clock",
    "budget",
    "net",
    "health",
    "metrics",
    "series",
    "history",
    "anomaly",
    "incident",
    "event",
    "files",
    "sched",
    "syscall",
    "targets",
    "probe",
    "config",
    "deep",
    "container",
    "plan",
    "sys",
    "ring",
    "register",
    "attribute",
    "tracepoint",
    "counter",
    "stack",
    "symbol",
    "profile",
    "perf_data",
    "recording",
    "annotate",
    "report",
    "status",
    "export",
    "app",
    "cli",
    "main",
];

/// Returns every source file below `src`, with its path relative to `src`.
pub(crate) fn sources() -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for name in host::list(dir).unwrap() {
            let path = dir.join(name);
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    walk(&root, &mut found);
    found.sort();
    let relative = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_owned();
    found.iter().map(|path| (relative(path), host::read_text(path).unwrap())).collect()
}

/// Returns the top-level module that a file belongs to.
fn module(path: &Path) -> String {
    let first = path.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// Returns the code of a file without comments and without its tests, which may import anything.
fn code(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let lines = lines.collect::<Vec<_>>().join("\n");
    let (mut code, mut rest) = (String::new(), &lines[..]);
    while let Some((before, test)) = rest.split_once("#[cfg(test)]") {
        code.push_str(before);
        rest = behind_item(test);
    }
    code + rest
}

/// Returns the text after the item at the beginning of `text`.
fn behind_item(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(c, '}' | ';') {
            return &text[at + 1..];
        }
    }
    ""
}

/// Returns the top-level modules that `code` names through `crate::` or the library's name, also in braces.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for prefix in ["crate::", "perf_exporter::"] {
        for rest in code.split(prefix).skip(1) {
            let list = match rest.strip_prefix('{') {
                Some(braced) => braced.split('}').next().unwrap(),
                None => rest,
            };
            let names = if rest.starts_with('{') { list.split(',').collect() } else { vec![list] };
            for name in names {
                let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                found.push(name.trim().split(end).next().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn a_module_imports_only_from_those_before_it() {
    let place: BTreeMap<&str, usize> = ORDER.iter().enumerate().map(|(place, &name)| (name, place)).collect();
    let mut seen = 0;
    for (path, text) in sources() {
        let own = module(&path);
        if own == "lib" {
            continue;
        }
        let here = *place.get(&*own).unwrap_or_else(|| panic!("{own} is missing in ORDER"));
        for import in imports(&code(&text)) {
            let Some(&there) = place.get(&*import) else { continue };
            assert!(
                there <= here,
                "{}: {own} must not import {import}, which is after it in ORDER",
                path.display()
            );
            seen += usize::from(there < here);
        }
    }
    assert!(seen > 50, "this test found no imports: its parser does not match the code");
}

#[test]
fn what_pushes_knows_formats_by_their_list_alone() {
    let (mut machinery, mut lists) = (0, 0);
    for (path, text) in sources() {
        let path = path.to_str().unwrap();
        if !path.starts_with("export/push/") {
            continue;
        }
        // Every format receives the resource and the log, which are types of OTLP.
        let formats =
            if path == "export/push/context.rs" { &["remote_write"][..] } else { &["otlp", "remote_write"] };
        let named = formats.iter().filter(|format| code(&text).contains(**format)).count();
        if path == "export/push/formats.rs" {
            lists += named;
        } else {
            assert_eq!(named, 0, "{path} must not name a format");
            machinery += 1;
        }
    }
    assert!(machinery > 5 && lists == 2, "this test found no files: its path does not match the code");
}

#[test]
fn unsafe_stands_in_sys_alone_and_each_block_is_argued() {
    let mut blocks = 0;
    for (path, text) in sources() {
        let code = code(&text);
        let unsafe_code =
            code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl");
        assert!(!unsafe_code || module(&path) == "sys", "{}: unsafe outside of sys", path.display());
        blocks += text.matches("unsafe {").count();
    }
    assert!(blocks > 0, "this test found no unsafe block: its parser does not match the code");
}

#[test]
fn no_source_file_is_longer_than_a_reader_can_hold() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= 700, "{}: {lines} lines; split it by topic", path.display());
    }
}
