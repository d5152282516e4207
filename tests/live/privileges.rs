//! The table of `docs/privileges.md`, row by row. The service runs with exactly the listed capabilities, as root and as another user.
//! Features within the capabilities work; all others fail and are reported as in the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use perf_exporter::host::{Facts, KernelVersion, Roots, read_text};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::folded::Folded;
use crate::support::lines::Lines;
use crate::support::program::{Program, Running, copy_program};
use crate::support::service::{Service, get_path};
use crate::support::{Feature, eventually, lacks};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/privileges.md");

/// A uid that owns neither the exporter's files nor any file or process of the targets.
const NOBODY: u32 = 65534;

type Capabilities = BTreeSet<String>;

/// A row of the table.
#[derive(Debug)]
struct Row {
    feature: String,
    /// Required capabilities, for uid 0 and for other users.
    needs: [Capabilities; 2],
    /// Metrics with labels. At least one of them is above 0 where the feature fails.
    told: Vec<String>,
}

/// Returns the texts between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn table() -> Vec<Row> {
    let page = read_text(Path::new(TABLE)).unwrap();
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ").collect();
        let [feature, _, root, others, told] = cells[..] else { return None };
        let needs = [root, others].map(|cell| quoted(cell).map(str::to_owned).collect());
        let told = quoted(told).filter(|text| text.starts_with("perf_")).map(str::to_owned).collect();
        Some(Row { feature: feature.trim_end_matches('`').to_owned(), needs, told })
    });
    rows.collect()
}

/// Returns the capabilities and those that they imply.
fn implied(given: &Capabilities) -> Capabilities {
    let mut all = given.clone();
    for (strong, weak) in
        [("SYS_ADMIN", "PERFMON"), ("SYS_ADMIN", "CHECKPOINT_RESTORE"), ("DAC_OVERRIDE", "DAC_READ_SEARCH")]
    {
        if given.contains(strong) {
            all.insert(weak.to_owned());
        }
    }
    all
}

/// Returns the sets of capabilities to test: none, those of each row, and those of each row without one.
fn sets(rows: &[Row], user: usize) -> BTreeSet<Capabilities> {
    let mut sets = BTreeSet::from([Capabilities::new()]);
    for row in rows {
        let needs = &row.needs[user];
        sets.insert(needs.clone());
        sets.extend(needs.iter().map(|left| needs.iter().filter(|name| *name != left).cloned().collect()));
    }
    // Without CAP_PERFMON the service can show no data.
    sets.retain(|set| set.is_empty() || implied(set).contains("PERFMON"));
    sets
}

/// Returns a command that executes `program` as this user with these capabilities, in all capability sets of the process.
fn with(user: u32, given: &Capabilities, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let list = given.iter().fold("-all".to_owned(), |list, name| format!("{list},+{}", name.to_lowercase()));
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups");
    for kind in ["bounding-set", "inh-caps", "ambient-caps"] {
        command.arg(format!("--{kind}={list}"));
    }
    command.arg(program);
    command
}

/// Programs that use CPU time as uid 65533: one on this machine, and three in their own mount namespace as in a container. Of the three
/// files, one is readable by all, one by its owner only, and one is deleted.
struct Neighbours {
    dir: tempfile::TempDir,
    shell: Child,
    /// Another program outside the namespace, which causes kernel work.
    faulting: Child,
    outside: Option<Running>,
    /// Pids by name.
    pids: BTreeMap<String, u32>,
    cgroup: Option<TestCgroup>,
}

/// Starts three programs in a mount namespace with its own root. They wait until the root is switched.
const STARTS: &str = r#"
mount -t tmpfs -o mode=755 none "$0" && mkdir "$0/old" && mkdir -m 777 "$0/ready" || exit
for name in open closed gone; do cp "$1" "$0/pe_$name"; chmod 755 "$0/pe_$name"; done
chown 65533:65533 "$0/pe_closed" && chmod 700 "$0/pe_closed" || exit
for name in open closed gone; do
  echo 'spins 3600000' | nice -n 10 setpriv --reuid=65533 --regid=65533 --clear-groups \
    sh -c ': >"$1/ready/$0"; until [ -e /pe_go ]; do :; done; exec "/pe_$0"' "$name" "$0" >/dev/null &
  echo "pe_$name $!"
done
until [ -e "$0/ready/open" ] && [ -e "$0/ready/closed" ] && [ -e "$0/ready/gone" ]; do sleep 0.05; done
cd "$0" && pivot_root . old && : >/pe_go
echo done
wait
"#;

impl Neighbours {
    fn start(name: &str) -> Self {
        let program = Program::compile_hot("pe_hot", &["-static"]);
        let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let (inside, host) = (dir.path().join("inside"), dir.path().join("pe_host"));
        let faulting = dir.path().join("pe_faults");
        fs::create_dir(&inside).unwrap();
        program.copy_to(&host);
        program.copy_to(&faulting);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", STARTS]);
        command.arg(&inside).arg(program.path()).process_group(0);
        let mut shell = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(shell.stdout.take().unwrap());
        let mut pids = BTreeMap::new();
        loop {
            let line = lines.next().expect("the programs have started");
            let Some((name, pid)) = line.split_once(' ') else { break };
            pids.insert(name.to_owned(), pid.parse().unwrap());
        }
        // Another one outside the namespace.
        let mut outside = Command::new("setpriv");
        outside.args(["--reuid=65533", "--regid=65533", "--clear-groups"]).arg(&host);
        let mut outside = Running::by(&mut outside);
        outside.told("spins 3600000");
        pids.insert("pe_host".to_owned(), outside.pid());
        let faulting = Command::new("nice")
            .args(["-n", "10", "setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"])
            .args(["sh", "-c", "yes 'faults 1000' | \"$0\" >/dev/null"])
            .arg(&faulting)
            .process_group(0)
            .spawn()
            .unwrap();
        let cgroup = TestCgroup::new(name);
        for &pid in pids.values() {
            cgroup.take(pid);
        }
        for (name, pid) in &pids {
            let comm = || read_text(Path::new(&format!("/proc/{pid}/comm"))).is_ok_and(|comm| comm == *name);
            eventually("the process has the expected name", || comm().then_some(()));
        }
        fs::remove_file(format!("/proc/{}/root/pe_gone", pids["pe_gone"])).unwrap();
        Self { dir, shell, faulting, outside: Some(outside), pids, cgroup: Some(cgroup) }
    }

    /// Returns the CPU time of each program: the first field of `schedstat`.
    fn cpu_times(&self) -> Vec<Duration> {
        let of = |pid: &u32| {
            let schedstat = read_text(Path::new(&format!("/proc/{pid}/schedstat"))).unwrap();
            Duration::from_nanos(schedstat.split(' ').next().unwrap().parse().unwrap())
        };
        self.pids.values().map(of).collect()
    }

    fn configuration(&self) -> String {
        let cgroup = self.cgroup.as_ref().unwrap().path();
        let (dir, inside) = (self.dir.path().display(), self.pids["pe_open"]);
        format!(
            "collection: {{interval: 1m, freshness: 0s}}\n\
             counters:\n  os: {{events: [task-clock], per: [cpu, cgroup, process]}}\n  \
             own: {{events: [page-faults], per: [cgroup], cgroups: {{include: [\"{cgroup}\"], attribution: dedicated}}}}\n\
             cgroups: {{include: [\"{cgroup}\"], attribution: stream}}\n\
             processes: {{include: [{{comm: \"pe_*\"}}], by: [comm, exe]}}\n\
             tracepoints: {{forked: {{event: \"sched:sched_process_fork\"}}}}\n\
             limits: {{cpu: off}}\n\
             scheduler: {{per: [host]}}\nsyscalls: {{per: [host], include: [wait4, execve]}}\n\
             profiles: {{cpu: {{event: cpu-clock, frequency: 99}}}}\n\
             probes:\n  counts: {{uprobe: \"{dir}/pe_host:three_quarters\"}}\n  \
             arguments: {{uprobe: \"{dir}/pe_host:three_quarters\", arguments: [\"first=$arg1:u64\"]}}\n  \
             inside: {{uprobe: \"/pe_open:three_quarters\", arguments: [\"first=$arg1:u64\"], in: {{pid: {inside}}}}}\n"
        )
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in [&mut self.shell, &mut self.faulting] {
            kill_process_group(Pid::from_child(child), Signal::KILL).unwrap();
            child.wait().unwrap();
        }
        self.outside = None;
        self.cgroup = None;
    }
}

/// An exporter with some capabilities.
struct Attempt<'n> {
    neighbours: &'n Neighbours,
    service: Service,
    user: u32,
    given: Capabilities,
    program: PathBuf,
}

impl Attempt<'_> {
    /// Reports whether a feature works.
    fn works(&self, feature: &str, metrics: &Exposition) -> bool {
        let counts = |name: &str, labels: &[(&str, &str)]| metrics.sum(name, labels) > 0.0;
        let cgroup = self.neighbours.cgroup.as_ref().unwrap().path();
        match feature {
            "counters-cpu" => counts("perf_cpu_task_clock_seconds_total", &[("cpu", "0")]),
            "counters-cgroup" => {
                let series = ["perf_cgroup_task_clock_seconds_total", "perf_cgroup_page_faults_total"];
                series.iter().all(|name| metrics.value(name, &[("cgroup", cgroup)]).is_some())
                    && counts(series[0], &[("cgroup", cgroup)])
            }
            "counters-process" => counts("perf_process_task_clock_seconds_total", &[("comm", "pe_open")]),
            "processes-by-exe" => {
                let exes = metrics.by("perf_process_task_clock_seconds_total", "exe");
                exes.into_iter().any(|(exe, value)| exe.ends_with("/pe_open") && value > 0.0)
            }
            "tracepoints" => counts("perf_tracepoint_forked_total", &[]),
            "scheduler" => counts("perf_sched_run_seconds_total", &[]),
            "syscalls" => counts("perf_syscalls_total", &[("syscall", "wait4")]),
            "profiles" => counts("perf_samples_total", &[("comm", "pe_host")]),
            "user-names" => self.names("pe_open"),
            "unreadable-files" => self.names("pe_closed"),
            "deleted-files" => self.names("pe_gone"),
            "kernel-names" => {
                let (_, folded) = get_path(&self.service.address, "/folded?mode=kernel&comm=pe_faults");
                !folded.is_empty() && !folded.contains("[kernel] 0x")
            }
            "rings" => self.rings_are_free(),
            "probe-counts" => counts("perf_probe_counts_total", &[]),
            "probe-arguments" => counts("perf_probe_arguments_total", &[]),
            "container-probes" => counts("perf_probe_inside_total", &[]),
            "process-context" => self.may(": </proc/$0/mem", &self.neighbours.pids["pe_open"].to_string()),
            "runtime-socket" => {
                self.may("test -w \"$0\"", &self.neighbours.dir.path().join("cri.sock").display().to_string())
            }
            other => panic!("{TABLE} contains the feature {other:?}, for which this test has no check"),
        }
    }

    /// Reports whether functions of a program are symbolized.
    fn names(&self, comm: &str) -> bool {
        let folded = Folded::of(&self.service, &format!("comm={comm}"));
        folded.anywhere().keys().any(|name| *name == "burns")
    }

    /// Reports whether ring memory is not limited by the kernel.
    fn rings_are_free(&self) -> bool {
        let mut check = with(self.user, &self.given, &self.program);
        let checked = check.args(["check", "--config"]).arg(&self.service.configuration).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stdout);
        said.contains("of locked memory") && !said.contains("which does not apply with CAP_IPC_LOCK")
    }

    /// Reports whether a shell with the same rights succeeds.
    fn may(&self, what: &str, argument: &str) -> bool {
        let mut shell = with(self.user, &self.given, "sh");
        let tried = shell.args(["-c", what, argument]).stderr(Stdio::null()).status().unwrap();
        tried.success()
    }

    /// Reports whether one of the metrics in the last column is above 0.
    fn tells(&self, row: &Row, metrics: &Exposition) -> bool {
        row.told.is_empty()
            || row.told.iter().any(|selector| {
                let (name, labels) = selector.trim_end_matches('}').split_once('{').unwrap();
                let labels = labels.split(',').map(|label| label.split_once('=').unwrap());
                let labels: Vec<_> = labels.map(|(name, value)| (name, value.trim_matches('"'))).collect();
                metrics.sum(name, &labels) > 0.0
            })
    }
}

fn lacks_anything() -> bool {
    [
        Feature::Software,
        Feature::Tracepoint,
        Feature::Tracefs,
        Feature::Cgroup,
        Feature::Stream,
        Feature::Uprobe,
        Feature::Compiler,
        Feature::Mounts,
        Feature::Paranoid,
    ]
    .into_iter()
    .any(lacks)
}

/// Copies the program to a path where every user can execute it, because the build directory may not be accessible.
fn program_for_everybody(dir: &Path) -> PathBuf {
    let program = dir.join("perf-exporter");
    copy_program(Path::new(env!("CARGO_BIN_EXE_perf-exporter")), &program);
    program
}

/// Checks every row for one user.
fn holds_for(user: u32, name: &str) {
    let column = usize::from(user != 0);
    let neighbours = Neighbours::start(name);
    let program = program_for_everybody(neighbours.dir.path());
    let socket = neighbours.dir.path().join("cri.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o660)).unwrap();
    let mut rows = table();
    assert!(rows.len() > 15, "{TABLE} has only {} rows that can be parsed", rows.len());
    // This feature changes the machine and has its own test.
    rows.retain(|row| row.feature != "mount-tracefs");
    let facts = Facts::read(&Roots::default());
    // Older kernels may have either rule, because it was backported.
    if facts.kernel < KernelVersion(6, 16) {
        rows.retain(|row| row.feature != "probe-counts");
    }
    // Where the kernel hides or shows its addresses to all users, no capability matters.
    let hides = read_text(&Roots::default().proc.join("sys/kernel/kptr_restrict")).unwrap_or_default();
    if hides == "2" || (hides == "0" && facts.paranoid <= Some(1)) {
        rows.retain(|row| row.feature != "kernel-names");
    }
    let mut failures = Vec::new();
    for given in sets(&rows, column) {
        let attempt = Attempt {
            service: Service::start_by(with(user, &given, &program), &neighbours.configuration()),
            neighbours: &neighbours,
            user,
            program: program.clone(),
            given: given.clone(),
        };
        let all = implied(&given);
        let (should, should_not): (Vec<&Row>, Vec<&Row>) =
            rows.iter().partition(|row| row.needs[column].is_subset(&all));
        let mut missing: Vec<&Row> = should;
        let mut untold: Vec<&Row> = should_not.clone();
        // Each neighbor has used enough CPU time to be sampled, even on a loaded machine.
        let (before, enough) = (neighbours.cpu_times(), Duration::from_millis(500));
        let all_ran =
            || before.iter().zip(neighbours.cpu_times()).all(|(before, now)| now - *before >= enough);
        for look in 0.. {
            if look >= 40 && all_ran() {
                break;
            }
            assert!(Command::new("true").status().unwrap().success());
            let metrics = attempt.service.metrics();
            missing.retain(|row| !attempt.works(&row.feature, &metrics));
            // Without CAP_PERFMON, earlier failures hide the failures of other features.
            untold.retain(|row| {
                let first = given.is_empty() && row.needs[column].len() > 1;
                !first && !attempt.tells(row, &metrics)
            });
            if missing.is_empty() && untold.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        let metrics = attempt.service.metrics();
        let unexpected = should_not.iter().filter(|row| attempt.works(&row.feature, &metrics));
        for (what, rows) in [
            ("does not work", missing),
            ("fails, and the failure is not reported", untold),
            ("works with less than the table says", unexpected.copied().collect()),
        ] {
            for row in rows {
                failures.push(format!("user {user} with {given:?}: {} {what}", row.feature));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_table_holds_for_the_uid_of_root_without_its_capabilities() {
    if !lacks_anything() {
        holds_for(0, "privileges-root");
    }
}

#[test]
fn the_table_holds_for_an_ordinary_user() {
    if !lacks_anything() {
        holds_for(NOBODY, "privileges-user");
    }
}

#[test]
fn tracefs_is_mounted_by_whom_the_table_says() {
    if lacks(Feature::Tracefs) || lacks(Feature::Mounts) {
        return;
    }
    let row = table().into_iter().find(|row| row.feature == "mount-tracefs").unwrap();
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let program = program_for_everybody(dir.path());
    for (user, needs) in [0, NOBODY].into_iter().zip(&row.needs) {
        for (given, works) in [(needs.clone(), true), (Capabilities::from(["PERFMON".to_owned()]), false)] {
            // A mount namespace in which tracefs is not mounted.
            let inner = with(user, &given, &program);
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-c"]);
            command
                .arg("umount -a -t tracefs; exec \"$@\"")
                .arg("sh")
                .arg(inner.get_program())
                .args(inner.get_args());
            let mut service = Service::start_by(
                command,
                "tracefs: {mount: true}\ncounters: {os: {events: [task-clock]}}\n",
            );
            let expected = if works { "tracefs mounted" } else { "cannot mount tracefs" };
            service.has_logged(&[expected]);
        }
    }
}
