//! A containerd instance of the test, with pods that the test runs through CRI as the kubelet does.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use perf_exporter::host;
use perf_exporter::net::Bytewise;
use prost::Message;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::support::eventually;

/// Image of the containers. It contains only one program.
pub(super) const IMAGE: &str = "localhost/busy:1";

/// Alternates between work and sleep until SIGTERM. It is also the pause container.
const PROGRAM: &str = r#"
#include <signal.h>
#include <time.h>
#include <unistd.h>
static void end(int signal) { _exit(0); }
__attribute__((noinline)) void burn_in_container(void) {
    clock_t until = clock() + CLOCKS_PER_SEC / 50;
    while (clock() < until) { }
}
int main(int argc, char **argv) {
    signal(SIGTERM, end);
    struct timespec nap = {0, 20000000};
    for (;;) {
        if (argc > 1) burn_in_container();
        nanosleep(&nap, 0);
    }
}
"#;

#[derive(Clone, PartialEq, Message)]
struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "3")]
    log_directory: String,
    #[prost(map = "string, string", tag = "6")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "7")]
    annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxPodSandboxConfig {
    #[prost(string, tag = "1")]
    cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    security: Option<LinuxSandboxSecurityContext>,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxSandboxSecurityContext {
    #[prost(message, optional, tag = "1")]
    namespaces: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, Message)]
struct NamespaceOption {
    /// 2 is the network namespace of the node, so that no network has to be set up.
    #[prost(int32, tag = "1")]
    network: i32,
}

/// `ListImagesResponse`
#[derive(Clone, PartialEq, Message)]
struct Images {
    #[prost(message, repeated, tag = "1")]
    images: Vec<Id>,
}

/// A message with one string: the id of a pod or container.
#[derive(Clone, PartialEq, Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    sandbox: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Named>,
    #[prost(message, optional, tag = "2")]
    image: Option<Named>,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
}

/// `ContainerMetadata` and `ImageSpec`.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

/// A running containerd. It is stopped with all its pods when it is dropped.
#[derive(Debug)]
pub(super) struct Containerd {
    child: Child,
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    /// ID of the image, with which the kubelet creates containers.
    image: String,
    dir: tempfile::TempDir,
    pods: Vec<String>,
    /// Parent cgroup of all pods.
    parent: String,
}

/// A pod with one container.
#[derive(Debug)]
pub(super) struct TestPod {
    sandbox: String,
    pub(super) container: String,
}

impl Containerd {
    /// Starts containerd and imports the image.
    pub(super) fn start() -> Self {
        // The path of a socket has a small maximum length.
        let dir = tempfile::Builder::new().prefix("cri").tempdir_in("/tmp").unwrap();
        let at = |name: &str| dir.path().join(name);
        let root = dir.path().display();
        fs::write(
            at("config.toml"),
            format!(
                "version = 2\nroot = \"{root}/root\"\nstate = \"{root}/state\"\n\
                 [grpc]\naddress = \"{root}/cri.sock\"\n[ttrpc]\naddress = \"{root}/ttrpc.sock\"\n\
                 [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{root}/opt\"\n\
                 [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"{IMAGE}\"\n\
                 disable_tcp_service = true\nrestrict_oom_score_adj = true\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"{root}/cni\"\nconf_dir = \"{root}/cni\"\n"
            ),
        )
        .unwrap();
        fs::create_dir(at("cni")).unwrap();
        let log = fs::File::create(at("log")).unwrap();
        let mut command = Command::new("containerd");
        command.arg("--config").arg(at("config.toml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::from_shared(format!("unix:{root}/cri.sock")).unwrap();
        let channel = runtime.block_on(async { endpoint.timeout(Duration::from_secs(60)).connect_lazy() });
        let parent = format!("/perf-exporter-pods-{}", dir.path().file_name().unwrap().display());
        let image = String::new();
        let mut containerd = Self { child, runtime, channel, image, dir, pods: Vec::new(), parent };
        eventually("containerd answers requests", || {
            containerd.call::<_, Id>("Status", &Id { id: String::new() }).ok()
        });
        containerd.import();
        containerd.image = eventually("the image is listed", || {
            let images: Images = containerd.call_of("ImageService", "ListImages", &Id::default()).ok()?;
            images.images.into_iter().next().map(|image| image.id)
        });
        containerd
    }

    /// Returns the path of its socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.dir.path().join("cri.sock")
    }

    /// Returns the path of the parent cgroup of all pods.
    pub(super) fn parent(&self) -> &str {
        &self.parent
    }

    /// Builds the image from the program and imports it, without a registry.
    fn import(&self) {
        let at = |name: &str| self.dir.path().join("image").join(name);
        fs::create_dir_all(at("layer")).unwrap();
        fs::write(at("busy.c"), PROGRAM).unwrap();
        let program = at("layer/busy");
        run(Command::new("gcc").args(["-O1", "-static", "-o"]).arg(&program).arg(at("busy.c")));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        run(Command::new("tar").arg("-C").arg(at("layer")).arg("-cf").arg(at("layer.tar")).arg("busy"));
        let digest = ring::digest::digest(&ring::digest::SHA256, &host::read(&at("layer.tar")).unwrap());
        let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{"Entrypoint":["/busy"]}},"rootfs":{{"type":"layers","diff_ids":["sha256:{digest}"]}}}}"#
        );
        fs::write(at("config.json"), config).unwrap();
        let manifest =
            format!(r#"[{{"Config":"config.json","RepoTags":["{IMAGE}"],"Layers":["layer.tar"]}}]"#);
        fs::write(at("manifest.json"), manifest).unwrap();
        let archive = self.dir.path().join("image.tar");
        let files = ["manifest.json", "config.json", "layer.tar"];
        run(Command::new("tar").arg("-C").arg(at("")).arg("-cf").arg(&archive).args(files));
        let mut import = Command::new("ctr");
        import.arg("--address").arg(self.socket()).args(["--namespace", "k8s.io", "images", "import"]);
        run(import.args(["--snapshotter", "native"]).arg(&archive));
    }

    /// Runs a pod with one working container.
    pub(super) fn run(&mut self, name: &str, labels: &[(&str, &str)]) -> TestPod {
        let texts = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let uid = format!("0a1b2c3d-0011-2233-4455-{:012x}", self.pods.len() + 1);
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.clone(),
                namespace: "shop".to_owned(),
            }),
            log_directory: self.dir.path().display().to_string(),
            labels: texts(labels),
            annotations: texts(&[("example.com/team", "checkout")]),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/kubepods/burstable/pod{uid}", self.parent),
                security: Some(LinuxSandboxSecurityContext {
                    namespaces: Some(NamespaceOption { network: 2 }),
                }),
            }),
        };
        let made: Id = self.must("RunPodSandbox", &RunPodSandboxRequest { config: Some(config.clone()) });
        let sandbox = made.id;
        self.pods.push(sandbox.clone());
        let named = |name: &str| Some(Named { name: name.to_owned() });
        let container: Id = self.must(
            "CreateContainer",
            &CreateContainerRequest {
                sandbox: sandbox.clone(),
                config: Some(ContainerConfig {
                    metadata: named("app"),
                    image: named(&self.image),
                    command: vec!["/busy".to_owned(), "work".to_owned()],
                }),
                sandbox_config: Some(config),
            },
        );
        let _: Id = self.must("StartContainer", &container);
        TestPod { sandbox, container: container.id }
    }

    /// Stops and removes a pod.
    pub(super) fn remove(&mut self, pod: &TestPod) {
        let id = Id { id: pod.sandbox.clone() };
        let _: Id = self.must("StopPodSandbox", &id);
        let _: Id = self.must("RemovePodSandbox", &id);
        self.pods.retain(|sandbox| *sandbox != pod.sandbox);
    }

    /// Stops or resumes the containerd process; a stopped one does not answer.
    pub(super) fn pause(&self, paused: bool) {
        let signal = if paused { libc::SIGSTOP } else { libc::SIGCONT };
        let pid = rustix::process::Pid::from_child(&self.child);
        let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn must<Q: Message, A: Message + Default>(&self, method: &str, request: &Q) -> A {
        self.call(method, request).unwrap_or_else(|status| {
            let log = host::read_text(&self.dir.path().join("log")).unwrap_or_default();
            panic!("{method}: {status}\n{}", log.lines().rev().take(10).collect::<Vec<_>>().join("\n"))
        })
    }

    fn call<Q: Message, A: Message + Default>(&self, method: &str, request: &Q) -> Result<A, Status> {
        self.call_of("RuntimeService", method, request)
    }

    fn call_of<Q: Message, A: Message + Default>(
        &self,
        service: &str,
        method: &str,
        request: &Q,
    ) -> Result<A, Status> {
        let path = format!("/runtime.v1.{service}/{method}").parse().unwrap();
        let request = tonic::Request::new(Bytes::from(request.encode_to_vec()));
        let mut calls = tonic::client::Grpc::new(self.channel.clone());
        let answer = self.runtime.block_on(async {
            calls.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            calls.unary(request, path, Bytewise).await
        })?;
        // An answer that the caller does not use may be of any type.
        Ok(A::decode(answer.into_inner()).unwrap_or_default())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.pause(false);
        for sandbox in std::mem::take(&mut self.pods) {
            let id = Id { id: sandbox };
            self.call::<_, Id>("StopPodSandbox", &id).ok();
            self.call::<_, Id>("RemovePodSandbox", &id).ok();
        }
        self.child.kill().ok();
        self.child.wait().ok();
        unmount_below(self.dir.path());
        remove_cgroups(&self.parent);
    }
}

/// Removes the cgroups of pods in each hierarchy, which is the kubelet's job.
fn remove_cgroups(path: &str) {
    let mounts = host::read_text(Path::new("/proc/self/mounts")).unwrap_or_default();
    for mount in
        mounts.lines().filter(|line| line.split(' ').nth(2).is_some_and(|kind| kind.starts_with("cgroup")))
    {
        let point = mount.split(' ').nth(1).unwrap_or_default();
        remove_tree(&Path::new(point).join(path.trim_start_matches('/')));
    }
}

fn remove_tree(dir: &Path) {
    for name in host::list(dir).unwrap_or_default() {
        let path = dir.join(name);
        if path.is_dir() {
            remove_tree(&path);
        }
    }
    fs::remove_dir(dir).ok();
}

/// Unmounts file systems of sandboxes, which outlive a killed containerd.
fn unmount_below(dir: &Path) {
    let mounts = host::read_text(Path::new("/proc/self/mounts")).unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for point in points.filter(|point| Path::new(point).starts_with(dir)) {
        rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).ok();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
