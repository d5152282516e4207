//! A host that is made by hand, and files that can be executed on it.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::{Analyzer, Frame, Limits, Taken, Unwind};
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

    /// A process with this list of mappings, whose root is a directory of this name.
    pub(super) fn process(&self, pid: u32, root: &str, maps: &str) {
        let dir = self.roots.proc.join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::create_dir_all(self.dir.path().join(root)).unwrap();
        fs::write(dir.join("maps"), maps).unwrap();
        fs::write(dir.join("status"), format!("Name:\tx\nNSpid:\t{pid}\t{}\n", pid + 1000)).unwrap();
        fs::remove_file(dir.join("root")).ok();
        symlink(self.dir.path().join(root), dir.join("root")).unwrap();
    }

    /// It ended.
    pub(super) fn end(&self, pid: u32) {
        fs::remove_dir_all(self.roots.proc.join(pid.to_string())).unwrap();
    }

    /// Where a path of a root is on this machine.
    pub(super) fn path(&self, root: &str, path: &str) -> PathBuf {
        self.dir.path().join(root).join(path.trim_start_matches('/'))
    }

    /// Puts a file there. What stands in a list of mappings before its path.
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

/// By what a record names a file.
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

/// What is there at an address of a process.
pub(super) fn frame_at(analyzer: &mut Analyzer, pid: u32, address: u64) -> Frame {
    let stack = Stack { ip: address, pid, tid: pid, callchain: vec![USER, address], user: None };
    let (_, frames) = take(analyzer, &stack);
    frames[0]
}

pub(super) fn take(analyzer: &mut Analyzer, stack: &Stack) -> (Taken, Vec<Frame>) {
    take_by(Unwind::Auto, analyzer, stack)
}

pub(super) fn take_by(unwind: Unwind, analyzer: &mut Analyzer, stack: &Stack) -> (Taken, Vec<Frame>) {
    let record = stack.record();
    let Ok(Record::Sample(sample)) = Record::parse(&record, &Stack::FIELDS) else { panic!("{stack:?}") };
    let taken = analyzer.stack(&sample, unwind);
    (taken, analyzer.stacks().frames(taken.stack).collect())
}

/// A program whose code is at the addresses from 0x1000 up to 0x3000, which are its places in the file as well, with a
/// build id if that is not empty, and `.eh_frame` if that is not.
pub(super) fn program(build_id: &[u8], eh_frame: &[u8]) -> Vec<u8> {
    const NOTE: u64 = 0x200;
    const NAMES: u64 = 0x300;
    let words = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let halves = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let names = b"\0.eh_frame\0.shstrtab\0";
    let machine: u32 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let headers = EH_FRAME + eh_frame.len() as u64;
    let mut note = halves(&[4, build_id.len() as u32, 3]);
    note.extend(b"GNU\0");
    note.extend(build_id);
    let note_size = if build_id.is_empty() { 0 } else { note.len() as u64 };
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(halves(&[3 | machine << 16, 1]));
    file.extend(words(&[0x1000, 64, headers]));
    file.extend(halves(&[0, 64 | 56 << 16, 2 | 64 << 16, 3 | 2 << 16]));
    // PT_LOAD, readable and executable; PT_NOTE.
    file.extend([halves(&[1, 5]), words(&[0x1000, 0x1000, 0x1000, 0x2000, 0x2000, 0x1000])].concat());
    file.extend([halves(&[4, 4]), words(&[NOTE, NOTE, NOTE, note_size, note_size, 4])].concat());
    let put = |file: &mut Vec<u8>, at: u64, bytes: &[u8]| {
        file.resize(at as usize, 0);
        file.extend_from_slice(bytes);
    };
    put(&mut file, NOTE, &note);
    put(&mut file, NAMES, names);
    put(&mut file, EH_FRAME, eh_frame);
    let section = |name: u32, kind: u32, at: u64, size: u64| {
        [halves(&[name, kind]), words(&[2, at, at, size]), halves(&[0, 0]), words(&[8, 0])].concat()
    };
    file.extend(section(0, 0, 0, 0));
    file.extend(section(1, 1, EH_FRAME, eh_frame.len() as u64));
    file.extend(section(11, 3, NAMES, names.len() as u64));
    file
}

/// Where `.eh_frame` of a [`program`] is.
pub(super) const EH_FRAME: u64 = 0x4000;
