//! Compared with the crate `addr2line`, for valid files; and tests with damaged files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;
use crate::probe::binary::Binary;

const C: &str = "\
volatile int sink;
static inline __attribute__((always_inline)) void deepest(int n) {
  sink += n;
  sink *= 3;
}
static inline __attribute__((always_inline)) void middle(int n) {
  deepest(n);
  for (int i = 0; i < n; i++) deepest(n + 1);
}
__attribute__((noinline)) void outer(int n) {
  middle(n);
  sink = 1;
}
__attribute__((cold, noinline)) void rare(int n) { deepest(n); }
int main(int argc, char **argv) {
  if (argc > 7) rare(argc);
  outer(argc);
  return sink;
}
";

const RUST: &str = "\
mod inner {
    #[inline(always)]
    pub fn deepest<T: Into<u64>>(value: T) -> u64 { std::hint::black_box(value.into()) * 3 }
    #[inline(always)]
    pub fn middle(value: u32) -> u64 { deepest(value) + deepest(7u8) }
}
#[inline(never)]
#[unsafe(no_mangle)]
pub fn outer(value: u32) -> u64 { inner::middle(value) + 1 }
fn main() { println!(\"{}\", outer(std::env::args().count() as u32)); }
";

const BUDGET: Budget = Budget { steps: 1 << 26, memory: 1 << 24 };

fn succeeds(tool: &str, arguments: &[&str]) {
    let output = Command::new(tool).args(arguments).output().unwrap();
    assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles a program with these options.
fn compiled(dir: &Path, options: &[&str]) -> PathBuf {
    let (source, path) = (dir.join("program.c"), dir.join("program"));
    fs::write(&source, C).unwrap();
    let (source, output) = (source.display().to_string(), path.display().to_string());
    succeeds("gcc", &[options, &[&source, "-o", &output]].concat());
    path
}

fn read(path: &Path) -> DebugInfo {
    let binary = Binary::read(fs::File::open(path).unwrap(), path).unwrap();
    binary.debug_info(1 << 30).unwrap()
}

/// Returns the addresses of these functions, byte by byte.
fn addresses(path: &Path, functions: &[&str]) -> Vec<u64> {
    let nm = Command::new("nm").arg("-S").arg(path).output().unwrap();
    let nm = String::from_utf8(nm.stdout).unwrap();
    let mut all: Vec<u64> = nm
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let &[start, size, _, name] = &words[..] else { return None };
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            let start = number(start);
            functions.contains(&name).then(|| start..start + number(size))
        })
        .flatten()
        .collect();
    assert!(!all.is_empty(), "{nm}");
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the result of the crate `addr2line`.
fn expected(info: &DebugInfo, address: u64) -> Vec<Level> {
    let section =
        |id: SectionId| Ok::<_, gimli::Error>(EndianSlice::new(info.section(id), RunTimeEndian::Little));
    let context = addr2line::Context::from_dwarf(Dwarf::load(section).unwrap()).unwrap();
    let mut frames = context.find_frames(address).skip_all_loads().unwrap();
    let mut levels = Vec::new();
    while let Some(frame) = frames.next().unwrap() {
        let name = frame.function.map(|function| function.raw_name().unwrap().into_owned().into());
        let (file, line) = frame.location.map_or((None, 0), |at| (at.file, at.line.unwrap_or(0)));
        levels.push(Level { function: name, file: file.map(Into::into), line });
    }
    levels
}

fn agrees(info: &DebugInfo, addresses: &[u64]) -> Vec<Found> {
    let (found, trouble) = look_up(info, addresses, &mut BUDGET.clone());
    assert_eq!(trouble, None);
    for (found, &address) in found.iter().zip(addresses) {
        assert_eq!(found.levels[..], expected(info, address), "{address:#x}");
    }
    found
}

fn names(found: &Found) -> Vec<&str> {
    found.levels.iter().map(|level| level.function.as_deref().unwrap_or("-")).collect()
}

#[test]
fn each_address_is_in_the_functions_that_were_inlined_there() {
    let dir = tempfile::tempdir().unwrap();
    let options: [&[&str]; 7] = [
        &["-O2", "-gdwarf-5"],
        &["-O2", "-gdwarf-4"],
        &["-O2", "-gdwarf-3", "-gstrict-dwarf"],
        &["-O0", "-gdwarf-5", "-no-pie"],
        &["-O2", "-gdwarf-5", "-gz=zlib"],
        &["-O3", "-gdwarf-5", "-ffunction-sections", "-Wl,--gc-sections", "-fdebug-types-section"],
        &["-O2", "-gdwarf-5", "-flto"],
    ];
    for options in options {
        let path = compiled(dir.path(), options);
        let info = read(&path);
        let found = agrees(&info, &addresses(&path, &["main", "outer", "rare"]));
        let deepest = found.iter().filter(|found| names(found) == ["deepest", "middle", "outer"]);
        let lines: BTreeMap<u32, usize> = deepest.fold(BTreeMap::new(), |mut lines, found| {
            assert!(found.levels[0].file.as_ref().unwrap().ends_with("/program.c"));
            assert!([7, 8].contains(&found.levels[1].line) && found.levels[2].line == 11, "{found:?}");
            *lines.entry(found.levels[0].line).or_default() += 1;
            lines
        });
        assert!([3, 4].iter().all(|line| lines.contains_key(line)), "{options:?}: {lines:?}");
    }
}

#[test]
fn functions_of_rust_are_told_by_the_names_that_the_linker_has() {
    let dir = tempfile::tempdir().unwrap();
    let (source, path) = (dir.path().join("program.rs"), dir.path().join("program"));
    fs::write(&source, RUST).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let arguments = ["-g", "-O", "--edition", "2024", "-o"];
    let status = Command::new(rustc).args(arguments).arg(&path).arg(&source).status().unwrap();
    assert!(status.success());
    let info = read(&path);
    let found = agrees(&info, &addresses(&path, &["outer"]));
    let demangled: Vec<Vec<String>> = found
        .iter()
        .map(|found| names(found).into_iter().map(super::super::demangle::demangle).collect())
        .collect();
    let is_nested = |names: &Vec<String>| {
        let at = names.iter().position(|name| name.starts_with("program::inner::deepest"));
        at.is_some_and(|at| names[at + 1..] == ["program::inner::middle", "outer"])
    };
    assert!(demangled.iter().any(is_nested), "{demangled:?}");
}

#[test]
fn what_is_asked_together_and_alone_is_the_same() {
    let (info, addresses) = sample();
    let (together, _) = look_up(info, addresses, &mut BUDGET.clone());
    for (found, &address) in together.iter().zip(addresses) {
        assert_eq!(look_up(info, &[address], &mut BUDGET.clone()), (vec![found.clone()], None));
    }
    assert_eq!(look_up(info, &[], &mut BUDGET.clone()), (vec![], None));
    assert_eq!(look_up(info, &[1, u64::MAX], &mut BUDGET.clone()), (vec![Found::default(); 2], None));
}

#[test]
fn more_work_than_is_allowed_is_not_done() {
    let (info, addresses) = sample();
    let mut budget = BUDGET;
    look_up(info, addresses, &mut budget);
    let steps = BUDGET.steps - budget.steps;
    for steps in (0..steps).step_by(usize::try_from(steps / 50).unwrap()) {
        let (_, trouble) = look_up(info, addresses, &mut Budget { steps, ..BUDGET });
        assert_eq!(trouble, Some(LookupError::Exhausted), "{steps}");
    }
    let (_, trouble) = look_up(info, addresses, &mut Budget { memory: 100, ..BUDGET });
    assert_eq!(trouble, Some(LookupError::Exhausted));
}

/// Returns a unit of version 4 for addresses from 0 to 255, with these abbreviations and entries.
fn unit(abbreviations: &[u8], entries: &[u8]) -> DebugInfo {
    let mut unit = vec![4, 0, 0, 0, 0, 0, 8, 1];
    unit.extend([0; 8]);
    unit.extend([255, 0, 0, 0]);
    unit.extend(entries);
    let mut info = (unit.len() as u32).to_le_bytes().to_vec();
    info.extend(unit);
    // 1: a unit with children; its first address and size.
    let mut table = vec![1, 0x11, 1, 0x11, 0x01, 0x12, 0x06, 0, 0];
    table.extend(abbreviations);
    table.push(0);
    DebugInfo::of(vec![(SectionId::DebugInfo, info), (SectionId::DebugAbbrev, table)])
}

/// 2: a function with children, with the name `f` and the same addresses. 3: one inlined there, with children. 4: the same, with children
/// and no attributes.
const ABBREVIATIONS: &[u8] = &[
    2, 0x2e, 1, 0x11, 0x01, 0x12, 0x06, 0x03, 0x08, 0, 0, 3, 0x1d, 1, 0x11, 0x01, 0x12, 0x06, 0, 0, 4, 0x1d,
    1, 0, 0,
];
const FUNCTION: &[u8] = &[2, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, b'f', 0];
const INLINED: &[u8] = &[3, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0];

#[test]
fn functions_that_are_nested_a_million_times_take_no_stack() {
    for (inlined, levels) in [(INLINED, 64), (&[4][..], 1)] {
        let info = unit(ABBREVIATIONS, &[FUNCTION, &inlined.repeat(1_000_000)].concat());
        let (found, trouble) = look_up(&info, &[5], &mut BUDGET.clone());
        assert_eq!((found[0].levels.len(), trouble), (levels, None));
        assert_eq!(found[0].levels.last().unwrap().function.as_deref(), Some("f"));
    }
}

/// Each entry takes a byte and has a million attributes that take none (`DW_FORM_flag_present`).
#[test]
fn attributes_that_take_no_bytes_are_work_all_the_same() {
    let abbreviation = [&[2, 0x34, 0][..], &[0x3f, 0x19].repeat(100_000), &[0, 0]].concat();
    let info = unit(&abbreviation, &[2].repeat(1_000_000));
    assert_eq!(look_up(&info, &[5], &mut BUDGET.clone()).1, Some(LookupError::Exhausted));
}

/// Returns a program and some of its addresses.
fn sample() -> &'static (DebugInfo, Vec<u64>) {
    static SAMPLE: OnceLock<(DebugInfo, Vec<u64>)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = compiled(dir.path(), &["-O2", "-gdwarf-5"]);
        (read(&path), addresses(&path, &["main", "outer", "rare"]))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn debug_information_of_any_bytes_is_read_or_refused(
        changes in proptest::collection::vec((0usize..9, any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in proptest::option::of((0usize..9, any::<prop::sample::Index>())),
    ) {
        let (info, addresses) = sample();
        let mut sections = info.sections().to_vec();
        for (section, place, byte) in changes {
            let count = sections.len();
            let bytes = &mut sections[section % count].1;
            if !bytes.is_empty() {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
        }
        if let Some((section, place)) = cut {
            let count = sections.len();
            let bytes = &mut sections[section % count].1;
            bytes.truncate(place.index(bytes.len() + 1));
        }
        let mut budget = Budget { steps: 1 << 20, memory: 1 << 20 };
        let (found, _) = look_up(&DebugInfo::of(sections), addresses, &mut budget);
        prop_assert_eq!(found.len(), addresses.len());
        prop_assert!(found.iter().all(|found| found.levels.len() <= 65));
    }
}
