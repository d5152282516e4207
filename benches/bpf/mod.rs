//! A BPF program that counts by cgroup as the switch stream does. It is built where clang and libbpf are installed.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::lines::Lines;

/// The built program.
pub(crate) struct Bpf(tempfile::TempDir);

impl Bpf {
    /// Builds the program.
    ///
    /// # Errors
    /// Returns the missing tool or the compiler's output.
    pub(crate) fn build() -> Result<Self, String> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/bpf");
        let dir = tempfile::tempdir().unwrap();
        // Debian has asm/types.h in this directory. On other systems it does not exist and is not needed.
        let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let mut clang = Command::new("clang");
        clang.args(["-O2", "-g", "-target", "bpf", &headers, "-c"]);
        run(clang.arg(sources.join("switch.bpf.c")).arg("-o").arg(dir.path().join("switch.o")))?;
        let mut cc = Command::new("cc");
        cc.arg("-O2").arg(sources.join("switch.c")).arg("-o").arg(dir.path().join("switch")).arg("-lbpf");
        run(&mut cc)?;
        Ok(Self(dir))
    }

    /// Starts the program, and returns when it counts.
    ///
    /// # Errors
    /// Returns its output if it fails.
    pub(crate) fn start(&self) -> Result<Counting, String> {
        let mut command = Command::new(self.0.path().join("switch"));
        command.arg(self.0.path().join("switch.o"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let (said, complaints) =
            (Lines::of(child.stdout.take().unwrap()), Lines::of(child.stderr.take().unwrap()));
        let counting = Counting { child, said };
        if counting.said.next().as_deref() == Some("counting") {
            return Ok(counting);
        }
        Err(std::iter::from_fn(|| complaints.next()).collect::<Vec<_>>().join("; "))
    }
}

/// The counting program. It exits when the value is dropped.
pub(crate) struct Counting {
    child: Child,
    said: Lines,
}

impl Counting {
    /// Ends it, and returns the number of context switches that it counted for the cgroup with this id.
    pub(crate) fn context_switches(mut self, cgroup: u64) -> f64 {
        drop(self.child.stdin.take());
        let fields = |line: String| -> Vec<u64> {
            line.split(' ').map(|field| field.parse().unwrap_or_default()).collect()
        };
        let mut lines = std::iter::from_fn(|| self.said.next()).map(fields);
        // The id, then the counts in the order of switch.c.
        let of_cgroup = lines.find(|fields| fields.first() == Some(&cgroup));
        of_cgroup.and_then(|fields| fields.get(3).copied()).unwrap_or_default() as f64
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}", said.lines().find(|line| line.contains("error")).unwrap_or(said.trim())))
}
