//! Tests with directories as container roots that contain malicious links.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;

use super::*;
use crate::files::opened::is_same;

/// Host in a directory, with one process, 7, whose root is also a directory.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.file("etc/passwd", "the host's");
        host.file("proc/7/root/usr/lib/libc.so.6", "the container's");
        host
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        symlink(to, self.at(path)).unwrap();
    }

    fn roots(&self) -> Roots {
        Roots::under(self.0.path())
    }

    fn open(&self, root: &Root, path: &str) -> Result<Opened, RootError> {
        open(root, path, &self.roots(), Some(&self.at("cg")))
    }

    /// Returns the error message, without the directory of the test.
    fn told(&self, root: &Root, path: &str) -> String {
        self.open(root, path).unwrap_err().to_string().replace(self.0.path().to_str().unwrap(), "")
    }
}

fn open(root: &Root, path: &str, roots: &Roots, cgroup_dir: Option<&Path>) -> Result<Opened, RootError> {
    find_path(root, (path, OFlags::empty()), roots, cgroup_dir)?.open(false)
}

const PROCESS: Root = Root::Process(7);

fn is_file(opened: &Opened, path: &str) -> bool {
    matches!(&opened.file, Contents::Local(file) if is_same(file, Path::new(path)))
}

fn cgroup() -> Root {
    Root::Cgroup("/app".into())
}

fn content(opened: Opened) -> String {
    let mut text = String::new();
    opened.file.sequential().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_file_of_a_container_is_shown_where_the_host_finds_it() {
    let host = Host::new();
    let opened = host.open(&PROCESS, "/usr/lib/libc.so.6").unwrap();
    assert_eq!(opened.shown, host.at("proc/7/root/usr/lib/libc.so.6"));
    assert_eq!(opened.pid, Some(7));
    assert_eq!(content(opened), "the container's");
}

#[test]
fn no_link_leads_out_of_a_root() {
    let host = Host::new();
    host.link("proc/7/root/etc", host.at("etc").to_str().unwrap());
    host.link("proc/7/root/up", "../../../../../../../../../etc");
    host.link("proc/7/root/out", host.at("etc/passwd").to_str().unwrap());
    host.link("proc/7/root/lib", "/usr/lib");
    for path in ["/etc/passwd", "/up/passwd", "/out", "/../../../etc/passwd", "/lib/../../../etc/passwd"] {
        let error = host.open(&PROCESS, path).unwrap_err();
        assert!(matches!(error, RootError::Absent { .. }), "{path}: {error}");
    }
    // A link of the same kind that stays inside is resolved from the top of this root.
    for path in ["/lib/libc.so.6", "/../lib/libc.so.6", "/lib/../../usr/lib/libc.so.6"] {
        assert_eq!(content(host.open(&PROCESS, path).unwrap()), "the container's", "{path}");
    }
}

/// Uses the real `/proc` with its magic links.
#[test]
fn a_link_of_proc_is_not_followed_inside_of_a_root() {
    let own = Root::Process(std::process::id());
    let exe = std::env::current_exe().unwrap();
    let exe = exe.to_str().unwrap();
    let roots = Roots::default();
    let found = open(&own, exe, &roots, None).unwrap();
    assert!(is_file(&found, exe));
    for path in ["/proc/self/exe".to_owned(), format!("/proc/self/root{exe}")] {
        let error = open(&own, &path, &roots, None).unwrap_err();
        assert!(matches!(error, RootError::Link(_)), "{path}: {error}");
        // As a path of the host it is allowed, because the user of this host wrote it.
        assert!(is_file(&open(&Root::Host, &path, &roots, None).unwrap(), exe));
    }
}

#[test]
fn the_kernel_gets_the_file_that_was_opened_even_if_another_takes_its_place() {
    let host = Host::new();
    let opened = host.open(&PROCESS, "/usr/lib/libc.so.6").unwrap();
    host.file("proc/7/root/usr/lib/new", "the enemy's");
    fs::rename(host.at("proc/7/root/usr/lib/new"), host.at("proc/7/root/usr/lib/libc.so.6")).unwrap();
    assert_eq!(host::read_text(&opened.kernel_path().unwrap()).unwrap(), "the container's");
    assert!(opened.kernel_path().unwrap().starts_with("/proc/self/fd"));
}

#[test]
fn a_file_of_the_host_has_its_canonical_path_unless_the_kernel_could_not_read_that() {
    let host = Host::new();
    host.file("usr/bin/app", "1");
    host.link("usr/bin/alias", "app");
    let canonical = fs::canonicalize(host.at("usr/bin/app")).unwrap();
    let alias =
        open(&Root::Host, host.at("usr/bin/alias").to_str().unwrap(), &Roots::default(), None).unwrap();
    assert_eq!(alias.kernel_path().unwrap(), canonical);
    for name in ["with a blank", "with#hash", "wïth", "with\nline"] {
        host.file(&format!("usr/bin/{name}"), name);
        let opened = host.open(&Root::Host, &format!("/usr/bin/{name}")).unwrap();
        assert!(opened.kernel_path().unwrap().starts_with("/proc/self/fd"), "{name}");
        assert_eq!(host::read_text(&opened.kernel_path().unwrap()).unwrap(), name);
    }
    // It is not returned after another file has replaced it either.
    fs::remove_file(&canonical).unwrap();
    assert!(alias.kernel_path().unwrap().starts_with("/proc/self/fd"));
    host.file("usr/bin/app", "2");
    assert_eq!(host::read_text(&alias.kernel_path().unwrap()).unwrap(), "1");
}

/// Files of the host below `/host`, as in a container.
#[test]
fn an_absolute_link_of_a_host_below_a_prefix_is_followed_below_it() {
    let host = Host::new();
    host.file("opt/java/bin/java", "the host's java");
    fs::create_dir_all(host.at("usr/bin")).unwrap();
    host.link("usr/bin/java", "/opt/java/bin/java");
    let opened = host.open(&Root::Host, "/usr/bin/java").unwrap();
    assert_eq!(opened.shown, host.at("usr/bin/java"));
    assert_eq!(opened.kernel_path().unwrap(), fs::canonicalize(host.at("opt/java/bin/java")).unwrap());
    assert_eq!(content(opened), "the host's java");
}

#[test]
fn what_is_missing_is_named_with_what_is_there_instead() {
    let host = Host::new();
    host.link("proc/7/root/usr/lib/dangling.so", "/nowhere/x.so");
    for (path, expected) in [
        ("/usr/lib/libc.so", "/proc/7/root/usr/lib/libc.so does not exist; the directory contains libc.so.6"),
        ("/usr/lib/lib", "/proc/7/root/usr/lib/lib does not exist; the directory contains libc.so.6"),
        ("/usr/lob/x/y/z", "/proc/7/root/usr/lob does not exist; the directory contains lib"),
        ("/srv/app", "/proc/7/root/srv does not exist"),
        ("/xxxxxx", "/proc/7/root/xxxxxx does not exist"),
        (
            "/usr/lib/dangling.so",
            "/proc/7/root/usr/lib/dangling.so does not exist: it is a symbolic link to /nowhere/x.so, which is \
             missing in this root",
        ),
        ("/usr/lib/libc.so.6/x", "/proc/7/root/usr/lib/libc.so.6/x does not exist"),
        ("usr/lib", "usr/lib is not an absolute path: begin it with /"),
        ("", " is not an absolute path: begin it with /"),
        (
            "/usr/lib",
            "/proc/7/root/usr/lib is a directory, not a regular file: give the path of the program or library",
        ),
    ] {
        assert_eq!(host.told(&PROCESS, path), expected);
    }
}

/// Opening a pipe for reading would block until there is a writer, and opening some devices starts them.
#[test]
fn a_pipe_in_the_place_of_a_library_is_not_opened() {
    let host = Host::new();
    let path = host.at("proc/7/root/usr/lib/pipe.so");
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, 0o644.into(), 0).unwrap();
    let Err(RootError::NotRegular { what, .. }) = host.open(&PROCESS, "/usr/lib/pipe.so") else { panic!() };
    assert_eq!(what, "a pipe");
    let device = open(&Root::Host, "/dev/null", &Roots::default(), None).unwrap_err();
    assert!(matches!(&device, RootError::NotRegular { what, .. } if what == "a device"), "{device}");
}

#[test]
fn links_without_end_are_refused() {
    let host = Host::new();
    host.link("proc/7/root/a", "b");
    host.link("proc/7/root/b", "a");
    assert!(matches!(host.open(&PROCESS, "/a"), Err(RootError::Link(_))));
}

#[test]
fn a_process_that_is_not_there_has_no_files() {
    let host = Host::new();
    fs::create_dir_all(host.at("proc/8")).unwrap();
    for pid in [8, 9] {
        let error = host.open(&Root::Process(pid), "/x").unwrap_err();
        assert_eq!(error, RootError::NoProcess(pid));
    }
}

#[test]
fn the_first_process_of_a_cgroup_that_has_the_file_lends_its_root() {
    let host = Host::new();
    // The second process lacks the file, like the sandbox of a pod; the third has exited.
    host.file("proc/5/root/pause", "");
    host.file("proc/9/root/usr/lib/libc.so.6", "another container's");
    host.file("cg/cgroup.procs", "");
    host.file("cg/container/cgroup.procs", "0\n5\n6\n7\n9\n");
    let opened = host.open(&cgroup(), "/usr/lib/libc.so.6").unwrap();
    assert_eq!(opened.pid, Some(7));
    assert_eq!(content(opened), "the container's");
    let error = host.told(&cgroup(), "/usr/lib/libm.so.6");
    assert_eq!(error, "/proc/5/root/usr does not exist");
}

#[test]
fn a_cgroup_without_processes_says_what_to_do() {
    let host = Host::new();
    assert_eq!(host.open(&cgroup(), "/x").unwrap_err(), RootError::NoCgroup("/app".to_owned()));
    host.file("cg/cgroup.procs", "");
    fs::create_dir_all(host.at("cg/child/grandchild")).unwrap();
    host.file("cg/child/grandchild/cgroup.procs", "6\n");
    let error = host.told(&cgroup(), "/x");
    assert!(
        error.starts_with("cgroup /app has no processes") && error.contains("start one and reload"),
        "{error}"
    );
    let error = open(&cgroup(), "/x", &host.roots(), None).unwrap_err();
    assert_eq!(error, RootError::NoCgroup("/app".to_owned()));
}

#[test]
fn a_cgroup_of_any_size_is_searched_within_limits() {
    for (ended, found) in [(PROCESS_LIMIT - 1, true), (PROCESS_LIMIT, false)] {
        let host = Host::new();
        let processes: String = (1000..1000 + ended).chain([7]).map(|pid| format!("{pid}\n")).collect();
        host.file("cg/cgroup.procs", &processes);
        assert_eq!(host.open(&cgroup(), "/usr/lib/libc.so.6").is_ok(), found, "{ended}");
    }
    for (children, found) in [(4, true), (CGROUP_LIMIT, false)] {
        let host = Host::new();
        host.file("cg/cgroup.procs", "");
        for child in 0..children {
            fs::create_dir(host.at(&format!("cg/{child}"))).unwrap();
        }
        host.file("cg/0/grandchild/cgroup.procs", "7\n");
        assert_eq!(host.open(&cgroup(), "/usr/lib/libc.so.6").is_ok(), found, "{children}");
    }
}
