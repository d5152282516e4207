//! Trees of `proc` and `sys`, made from the descriptions below `tests/data/hosts/machines`. Their `README.md` has the format.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use perf_exporter::host::{CpuSet, Roots, list, read_text};
use tempfile::TempDir;

/// Extension of the description of a machine.
const MACHINE: &str = "host";
/// Extension of a part that several descriptions include.
const PART: &str = "inc";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hosts/machines")
}

/// Returns the names of all described machines, in alphabetical order.
pub(crate) fn names() -> Vec<String> {
    let files = list(&directory()).unwrap();
    let machine = |file: &String| Some(file.strip_suffix(MACHINE)?.strip_suffix('.')?.to_owned());
    let mut names: Vec<String> = files.iter().filter_map(machine).collect();
    names.sort();
    names
}

/// Makes the tree of a machine. It is removed when the directory is dropped.
pub(crate) fn tree(machine: &str) -> (TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), described(machine));
    let roots = Roots::under(dir.path());
    (dir, roots)
}

/// Returns the tree of a machine for reading. It is made once for each content of its description, and kept with the build.
pub(crate) fn shared_tree(machine: &str) -> Roots {
    let files = described(machine);
    let mut hash = DefaultHasher::new();
    files.hash(&mut hash);
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hosts");
    let tree = all.join(format!("{machine}-{:x}", hash.finish()));
    if !tree.exists() {
        fs::create_dir_all(&all).unwrap();
        let dir = tempfile::tempdir_in(&all).unwrap();
        write(dir.path(), files);
        // Another test may have made the same tree meanwhile.
        assert!(fs::rename(dir.path(), &tree).is_ok() || tree.exists(), "{}", tree.display());
    }
    Roots::under(&tree)
}

/// Returns the content of each file of a machine, by path.
fn described(machine: &str) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    read(&format!("{machine}.{MACHINE}"), "", &mut files);
    files
}

fn write(dir: &Path, files: BTreeMap<String, String>) {
    for (path, text) in files {
        let path = dir.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Adds the files of a description, or of a part that is included below `prefix`.
fn read(file: &str, prefix: &str, files: &mut BTreeMap<String, String>) {
    let text = read_text(&directory().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut prefix = prefix.to_owned();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(part) = line.strip_prefix('@') {
            read(&format!("{part}.{PART}"), &prefix, files);
        } else if let Some(path) = line.strip_prefix('[') {
            path.strip_suffix(']').unwrap_or_else(|| panic!("{file}: {line}")).clone_into(&mut prefix);
        } else {
            let (path, text, appends) = assignment(line).unwrap_or_else(|| panic!("{file}: {line}"));
            let path = if path.starts_with('/') { path.to_owned() } else { format!("{prefix}/{path}") };
            for (path, text) in expanded(&path, text) {
                let content = files.entry(path).or_default();
                if !appends {
                    content.clear();
                }
                content.push_str(&text);
                content.push('\n');
            }
        }
    }
}

/// Splits `PATH = TEXT` and `PATH += TEXT`.
fn assignment(line: &str) -> Option<(&str, &str, bool)> {
    let (path, text) = line.split_once("= ")?;
    let path = path.trim_end();
    Some(path.strip_suffix(" +").map_or((path, text, false), |path| (path, text, true)))
}

/// Returns a file for each number of `{LIST}` in the path. `{+N}` in the text is N plus the position in the list.
fn expanded(path: &str, text: &str) -> Vec<(String, String)> {
    let in_braces = |text: &str| {
        let (before, rest) = text.split_once('{')?;
        let (within, after) = rest.split_once('}')?;
        Some((before.to_owned(), within.to_owned(), after.to_owned()))
    };
    let Some((before, list, after)) = in_braces(path) else { return vec![(path.into(), text.into())] };
    let numbers: CpuSet = list.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
    let file = |(position, number): (usize, u32)| {
        let text = match in_braces(text) {
            Some((before, first, after)) => {
                let first: usize = first.parse().unwrap_or_else(|error| panic!("{path}: {text}: {error}"));
                format!("{before}{}{after}", first + position)
            }
            None => text.to_owned(),
        };
        (format!("{before}{number}{after}"), text)
    };
    numbers.iter().enumerate().map(file).collect()
}
