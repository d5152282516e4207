//! Arguments of `perf-exporter mem`, and those of recordings that `perf-exporter c2c` has in common.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::cli::observe::{Target, seconds};
use crate::cli::percent;
use crate::cli::report::{FilterArgs, expected};
use crate::host::CpuSet;
use crate::named_enum::named_enum;
use crate::report::Key;

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct MemArgs {
    #[command(subcommand)]
    pub(super) command: MemCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub(super) enum MemCommand {
    /// Sample loads and stores into a file, with the address and the source of the data and the latency.
    Record(MemRecordArgs),
    /// Show the memory accesses of a recording by latency, source, function and variable.
    Report(MemReportArgs),
}

named_enum! {
    /// A kind of memory accesses.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Operation {
        /// Loads.
        Load = "load",
        /// Stores.
        Store = "store",
    }
}

/// The target, the rate and the file of a recording of memory accesses.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct AccessRecordArgs {
    /// Output file. An existing file is renamed to FILE.old.
    #[arg(short = 'o', long, value_name = "FILE", default_value = "perf.data")]
    pub(in crate::cli) output: PathBuf,
    /// Shortest latency of sampled loads in cycles, where the hardware has a threshold. The default is 30.
    #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(in crate::cli) ldlat: Option<u32>,
    /// Approximate samples per second on each CPU. The default is 99, and 4000 for a command, but at most the kernel's maximum.
    #[arg(short = 'F', long = "freq", value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub(in crate::cli) frequency: Option<u64>,
    /// Sample one in PERIOD accesses instead.
    #[arg(short = 'c', long = "count", value_name = "PERIOD", conflicts_with = "frequency", value_parser = clap::value_parser!(u64).range(1..))]
    pub(in crate::cli) period: Option<u64>,
    /// Sample accesses by programs only.
    #[arg(long, conflicts_with = "all_kernel")]
    pub(in crate::cli) all_user: bool,
    /// Sample accesses by the kernel only.
    #[arg(long)]
    pub(in crate::cli) all_kernel: bool,
    /// Record the call chains of frame pointers too.
    #[arg(short = 'g')]
    pub(in crate::cli) chains: bool,
    /// Sample the whole machine.
    #[arg(short = 'a', long)]
    all_cpus: bool,
    /// Sample these processes with all their threads and children, until they end.
    #[arg(long, value_name = "PID,…", value_delimiter = ',', conflicts_with_all = ["all_cpus", "cpu", "cgroup", "tid"])]
    pid: Vec<u32>,
    /// Sample these threads and their children, until they end.
    #[arg(long, value_name = "TID,…", value_delimiter = ',', conflicts_with_all = ["all_cpus", "cpu", "cgroup"])]
    tid: Vec<u32>,
    /// Sample these cgroups: paths below the root of the cgroup hierarchy, or in the file system.
    #[arg(short = 'G', long, value_name = "CGROUP,…", value_delimiter = ',')]
    cgroup: Vec<String>,
    /// Sample only these CPUs: 0-3,8.
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<CpuSet>,
    /// Stop after this number of seconds. A command receives SIGTERM.
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(in crate::cli) duration: Option<Duration>,
    /// Compress the records with zstd.
    #[arg(short = 'z', long)]
    pub(in crate::cli) compress: bool,
    /// Command to run and sample, with its arguments.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(in crate::cli) command: Vec<OsString>,
}

impl AccessRecordArgs {
    /// Returns the target. With a target, a command only limits the duration.
    pub(in crate::cli) fn target(&self) -> Target {
        if !self.pid.is_empty() {
            Target::Processes(self.pid.clone())
        } else if !self.tid.is_empty() {
            Target::Threads(self.tid.clone())
        } else if !self.cgroup.is_empty() {
            Target::Cgroups(self.cgroup.clone(), self.cpu.clone())
        } else if self.all_cpus || self.cpu.is_some() || self.command.is_empty() {
            Target::Machine(self.cpu.clone())
        } else {
            Target::Command
        }
    }
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Requires hardware that samples memory accesses: Intel since Nehalem, AMD with IBS, or POWER since POWER8. Virtual machines have it only if \
the hypervisor passes it on. AMD samples loads and stores with one event, therefore -t and --ldlat do not apply there.

Without --pid, --tid, -G, -a, -C or a command, the whole machine is sampled until Ctrl-C. View the file with perf-exporter mem report, \
perf-exporter c2c report, or those of perf.

Exit codes: the exit code of the command; 1 if nothing could be recorded, 2 for invalid arguments, 126 or 127 if the command cannot be run.")]
pub(super) struct MemRecordArgs {
    /// Kinds of accesses: load, store.
    #[arg(short = 't', long = "type", value_name = "KIND,…", value_delimiter = ',', default_value = "load,store", value_parser = operation)]
    pub(super) operations: Vec<Operation>,
    /// Record physical addresses too. Requires privileges.
    #[arg(short = 'p', long = "phys-data")]
    pub(super) physical: bool,
    #[command(flatten)]
    pub(super) record: AccessRecordArgs,
}

#[derive(Debug, Clone, Args)]
pub(super) struct MemReportArgs {
    /// Recording of perf-exporter or perf: perf mem record, perf c2c record, or perf record -d -W.
    #[arg(short = 'i', long = "input", value_name = "FILE", default_value = "perf.data")]
    pub(super) input: PathBuf,
    /// Print text, which is the only output.
    #[arg(long)]
    _stdio: bool,
    /// Columns: local_weight, mem, symbol, dso, symbol_daddr, dso_daddr, snoop, tlb, locked, blocked, local_ins_lat, phys_daddr, and those
    /// of report. The default is the first ten.
    #[arg(short = 's', long, value_name = "KEY,…", value_delimiter = ',', value_parser = key)]
    sort: Vec<Key>,
    /// Kinds of accesses for which columns are shown by default: stores have no latency.
    #[arg(short = 't', long = "type", value_name = "KIND,…", value_delimiter = ',', default_value = "load,store", value_parser = operation)]
    operations: Vec<Operation>,
    /// Add the column of physical addresses.
    #[arg(short = 'p', long = "phys-data")]
    physical: bool,
    /// Smallest share of an entry, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0")]
    pub(super) percent_limit: f64,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
}

impl MemReportArgs {
    /// Returns the columns, as those of perf. `has_latency`: whether samples contain the latency of the instruction.
    pub(super) fn sort(&self, has_latency: bool) -> Vec<Key> {
        let mut sort = match (&self.sort[..], self.operations.contains(&Operation::Load)) {
            ([], true) => vec![
                Key::LocalWeight,
                Key::Mem,
                Key::Symbol,
                Key::Dso,
                Key::DataSymbol,
                Key::DataObject,
                Key::Snoop,
                Key::Tlb,
                Key::Locked,
                Key::Blocked,
            ],
            ([], false) => {
                vec![Key::Mem, Key::Symbol, Key::Dso, Key::DataSymbol, Key::DataObject, Key::Tlb, Key::Locked]
            }
            (chosen, _) => chosen.to_vec(),
        };
        if self.sort.is_empty() && has_latency && sort.contains(&Key::LocalWeight) {
            sort.push(Key::LocalLatency);
        }
        if self.physical && !sort.contains(&Key::PhysicalAddress) {
            sort.push(Key::PhysicalAddress);
        }
        sort
    }
}

fn operation(word: &str) -> Result<Operation, String> {
    let found = Operation::ALL.into_iter().find(|operation| operation.as_str() == word);
    found.ok_or_else(|| "expected load, store or both: load,store".into())
}

fn key(word: &str) -> Result<Key, String> {
    Key::parse(word).ok_or_else(|| expected(Key::ALL.into_iter()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    fn sort(line: &str, has_latency: bool) -> String {
        let sort = typed::<MemReportArgs>(line).unwrap().sort(has_latency);
        sort.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn the_columns_are_those_of_perf() {
        let usual = "local_weight,mem,symbol,dso,symbol_daddr,dso_daddr,snoop,tlb,locked,blocked";
        assert_eq!(sort("", false), usual);
        assert_eq!(sort("", true), format!("{usual},local_ins_lat"));
        assert_eq!(sort("-t store", true), "mem,symbol,dso,symbol_daddr,dso_daddr,tlb,locked");
        assert_eq!(sort("--sort mem,sym -p", true), "mem,symbol,phys_daddr");
    }

    #[test]
    fn a_target_or_a_command_is_sampled_or_the_whole_machine() {
        let target = |line: &str| typed::<MemRecordArgs>(line).unwrap().record.target();
        assert_eq!(target(""), Target::Machine(None));
        assert_eq!(target("-- ls"), Target::Command);
        assert_eq!(target("-a -- sleep 1"), Target::Machine(None));
        assert_eq!(target("--pid 7,8"), Target::Processes(vec![7, 8]));
        assert_eq!(target("--tid 9"), Target::Threads(vec![9]));
        assert_eq!(target("-G a"), Target::Cgroups(vec!["a".into()], None));
        assert_eq!(target("-C 0-1"), Target::Machine(Some("0-1".parse().unwrap())));
    }

    #[test]
    fn nonsense_is_answered_with_what_is_possible() {
        for (line, words) in [
            ("-t fetch", "expected load, store or both"),
            ("--ldlat 0", "0 is not in 1..=65535"),
            ("-F 99 -c 1000", "cannot be used with"),
            ("--all-user --all-kernel", "cannot be used with"),
            ("--pid 1 -a", "cannot be used with"),
        ] {
            let error = typed::<MemRecordArgs>(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        let error = typed::<MemReportArgs>("--sort weather").unwrap_err();
        assert!(error.contains("local_weight, mem, symbol_daddr"), "{error}");
    }
}
