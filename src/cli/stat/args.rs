//! Arguments of `perf-exporter stat`: the options of perf, and the settings derived from them.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgAction, Args};

use super::aggregation::{Aggregation, AggregationArgs};
use super::hardware;
use super::metric_list::{self, MetricList, Shown};
use super::output::OutputArgs;
use crate::cli::observe::{Target, TargetArgs};
use crate::event::{Catalog, Modes, Preset, parse, syntax};

/// Shortest interval and timeout of perf, in milliseconds.
const SHORTEST: u64 = 10;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is counted until Ctrl-C. With one of these options, a command \
only limits the duration. Each cgroup is shown separately. The result is written to standard error, as in perf, because \
standard output belongs to the command. --output csv and --output json write the result to standard output.

Exit codes: the exit code of the command; 1 if nothing could be counted, 2 for invalid arguments, 126 or 127 if the \
command cannot be run.")]
pub(in crate::cli) struct StatArgs {
    /// Events to count, in the syntax of perf: cycles,{instructions:u,branches},sched:sched_switch. May be repeated.
    #[arg(short = 'e', long = "event", value_name = "EVENTS", value_parser = events)]
    events: Vec<Events>,
    /// Count additional events: -d first-level and last-level caches, -dd also TLBs and instruction caches, -ddd also prefetches.
    #[arg(short = 'd', long = "detailed", action = ArgAction::Count)]
    detailed: u8,
    /// Show only these metrics or groups of metrics, and count the events that they need: IPC,branch_miss_rate. See perf-exporter list metric.
    #[arg(short = 'M', long, value_name = "METRICS", value_parser = MetricList::parse)]
    metrics: Vec<MetricList>,
    /// Show how the pipeline uses its issue slots: -M topdown-l1,topdown-l2 --metric-only.
    #[arg(long)]
    topdown: bool,
    /// Count hardware transactions, on processors with transactional memory.
    #[arg(short = 'T', long)]
    transaction: bool,
    /// Count no events: show only the time of the command.
    #[arg(short = 'n', long = "null", requires = "command", conflicts_with_all = ["events", "detailed", "metrics", "topdown", "transaction"])]
    null: bool,
    /// Count user space only, in events without u, k or h.
    #[arg(long)]
    all_user: bool,
    /// Count the kernel only, in events without u, k or h.
    #[arg(long, conflicts_with = "all_user")]
    all_kernel: bool,
    #[command(flatten)]
    target_args: TargetArgs,
    #[command(flatten)]
    aggregation_args: AggregationArgs,
    /// Print the counts of each interval of this many milliseconds.
    #[arg(short = 'I', long, value_name = "MS", value_parser = clap::value_parser!(u64).range(SHORTEST..))]
    interval_print: Option<u64>,
    /// Stop after this number of intervals.
    #[arg(long, value_name = "N", requires = "interval_print", value_parser = clap::value_parser!(u64).range(1..))]
    interval_count: Option<u64>,
    /// Stop after this many milliseconds. A command receives SIGTERM.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(SHORTEST..))]
    timeout: Option<u64>,
    /// Start to count this many milliseconds after the start of the command.
    #[arg(short = 'D', long, value_name = "MS", allow_negative_numbers = true, value_parser = delay)]
    delay: Option<Duration>,
    /// Run the command this many times, and show the mean and its standard error.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 1, hide_default_value = true, requires = "command", conflicts_with = "interval_print", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Show the duration of each run of -r.
    #[arg(long, requires = "repeat")]
    pub(super) table: bool,
    #[command(flatten)]
    pub(super) output_args: OutputArgs,
    /// Run this command in a shell before each run of the command.
    #[arg(long, value_name = "CMD", requires = "command")]
    pub(super) pre: Option<OsString>,
    /// Run this command in a shell after each run of the command.
    #[arg(long, value_name = "CMD", requires = "command")]
    pub(super) post: Option<OsString>,
    /// Command to run and count, with its arguments.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

/// Durations and repetitions of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    /// Time between two readings.
    pub interval: Option<Duration>,
    /// Number of readings.
    pub interval_count: Option<u64>,
    /// Time between the start of the command and that of the counters.
    pub delay: Option<Duration>,
    /// Maximum duration, without the delay.
    pub timeout: Option<Duration>,
    /// Number of runs of the command.
    pub repeat: u32,
}

impl StatArgs {
    /// Returns the events to count: the requested events or the default of perf, those of the metrics, and the detailed events.
    ///
    /// # Errors
    /// If the PMU of this host does not have the events of `-T`.
    pub(super) fn events(&self, catalog: &Catalog, metrics: &Shown) -> anyhow::Result<Vec<syntax::Group>> {
        let mut special: Vec<syntax::Group> = Vec::new();
        if self.transaction {
            special.extend(hardware::transaction(catalog)?);
        }
        let default = Preset::Default.groups();
        let detailed = match self.detailed {
            0 => Vec::new(),
            1 => Preset::Detailed.groups(),
            2 => Preset::VeryDetailed.groups(),
            _ => Preset::AllDetailed.groups(),
        };
        // Each preset begins with the default events.
        let details = detailed.into_iter().skip(default.len());
        let mut events: Vec<syntax::Group> = match &self.events[..] {
            [] if self.null || self.topdown || self.transaction || !self.metrics.is_empty() => Vec::new(),
            [] => default,
            asked => asked.iter().flat_map(|Events(groups)| groups.clone()).collect(),
        };
        events.extend(special);
        metrics.add_events(&mut events);
        events.extend(details);
        Ok(events)
    }

    /// Returns the metrics to show.
    ///
    /// # Errors
    /// If this host does not have the metrics of `-M` or `--topdown`.
    pub(super) fn metrics(&self, catalog: &Catalog) -> anyhow::Result<Shown> {
        let topdown =
            if self.topdown { metric_list::topdown(catalog).context("--topdown")? } else { Vec::new() };
        let words = topdown.into_iter().chain(self.metrics.iter().flat_map(MetricList::words));
        Shown::on_host(words, catalog).context("-M")
    }

    /// Reports whether only metrics are shown.
    pub(super) fn metric_only(&self) -> bool {
        self.topdown || self.output_args.metric_only
    }

    /// Returns the target to count.
    ///
    /// # Errors
    /// If the target does not have the parts that are to be shown separately.
    pub(super) fn target(&self) -> anyhow::Result<Target> {
        let target = self.target_args.target(&self.command);
        let aggregation = self.aggregation();
        let option = aggregation.option();
        let is_tasks = matches!(target, Target::Processes(_) | Target::Threads(_));
        match aggregation {
            Aggregation::Whole => {}
            Aggregation::Thread if self.metric_only() => {
                anyhow::bail!("--metric-only cannot be combined with {option}, as in perf")
            }
            Aggregation::Thread if is_tasks || target == Target::Machine(None) => {}
            Aggregation::Thread => anyhow::bail!(
                "{option} requires threads that exist when counting starts: select them with -p or -t, or all with -a"
            ),
            _ if is_tasks || target == Target::Command => anyhow::bail!(
                "{option} requires counts per CPU, but processes are counted across all CPUs: add -a, or omit {option}"
            ),
            _ => {}
        }
        Ok(target)
    }

    /// Returns the parts that are shown separately.
    pub(super) fn aggregation(&self) -> Aggregation {
        self.aggregation_args.aggregation()
    }

    /// Returns the modes that events without modifiers count. `user_only` is set if the process may count user space only.
    pub(super) fn modes(&self, user_only: bool) -> Modes {
        match (self.all_user, self.all_kernel) {
            (true, _) => Modes::User,
            (_, true) => Modes::Kernel,
            _ => Modes::permitted(user_only),
        }
    }

    /// Returns the durations and repetitions.
    pub(super) fn times(&self) -> Times {
        Times {
            interval: self.interval_print.map(Duration::from_millis),
            interval_count: self.interval_count,
            delay: self.delay,
            timeout: self.timeout.map(Duration::from_millis),
            repeat: self.repeat,
        }
    }
}

/// The groups of one `-e` option.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Events(Vec<syntax::Group>);

fn events(text: &str) -> Result<Events, String> {
    // The alternate format shows the position of the error.
    parse(text).map(Events).map_err(|error| format!("{error:#}"))
}

fn delay(text: &str) -> Result<Duration, String> {
    match text.parse::<i64>() {
        Ok(-1) => Err("without the --control of perf, the counters would never start; \
                       count no events with -n, or give the milliseconds to wait"
            .into()),
        Ok(milliseconds @ 0..) => Ok(Duration::from_millis(milliseconds.unsigned_abs())),
        _ => Err("expected milliseconds, such as 500".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use crate::cli::tests::typed;
    use crate::host::{Facts, Roots};

    fn read(line: &str) -> Result<StatArgs, String> {
        typed(line)
    }

    /// Returns the catalog of a host without a PMU.
    fn nowhere() -> Catalog {
        Catalog::load(&Roots::under(Path::new("/nonexistent")), &Facts::default())
    }

    #[test]
    fn everything_behind_the_command_belongs_to_it() {
        for line in ["-e cycles ls -a -x --log y", "-e cycles -- ls -a -x --log y"] {
            assert_eq!(read(line).unwrap().command, ["ls", "-a", "-x", "--log", "y"], "{line}");
        }
    }

    #[test]
    fn details_are_added_to_the_events_and_the_default_stands_for_none() {
        let names = |line: &str| -> Vec<String> {
            let (args, catalog) = (read(line).unwrap(), nowhere());
            let metrics = args.metrics(&catalog).unwrap();
            args.events(&catalog, &metrics).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(names("-e faults,{cycles,branches} -e r1a8"), ["faults", "{cycles,branches}", "r1a8"]);
        assert_eq!(names("").first().map(String::as_str), Some("task-clock"));
        assert_eq!(names("-d").len(), names("").len() + 2);
        assert_eq!(names("-ddddd"), names("-d -dd"));
        assert_eq!(names("-M IPC,GHz,CPUs_utilized"), ["{instructions,cycles}", "task-clock"]);
        assert_eq!(names("-M IPC -e faults"), ["faults", "{instructions,cycles}"]);
        assert_eq!(names("-M page_faults_per_second -e page-faults"), ["page-faults", "task-clock"]);
        assert!(names("-n true").is_empty());
        let detail = names("-d -e faults");
        assert_eq!(detail[..2], ["faults", "{L1-dcache-loads,L1-dcache-load-misses}"]);
    }

    #[test]
    fn each_option_of_perf_selects_its_parts_and_modes() {
        for (line, aggregation) in [
            ("", Aggregation::Whole),
            ("-A -a", Aggregation::Cpu),
            ("--per-core", Aggregation::Core),
            ("--per-die", Aggregation::Die),
            ("--per-cache", Aggregation::Cache(None)),
            ("--per-cache=L2 -a sleep 1", Aggregation::Cache(Some(2))),
            ("--per-cache -a sleep 1", Aggregation::Cache(None)),
            ("--per-socket", Aggregation::Socket),
            ("--per-node -C 0", Aggregation::Node),
            ("--per-thread -p 1", Aggregation::Thread),
        ] {
            let args = read(line).unwrap();
            assert_eq!(args.aggregation(), aggregation, "{line}");
            assert!(args.target().is_ok(), "{line}");
        }
        for (line, modes) in [("", Modes::All), ("--all-user", Modes::User), ("--all-kernel", Modes::Kernel)]
        {
            assert_eq!(read(line).unwrap().modes(false), modes, "{line}");
        }
        assert_eq!(read("").unwrap().modes(true), Modes::PermittedUser);
        assert_eq!(read("-D 50 true").unwrap().times().delay, Some(Duration::from_millis(50)));
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (line, words) in [
            ("-e cycles,{branches", "the group is not closed"),
            ("-I 1", "1 is not in 10.."),
            ("-r 0 true", "0 is not in 1.."),
            ("-r 2", "<COMMAND>"),
            ("-r 2 -I 100 true", "cannot be used with"),
            ("--interval-count 2", "--interval-print"),
            ("-D -1 true", "never start"),
            ("-D soon true", "expected milliseconds"),
            ("--all-user --all-kernel true", "cannot be used with"),
            ("-M IPCS", "did you mean IPC?"),
            ("-n -M IPC true", "cannot be used with"),
            ("-A --per-core", "cannot be used with"),
            ("--per-cache=L7", "L1 to L4"),
            ("--bogus", "unexpected argument"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        for (line, words) in [
            ("-A true", "-A requires counts per CPU"),
            ("--per-socket -p 1", "add -a, or omit --per-socket"),
            ("--per-thread true", "select them with -p or -t"),
            ("--per-thread -C 0", "or all with -a"),
            ("--per-thread -p 1 --metric-only", "--metric-only cannot be combined"),
        ] {
            let error = read(line).unwrap().target().unwrap_err().to_string();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
