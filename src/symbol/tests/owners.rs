//! Owners of files with symbols, and files that a hostile process exchanges while they are opened.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;

/// Number of exchanges.
const SWAPS: usize = 100_000;

/// User of the process.
const USER: u32 = 4243;

/// Its name can lead to a file that the process itself may not read.
#[test]
fn a_debug_file_that_neither_the_process_nor_all_users_may_read_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let (bare, debug) = stripped(dir.path(), &[]);
    let (offset, ..) = place(&dir.path().join("whole"), "hidden");
    let uid = fs::metadata(dir.path()).unwrap().uid();
    for (user, mode, is_used) in
        [(uid, 0o600, true), (uid + 1, 0o604, true), (uid + 1, 0o640, false), (uid + 1, 0o600, false)]
    {
        let mut machine = Machine::new();
        machine.write("proc/7/status", format!("Uid:\t{user}\t{user}\t{user}\t{user}\n"));
        machine.write("proc/7/root/bin/program", crate::host::read(&bare).unwrap());
        let place = "proc/7/root/bin/program.debug";
        machine.write(place, crate::host::read(&debug).unwrap());
        fs::set_permissions(machine.path(place), fs::Permissions::from_mode(mode)).unwrap();
        let module = machine.module("/bin/program");
        let name = ask(&mut machine.symbolizer(), &machine.code, Frame::File { module, offset });
        assert_eq!(name == "hidden", is_used, "user {user} of {uid}, {mode:o}: {name}");
    }
}

/// Any user can write to `/tmp`.
#[test]
fn a_list_that_somebody_else_wrote_is_not_believed() {
    let machine = Machine::new();
    let path = machine.path("proc/7/root/tmp/perf-1.map");
    machine.write("proc/7/root/tmp/perf-1.map", "1000 10 evil\n");
    if fs::metadata(&path).unwrap().uid() == 0 {
        chown(&path, Some(4242), None).unwrap();
    }
    machine.write("proc/7/status", "Uid:\t4243\t4243\t4243\t4243\n");
    let mut symbolizer = machine.symbolizer();
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), "[anon] 0x1000");
    assert_eq!(symbolizer.accounts().of(Reason::MapForbidden), 1);
    // The process may act for the user that owns the file.
    let uid = fs::metadata(&path).unwrap().uid();
    machine.write("proc/7/status", format!("Uid:\t4243\t{uid}\t4243\t4243\n"));
    machine.later();
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), "evil");
}

#[test]
fn a_list_of_root_is_believed_only_in_a_mount_namespace_of_its_own() {
    let machine = Machine::new();
    machine.write("proc/7/root/tmp/perf-1.map", "1000 10 agent\n");
    if fs::metadata(machine.path("proc/7/status")).unwrap().uid() != 0 {
        return println!("skipped: only root creates files of root");
    }
    machine.write("proc/7/status", "Uid:\t4243\t4243\t4243\t4243\n");
    let namespace = |pid: u32, name: &str| {
        let dir = machine.path(&format!("proc/{pid}/ns"));
        fs::create_dir_all(&dir).unwrap();
        drop(fs::remove_file(dir.join("mnt")));
        symlink(name, dir.join("mnt")).unwrap();
    };
    let mut symbolizer = machine.symbolizer();
    let mut ask = || {
        machine.later();
        ask(&mut symbolizer, &machine.code, memory(0x1000))
    };
    assert_eq!(ask(), "[anon] 0x1000", "the namespaces are unknown");
    namespace(1, "mnt:[4026531841]");
    namespace(7, "mnt:[4026531841]");
    assert_eq!(ask(), "[anon] 0x1000");
    namespace(7, "mnt:[4026532841]");
    assert_eq!(ask(), "agent");
}

/// A user can mount any file in a namespace of its own, without the right to read it.
#[test]
fn a_list_of_root_that_not_all_users_may_read_is_not_believed_in_any_namespace() {
    let machine = Machine::new();
    machine.write("proc/7/root/tmp/perf-1.map", "1000 10 secret\n");
    let path = machine.path("proc/7/root/tmp/perf-1.map");
    if fs::metadata(&path).unwrap().uid() != 0 {
        return println!("skipped: only root creates files of root");
    }
    for (pid, namespace) in [(1, "mnt:[1]"), (7, "mnt:[2]")] {
        fs::create_dir_all(machine.path(&format!("proc/{pid}/ns"))).unwrap();
        symlink(namespace, machine.path(&format!("proc/{pid}/ns/mnt"))).unwrap();
    }
    for (user, mode, shown) in [
        (USER, 0o644, "secret"),
        (USER, 0o640, "[anon] 0x1000"),
        (USER, 0o600, "[anon] 0x1000"),
        (0, 0o600, "secret"),
    ] {
        machine.write("proc/7/status", format!("Uid:\t{user}\t{user}\t{user}\t{user}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let name = ask(&mut machine.symbolizer(), &machine.code, memory(0x1000));
        assert_eq!(name, shown, "user {user}, {mode:o}");
    }
}

/// A user could otherwise read files of others.
#[test]
fn a_list_that_is_a_link_is_not_followed() {
    let machine = Machine::new();
    machine.write("proc/7/root/home/secret", "1000 10 secret\n");
    let path = machine.path("proc/7/root/tmp/perf-1.map");
    let mut symbolizer = machine.symbolizer();
    for target in ["/home/secret", "../home/secret"] {
        symlink(target, &path).unwrap();
        machine.later();
        assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), "[anon] 0x1000", "{target}");
        fs::remove_file(&path).unwrap();
    }
    machine.write("proc/7/root/tmp/perf-1.map", "1000 10 own\n");
    machine.later();
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), "own");
}

#[test]
fn a_jitdump_of_another_user_is_not_read() {
    let mut machine = Machine::new();
    machine
        .write("proc/7/root/app/jit-1.dump", [jitdump::header(), jitdump::load(0x1000, 16, "evil")].concat());
    machine.module("/app/jit-1.dump");
    let uid = fs::metadata(machine.path("proc/7/root/app/jit-1.dump")).unwrap().uid();
    let other = uid + 1;
    machine.write("proc/7/status", format!("Uid:\t{other}\t{other}\t{other}\t{other}\n"));
    let mut symbolizer = machine.symbolizer();
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), "[anon] 0x1000");
    machine.write("proc/7/status", format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n"));
    machine.later();
    assert_eq!(ask(&mut symbolizer, &machine.code, memory(0x1000)), "evil");
}

#[test]
fn no_exchange_of_links_and_files_shows_what_the_process_may_not_read() {
    let machine = Machine::new();
    let tmp = machine.path("proc/7/root/tmp");
    let path = |name: &str| tmp.join(name);
    machine.write("proc/7/root/home/secret", "1000 10 secret\n");
    machine.write("outside/perf-1.map", "1000 10 secret\n");
    machine.write("proc/7/root/tmp/perf-1.map", "1000 10 own\n");
    machine.write("proc/7/status", format!("Uid:\t{USER}\t{USER}\t{USER}\t{USER}\n"));
    if chown(path("perf-1.map"), Some(USER), None).is_err() {
        return println!("skipped: only root gives files to another user");
    }
    symlink("/home/secret", path("link")).unwrap();
    fs::hard_link(machine.path("proc/7/root/home/secret"), path("hard-link")).unwrap();
    // The directory itself is exchanged with a link out of the root.
    symlink("../../../outside", machine.path("proc/7/root/elsewhere")).unwrap();
    let exchange =
        |one: &Path, other: &Path| renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
    let is_over = AtomicBool::new(false);
    let mut seen = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..SWAPS / 2 {
                // Each pair of exchanges restores the files.
                for _ in 0..2 {
                    match n % 3 {
                        0 => exchange(&path("perf-1.map"), &path("link")),
                        1 => exchange(&path("perf-1.map"), &path("hard-link")),
                        _ => exchange(&tmp, &machine.path("proc/7/root/elsewhere")),
                    }
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            match &*ask(&mut machine.symbolizer(), &machine.code, memory(0x1000)) {
                "own" => seen.0 += 1,
                "[anon] 0x1000" => seen.1 += 1,
                name => panic!("{name}"),
            }
        }
    });
    println!("own file read {} times, refused or absent {} times", seen.0, seen.1);
    assert!(seen.0 > 0 && seen.1 > 0, "{seen:?}");
}
