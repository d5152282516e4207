//! Files of other processes, opened by the real helper process.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use perf_exporter::files::{Contents, Files, ProcessFile, Root, RootError};
use perf_exporter::host::{self, ReadAt, Roots};

fn files(roots: &Roots) -> Files {
    Files::apart(roots, PathBuf::from(env!("CARGO_BIN_EXE_perf-exporter")))
}

fn own() -> u32 {
    std::process::id()
}

#[test]
fn a_local_file_is_handed_over_as_a_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    fs::write(&path, "contents").unwrap();
    let files = files(&Roots::default());
    let opened = files.open(&Root::Host, path.to_str().unwrap(), None).unwrap();
    assert!(matches!(opened.file, Contents::Local(_)), "{opened:?}");
    assert_eq!((opened.shown.as_path(), opened.pid), (path.as_path(), None));
    let mut text = String::new();
    opened.file.sequential().read_to_string(&mut text).unwrap();
    assert_eq!(text, "contents");
    assert_eq!(opened.kernel_path().unwrap(), fs::canonicalize(&path).unwrap());
    // Opening through the root of a process gives the same file, by the same helper process.
    let through = files.open(&Root::Process(own()), path.to_str().unwrap(), None).unwrap();
    assert_eq!((through.id(), through.pid), (opened.id(), Some(own())));
    let report = files.report();
    assert_eq!((report.restarts, report.kept, report.stuck.len()), (0, 0, 0));
    assert!(report.helper.is_some());
}

#[test]
fn the_reason_why_a_file_cannot_be_opened_arrives_whole() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("libc.so.6"), "").unwrap();
    let files = files(&Roots::default());
    let missing = dir.path().join("libc.so.7");
    let error = files.open(&Root::Host, missing.to_str().unwrap(), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{} does not exist; the directory contains libc.so.6", missing.display())
    );
    let error = files.open(&Root::Process(u32::MAX - 1), "/x", None).unwrap_err();
    assert_eq!(error, RootError::NoProcess(u32::MAX - 1));
    let error = files.open_process(u32::MAX - 1, ProcessFile::Maps).unwrap_err();
    assert!(matches!(&error, RootError::Unreadable(error) if error.is_absent()), "{error}");
}

#[test]
fn lists_of_mappings_and_memory_are_read_by_the_helper() {
    let files = files(&Roots::default());
    let maps = files.open_process(own(), ProcessFile::Maps).unwrap();
    assert!(matches!(maps.file, Contents::Apart(_)), "{maps:?}");
    let mut text = String::new();
    maps.file.sequential().read_to_string(&mut text).unwrap();
    assert!(text.lines().any(|line| line.ends_with("[stack]")), "{text}");
    assert_eq!(files.report().kept, 1);
    drop(maps);
    assert_eq!(files.report().kept, 0);
    let word = Box::new(0x1122_3344_5566_7788u64);
    let memory = files.open_process(own(), ProcessFile::Memory).unwrap();
    let mut bytes = [0; 8];
    memory.file.read_exact_at(&mut bytes, std::ptr::from_ref(&*word) as u64).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), *word);
    memory.file.read_exact_at(&mut bytes, 8).unwrap_err();
    // Larger than one message.
    let many: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
    let mut read = vec![0; many.len()];
    memory.file.read_exact_at(&mut read, many.as_ptr() as u64).unwrap();
    assert!(read == many);
}

#[test]
fn the_file_behind_a_mapping_is_found_by_its_addresses() {
    let maps = host::read_text(Path::new("/proc/self/maps")).unwrap();
    let exe = fs::read_link("/proc/self/exe").unwrap();
    let line = maps.lines().find(|line| line.ends_with(exe.to_str().unwrap())).unwrap();
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    let files = files(&Roots::default());
    match files.open_mapped(own(), (number(start), number(end)), (0, 0)) {
        Ok(opened) => {
            let there = files.open(&Root::Host, exe.to_str().unwrap(), None).unwrap();
            assert_eq!(opened.id(), there.id());
        }
        Err(RootError::MappingForbidden { .. }) => {
            eprintln!("skipped: map_files needs CAP_CHECKPOINT_RESTORE");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_helper_that_ends_is_started_again_and_files_that_it_held_say_so() {
    let files = files(&Roots::default());
    let maps = files.open_process(own(), ProcessFile::Maps).unwrap();
    let helper = files.report().helper.unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(helper as i32).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let mut byte = [0];
    let mut tries = 0..2000;
    while maps.file.read_at(&mut byte, 0).is_ok() {
        assert!(tries.next().is_some(), "the helper still answers");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(maps.file.read_at(&mut byte, 0).unwrap_err().raw_os_error(), Some(libc::ESTALE));
    let again = loop {
        match files.open_process(own(), ProcessFile::Maps) {
            Ok(opened) => break opened,
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
        assert!(tries.next().is_some(), "the helper is not started again");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(again.file.read_at(&mut byte, 0).unwrap(), 1);
    assert_eq!(files.report().restarts, 1);
    files.stop();
    let error = files.open_process(own(), ProcessFile::Maps).unwrap_err();
    assert_eq!(error.to_string(), "files of other processes are not available: the program is stopping");
}

#[test]
fn paths_in_a_root_below_a_prefix_stay_inside() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("proc/7/root/etc")).unwrap();
    fs::write(dir.path().join("proc/7/root/etc/x"), "the file of the container").unwrap();
    symlink("../../../../../../etc/x", dir.path().join("proc/7/root/up")).unwrap();
    let files = files(&Roots::under(dir.path()));
    for path in ["/etc/x", "/up"] {
        let opened = files.open(&Root::Process(7), path, None).unwrap();
        let mut text = String::new();
        opened.file.sequential().read_to_string(&mut text).unwrap();
        assert_eq!(text, "the file of the container", "{path}");
    }
    assert!(Path::new(dir.path()).exists());
}
