use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::*;
use crate::targets::{Glob, Identity, Pod, PodRule};

const ID: &str = "4f0cdeadbeef00112233445566778899aabbccddeeff00112233445566778899";

/// Pods of the host: the metadata of the container whose ID begins with the number of the process.
#[derive(Debug, Default)]
struct Listed(Vec<(u32, &'static str)>);

impl ContainerMetadata for Listed {
    fn identities(&self, paths: &[Arc<str>]) -> Vec<Option<Arc<Identity>>> {
        let identity = |path: &Arc<str>| {
            let (_, name) = self.0.iter().find(|(pid, _)| **path == container(*pid))?;
            let pod = Pod { namespace: "shop".into(), name: (*name).into(), uid: "u".into() };
            Some(Arc::new(Identity { pod: Some(pod), container: Some("app".into()), ..Identity::default() }))
        };
        paths.iter().map(identity).collect()
    }

    fn has_sources(&self) -> bool {
        !self.0.is_empty()
    }

    fn generation(&self) -> u64 {
        0
    }
}

/// Returns the path of the cgroup of a container with one process.
fn container(pid: u32) -> String {
    format!("/kubepods/pod{pid}/{pid:02}{}", &ID[2..])
}

/// A host with a process in each cgroup, whose root directory contains the file `/app`.
struct Host {
    dir: tempfile::TempDir,
    roots: Roots,
}

impl Host {
    fn new(processes: &[(u32, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        fs::create_dir_all(roots.proc.join("self")).unwrap();
        fs::write(roots.proc.join("self/mountinfo"), "1 1 0:1 / /cg rw - cgroup2 c rw\n").unwrap();
        fs::write(roots.proc.join("cgroups"), "perf_event\t0\t1\t1\n").unwrap();
        fs::create_dir_all(dir.path().join("cg")).unwrap();
        let host = Self { dir, roots };
        processes.iter().for_each(|(pid, path)| host.start(*pid, path));
        host
    }

    fn start(&self, pid: u32, path: &str) {
        let cgroup = self.dir.path().join("cg").join(&path[1..]);
        fs::create_dir_all(&cgroup).unwrap();
        for dir in cgroup.ancestors().take_while(|dir| *dir != self.dir.path()) {
            if !dir.join("cgroup.procs").exists() {
                fs::write(dir.join("cgroup.procs"), "").unwrap();
            }
        }
        fs::write(cgroup.join("cgroup.procs"), format!("{pid}\n")).unwrap();
        let root = self.root(pid);
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("app"), format!("program of {pid}")).unwrap();
    }

    fn root(&self, pid: u32) -> PathBuf {
        self.roots.proc.join(pid.to_string()).join("root")
    }

    fn open(&self, rule: ContainerRule, listed: Vec<(u32, &'static str)>) -> Result<FoundFiles, NotFound> {
        let metadata = Some(Arc::new(Listed(listed)) as Arc<dyn ContainerMetadata>);
        let sources = FileSources { files: Files::here(&self.roots), metadata };
        sources.search().open(&Within::Containers(Box::new(rule)), "/app")
    }

    /// Returns the processes in whose roots the files were found.
    fn found(&self, rule: ContainerRule, listed: Vec<(u32, &'static str)>) -> Vec<u32> {
        let found = self.open(rule, listed).unwrap();
        assert_eq!(found.files.len(), found.keys.len());
        found.files.iter().filter_map(|file| file.opened.pid).collect()
    }
}

fn cgroup(pattern: &str) -> ContainerRule {
    ContainerRule { cgroup: Some(Glob::new(pattern).unwrap()), ..ContainerRule::default() }
}

fn pod(pattern: &str) -> ContainerRule {
    let pod = PodRule { pod: Some(Glob::new(pattern).unwrap()), ..PodRule::default() };
    ContainerRule { pod, ..ContainerRule::default() }
}

fn reason(found: Result<FoundFiles, NotFound>) -> String {
    found.unwrap_err().to_string()
}

#[test]
fn a_pattern_finds_the_file_of_each_cgroup_that_matches_in_the_order_of_their_paths() {
    let host = Host::new(&[(7, "/a/web-2"), (8, "/a/web-1"), (9, "/a/db"), (10, "/b/web-3")]);
    assert_eq!(host.found(cgroup("/a/web-*"), vec![]), [8, 7]);
    assert_eq!(host.found(cgroup("{/b,/a}/*"), vec![]), [9, 8, 7, 10]);
    assert_eq!(host.found(cgroup("/a"), vec![]).len(), 1, "one file of the cgroups below");
    assert_eq!(
        reason(host.open(cgroup("/c/*"), vec![])),
        "no cgroup matches cgroup /c/*; the probe is installed when one does"
    );
}

#[test]
fn a_file_that_several_containers_share_is_found_once() {
    let host = Host::new(&[(7, "/a/one"), (8, "/a/two")]);
    fs::remove_file(host.root(8).join("app")).unwrap();
    fs::hard_link(host.root(7).join("app"), host.root(8).join("app")).unwrap();
    assert_eq!(host.found(cgroup("/a/*"), vec![]), [7]);
}

#[test]
fn cgroups_without_the_file_do_not_keep_the_others_from_being_probed() {
    let host = Host::new(&[(7, "/a/one"), (8, "/a/two")]);
    fs::remove_file(host.root(7).join("app")).unwrap();
    assert_eq!(host.found(cgroup("/a/*"), vec![]), [8]);
    fs::remove_file(host.root(8).join("app")).unwrap();
    fs::create_dir_all(host.dir.path().join("cg/a/empty")).unwrap();
    let reason = reason(host.open(cgroup("/a/*"), vec![]));
    assert!(reason.ends_with("7/root/app does not exist"), "not that a cgroup is empty: {reason}");
}

#[test]
fn the_number_of_files_is_bounded_and_the_rest_is_noted() {
    let paths: Vec<(u32, String)> = (10..30).map(|pid| (pid, format!("/a/{pid}"))).collect();
    let host = Host::new(&paths.iter().map(|(pid, path)| (*pid, path.as_str())).collect::<Vec<_>>());
    let found = host.open(cgroup("/a/*"), vec![]).unwrap();
    assert_eq!(found.files.len(), FILE_LIMIT);
    assert_eq!(
        found.notes,
        [
            "/app is a different file in 4 further cgroups that match cgroup /a/*; an entry probes at most 16 files: use narrower patterns"
        ]
    );
    let again = host.open(cgroup("/a/*"), vec![]).unwrap();
    assert_eq!(found.keys, again.keys, "the same files each time, so that probes stay where they are");
}

#[test]
fn a_rule_for_pods_finds_the_containers_with_this_metadata() {
    let (seven, eight) = (container(7), container(8));
    let host = Host::new(&[(7, &seven), (8, &eight), (9, "/system.slice/web.service")]);
    let listed = || vec![(7, "web-0"), (8, "db-0")];
    assert_eq!(host.found(pod("web-*"), listed()), [7]);
    assert_eq!(host.found(pod("*"), listed()), [7, 8]);
    let both = ContainerRule { cgroup: Glob::new("/kubepods/pod8/*").ok(), ..pod("*") };
    assert_eq!(host.found(both, listed()), [8]);
    assert_eq!(
        reason(host.open(pod("api-*"), listed())),
        "no container matches pod api-*; the probe is installed when one does"
    );
    assert_eq!(
        reason(host.open(pod("web-*"), vec![(8, "db-0")])),
        "no container matches pod web-*; cgroups of containers without metadata so far: 1"
    );
    assert!(reason(host.open(pod("web-*"), vec![])).contains("there is no metadata source"));
}

#[test]
fn the_key_of_a_file_is_its_device_and_inode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app");
    fs::write(&path, "x").unwrap();
    let opened = Opened::own(fs::File::open(&path).unwrap(), path.clone());
    let metadata = fs::metadata(Path::new(&path)).unwrap();
    let key = FileKey::of(&opened).unwrap();
    assert_eq!(key.inode, metadata.ino());
    if opened.filesystem_type() != Some(OVERLAYFS) {
        assert_eq!((key.device, key.content), (metadata.dev(), (0, 0, 0)));
    }
}
