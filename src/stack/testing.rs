//! A fake host, and executable files on it.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::{AnalyzedSample, Analyzer, Frame, Limits, Unwind};
use crate::host::Roots;
use crate::ring::testing::Stack;
use crate::ring::{MappedFile, Mmap, Record};

/// `PERF_CONTEXT_USER` and `PERF_CONTEXT_KERNEL`
pub(super) const USER: u64 = -512i64 as u64;
pub(super) const KERNEL: u64 = -128i64 as u64;

/// `/proc`, and the roots of its processes.
#[derive(Debug)]
pub(super) struct Host {
    dir: tempfile::TempDir,
    pub(super) roots: Roots,
}

impl Host {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        fs::create_dir_all(roots.proc.join("sys/kernel")).unwrap();
        fs::write(roots.proc.join("sys/kernel/perf_event_max_stack"), "127\n").unwrap();
        Self { dir, roots }
    }

    /// Creates a process with this list of mappings, whose root is a directory of this name.
    pub(super) fn process(&self, pid: u32, root: &str, maps: &str) {
        let dir = self.roots.proc.join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::create_dir_all(self.dir.path().join(root)).unwrap();
        fs::write(dir.join("maps"), maps).unwrap();
        fs::write(dir.join("status"), format!("Name:\tx\nNSpid:\t{pid}\t{}\n", pid + 1000)).unwrap();
        fs::remove_file(dir.join("root")).ok();
        symlink(self.dir.path().join(root), dir.join("root")).unwrap();
    }

    /// Removes a process.
    pub(super) fn end(&self, pid: u32) {
        fs::remove_dir_all(self.roots.proc.join(pid.to_string())).unwrap();
    }

    /// Returns the location of a path of a root on this machine.
    pub(super) fn path(&self, root: &str, path: &str) -> PathBuf {
        self.dir.path().join(root).join(path.trim_start_matches('/'))
    }

    /// Creates a file. Returns the fields before its path in a list of mappings.
    pub(super) fn file(&self, root: &str, path: &str, content: &[u8]) -> String {
        let path = self.path(root, path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let (major, minor, inode) = device_of(&path);
        format!("{major:x}:{minor:x} {inode}")
    }

    pub(super) fn analyzer(&self) -> Analyzer {
        Analyzer::new(&self.roots, Limits::default())
    }
}

fn device_of(path: &Path) -> (u32, u32, u64) {
    let metadata = fs::metadata(path).unwrap();
    (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()), metadata.ino())
}

/// Returns the identity of a file in a record.
pub(super) fn inode_of(path: &Path) -> MappedFile {
    let (major, minor, inode) = device_of(path);
    MappedFile { major, minor, inode }
}

pub(super) const NO_FILE: MappedFile = MappedFile { major: 0, minor: 0, inode: 0 };

pub(super) fn mmap<'a>(pid: u32, at: (u64, u64), file: MappedFile, path: &'a [u8]) -> Record<'a> {
    let (start, end) = at;
    Record::Mmap(Mmap {
        pid,
        tid: pid,
        start,
        length: end - start,
        offset: 0x1000,
        file,
        protection: 5,
        path,
    })
}

/// Returns the frame at an address of a process.
pub(super) fn frame_at(analyzer: &mut Analyzer, pid: u32, address: u64) -> Frame {
    let stack = Stack { ip: address, pid, tid: pid, callchain: vec![USER, address], user: None };
    let (_, frames) = take(analyzer, &stack);
    frames[0]
}

pub(super) fn take(analyzer: &mut Analyzer, stack: &Stack) -> (AnalyzedSample, Vec<Frame>) {
    take_by(Unwind::Auto, analyzer, stack)
}

pub(super) fn take_by(
    unwind: Unwind,
    analyzer: &mut Analyzer,
    stack: &Stack,
) -> (AnalyzedSample, Vec<Frame>) {
    let record = stack.record();
    let Ok(Record::Sample(sample)) = Record::parse(&record, &Stack::FIELDS) else { panic!("{stack:?}") };
    let taken = analyzer.stack(&sample, unwind);
    (taken, analyzer.stacks().frames(taken.stack).collect())
}

/// Returns a program with code at the addresses 0x1000 to 0x3000, which are also its file offsets. It has a build id and an `.eh_frame` if
/// these are not empty. The second entry of `.eh_frame` is that of the code.
pub(super) fn program(build_id: &[u8], eh_frame: &[u8]) -> Vec<u8> {
    let table = match eh_frame.first_chunk() {
        Some(length) => search_table(eh_frame, &[(0x1000, u32::from_le_bytes(*length).wrapping_add(4))]),
        None => Vec::new(),
    };
    program_with(build_id, eh_frame, &table)
}

/// Returns an `.eh_frame_hdr` that follows `.eh_frame`, with these functions: the start of each, and the offset of its entry in the
/// section.
pub(super) fn search_table(eh_frame: &[u8], functions: &[(u32, u32)]) -> Vec<u8> {
    let at = EH_FRAME as u32 + eh_frame.len() as u32;
    let section = (EH_FRAME as u32).wrapping_sub(at + 4);
    let mut table = vec![1, 0x1b, 0x03, 0x3b];
    table.extend([section, functions.len() as u32].map(u32::to_le_bytes).concat());
    for (start, entry) in functions {
        let entry = entry.wrapping_add(EH_FRAME as u32).wrapping_sub(at);
        table.extend([start.wrapping_sub(at), entry].map(u32::to_le_bytes).concat());
    }
    table
}

/// Returns a [`program`] with these bytes as `.eh_frame_hdr`, if there are any.
pub(super) fn program_with(build_id: &[u8], eh_frame: &[u8], table: &[u8]) -> Vec<u8> {
    const NOTE: u64 = 0x200;
    const NAMES: u64 = 0x300;
    let words = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let halves = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let names = b"\0.eh_frame\0.shstrtab\0";
    let machine: u32 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let table_at = EH_FRAME + eh_frame.len() as u64;
    let headers = table_at + table.len() as u64;
    let mut note = halves(&[4, build_id.len() as u32, 3]);
    note.extend(b"GNU\0");
    note.extend(build_id);
    let note_size = if build_id.is_empty() { 0 } else { note.len() as u64 };
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(halves(&[3 | machine << 16, 1]));
    file.extend(words(&[0x1000, 64, headers]));
    file.extend(halves(&[0, 64 | 56 << 16, 4 | 64 << 16, 3 | 2 << 16]));
    let segment = |kind: u32, flags: u32, at: u64, size: u64| {
        [halves(&[kind, flags]), words(&[at, at, at, size, size, 4])].concat()
    };
    // PT_LOAD, readable and executable; PT_NOTE; PT_LOAD; PT_GNU_EH_FRAME, or PT_NULL.
    file.extend(segment(1, 5, 0x1000, 0x2000));
    file.extend(segment(4, 4, NOTE, note_size));
    file.extend(segment(1, 4, EH_FRAME, headers - EH_FRAME));
    file.extend(segment(if table.is_empty() { 0 } else { 0x6474_e550 }, 4, table_at, table.len() as u64));
    let put = |file: &mut Vec<u8>, at: u64, bytes: &[u8]| {
        file.resize(at as usize, 0);
        file.extend_from_slice(bytes);
    };
    put(&mut file, NOTE, &note);
    put(&mut file, NAMES, names);
    put(&mut file, EH_FRAME, eh_frame);
    put(&mut file, table_at, table);
    let section = |name: u32, kind: u32, at: u64, size: u64| {
        [halves(&[name, kind]), words(&[2, at, at, size]), halves(&[0, 0]), words(&[8, 0])].concat()
    };
    file.extend(section(0, 0, 0, 0));
    file.extend(section(1, 1, EH_FRAME, eh_frame.len() as u64));
    file.extend(section(11, 3, NAMES, names.len() as u64));
    file
}

/// The offset of `.eh_frame` in a [`program`].
pub(super) const EH_FRAME: u64 = 0x4000;
