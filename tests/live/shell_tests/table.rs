//! The table of assertions.

use super::Outcome::{Differs, Passes, PassesIn};
use super::checks;
use super::{Outcome, Row};
use crate::support::Feature::{self, Cgroup, Tracefs, Tracepoint, Uprobe};

const fn row(script: &'static str, asserts: &'static str, outcome: Outcome) -> Row {
    Row { script, asserts, outcome }
}

const NONE: &[Feature] = &[];
const TRACE: &[Feature] = &[Tracepoint];
const PROBES: &[Feature] = &[Uprobe, Tracefs];

const NO_PIPE: &str = "The header of a recording is updated at the end, so it is a file, not a pipe: `-o FILE`, then `-i FILE`.";
const NO_BPF: &str = "Tracepoints instead of BPF: the options without `-b` and `--bpf-summary` are the same.";
const LIVE: &str = "The command shows events while they occur, and writes no recording.";

/// Assertions about the counters and trackers of the kernel come first, then those about recordings and probes.
pub(super) const TABLE: &[Row] = &[
    row("stat", "`stat true` prints the heading with the command", Passes(NONE, checks::stat_heading)),
    row("stat", "`stat record` and `stat report` in a pipe", Differs(NO_PIPE)),
    row("stat", "`stat record`, then `stat report` prints the heading", Passes(NONE, checks::stat_report)),
    row(
        "stat",
        "`script` prints the counts of `stat record` as columns",
        Differs("`stat report -x,` prints them, with the metrics."),
    ),
    row("stat", "a weak group that exceeds the PMU runs with `-r2`", Passes(NONE, checks::weak_group)),
    row(
        "stat",
        "groups with `slots` and `topdown-*` are ordered and not split",
        Differs("`--topdown` counts them in one group. A group of `-e` is not reordered."),
    ),
    row("stat+std_output", "known events, each with its metric", PassesIn("tests/live/stat/options.rs")),
    row(
        "stat+csv_output",
        "the number of separators for each option",
        PassesIn("tests/live/stat/options.rs"),
    ),
    row("stat+json_output", "the number of keys for each option", PassesIn("tests/live/stat/options.rs")),
    row(
        "stat+csv_summary",
        "`--summary` after the last interval",
        Differs("No summary after intervals: `stat` without `-I`, or the sum of the intervals."),
    ),
    row(
        "stat+shadow_stat",
        "`insn per cycle` is the quotient of the counts, also with `-A`",
        PassesIn("src/cli/stat/derive.rs"),
    ),
    row(
        "stat_all_pmu",
        "each event of the vendor's tables is accepted",
        PassesIn("tests/live/vendor_events.rs"),
    ),
    row(
        "stat_all_metrics, stat_all_metricgroups, stat_all_pfm",
        "each metric of the vendor's tables, and the names of libpfm",
        Differs("The metrics of generic events, and names of events as in `perf list`."),
    ),
    row(
        "stat_bpf_counters, stat_bpf_counters_cgrp",
        "`--bpf-counters` agrees with plain counters",
        Differs("No BPF: one set of counters for all cgroups is what the service does (`per: cgroup`)."),
    ),
    row("list", "`list -j` is JSON", Passes(NONE, checks::list_json)),
    row(
        "list",
        "`-o FILE` writes it to a file",
        Differs("Standard output, with a redirection of the shell."),
    ),
    row("lock_contention", "`-E 1` prints one row", Passes(TRACE, checks::lock_one_row)),
    row("lock_contention", "`--threads -E 1` prints one row", Passes(TRACE, checks::lock_one_thread)),
    row("lock_contention", "`--lock-addr -E 1` prints one row", Passes(TRACE, checks::lock_one_address)),
    row("lock_contention", "`-Y spinlock` prints only spinlocks", Passes(TRACE, checks::lock_spinlocks)),
    row("lock_contention", "`-L` selects locks by their addresses", Passes(TRACE, checks::lock_filter)),
    row(
        "lock_contention",
        "`-S` selects by functions of the call chain",
        Passes(TRACE, checks::lock_callers),
    ),
    row(
        "lock_contention",
        "`-x` prints as many separators as the heading",
        Passes(TRACE, checks::lock_columns),
    ),
    row("lock_contention", "`--use-bpf`, `--lock-cgroup`, `-G`", Differs(NO_BPF)),
    row(
        "sched",
        "`sched latency` has the two programs that share a CPU",
        Passes(TRACE, checks::sched_latency),
    ),
    row(
        "sched",
        "`sched script` has them",
        Differs("`perf-exporter trace -a -e 'sched:*'` prints the records."),
    ),
    row(
        "perf_sched_stats",
        "`sched stats` of `/proc/schedstat`",
        Differs("The service publishes the waits and runs of each cgroup."),
    ),
    row(
        "kwork",
        "`kwork report`, `latency`, `timehist`, `top`",
        Differs("No such command: the presets `irq`, `softirq` and `kworkers` publish counts and durations."),
    ),
    row("timechart", "`timechart` writes an SVG", Passes(TRACE, checks::timechart)),
    row(
        "trace_summary",
        "`-s` has at least three rows of open, read and close",
        Passes(TRACE, checks::trace_summary),
    ),
    row("trace_summary", "`-S` has them after the calls", Passes(TRACE, checks::trace_with_summary)),
    row("trace_summary", "`-as` has them for the machine", Passes(TRACE, checks::trace_summary_of_machine)),
    row(
        "trace_summary",
        "`--summary-mode=total` and `cgroup`",
        Differs("The summary is by thread, as with `--summary-mode=thread`."),
    ),
    row(
        "trace_exit_race",
        "the last call of a command is not lost in ten runs",
        Passes(TRACE, checks::trace_last_call),
    ),
    row(
        "trace_btf_enum",
        "`timer:hrtimer_start` prints `mode: HRTIMER_MODE_*`",
        Differs("Fields of tracepoints are printed as the kernel's format prints them: `mode=8`."),
    ),
    row(
        "trace_btf_general",
        "texts and structures that a call points to are printed",
        Differs("Addresses, and the paths of descriptors: only BPF can read the memory of a call in time."),
    ),
    row(
        "trace+probe_vfs_getname",
        "`open` prints the name of the file by a probe",
        Differs("The path of the descriptor that a call returns is printed, without a probe."),
    ),
    row("trace_record_replay", "`trace record`, then `trace -i`", Differs(LIVE)),
    row("top", "`top` of a process prints shares and its function", PassesIn("tests/live/top_screen.rs")),
    row("record", "`record` of a command has its function", Passes(NONE, checks::record_command)),
    row(
        "record",
        "`record -a` has the function of a program that runs",
        Passes(NONE, checks::record_machine),
    ),
    row("record", "`record -p` has the function of the process", Passes(NONE, checks::record_process)),
    row(
        "record",
        "`--per-thread`",
        Differs("Events are opened for each CPU, also for a process; `record -t` selects threads."),
    ),
    row(
        "record",
        "`--threads=cpu` writes a directory",
        Differs("One file, which one thread writes; lost records are counted."),
    ),
    row("record", "samples have the path of the cgroup", Passes(&[Cgroup], checks::record_cgroup)),
    row("record", "registers, branch counters and groups with one sampling leader", Differs("Not recorded.")),
    row(
        "record_offcpu",
        "`--off-cpu` attributes 90% of the waits to `sleep`",
        Passes(TRACE, checks::record_waits),
    ),
    row(
        "record_sideband",
        "mappings of other CPUs are recorded with `-C 0`",
        Differs("`script` has no `--show-mmap-events`. Functions of a program have names with `-C` too."),
    ),
    row(
        "record+zstd_comp_decomp",
        "a compressed recording has the same report",
        Passes(NONE, checks::record_compressed),
    ),
    row("data_validation", "a truncated recording is an error, not a crash", Passes(NONE, checks::truncated)),
    row(
        "header",
        "`report --header-only` has the machine, the command and the events",
        Passes(NONE, checks::header),
    ),
    row(
        "header",
        "it has `cpuid`, and with `-I` the siblings of CPUs",
        Differs("Not printed. Recordings contain the topology of the CPUs."),
    ),
    row("evlist", "`evlist` lists the events", Differs("`report --header-only` lists them.")),
    row("base_report/test_basic", "the table has its headings and rows", Passes(NONE, checks::report_table)),
    row("base_report/test_basic", "`-n` adds the number of samples", Passes(NONE, checks::report_numbers)),
    row(
        "base_report/test_basic",
        "a copy with its time has the same `captured on`",
        Passes(NONE, checks::report_of_copy),
    ),
    row(
        "base_report/test_basic",
        "`--symbols` of a function that does not exist leaves no row",
        Passes(NONE, checks::report_without_symbol),
    ),
    row(
        "base_report/test_basic",
        "`--showcpuutilization`, `--pid`, `--symbol-filter`",
        Differs("`--sort pid` and `--symbols` with whole names; `script --pid` selects a process."),
    ),
    row(
        "perf-report-hierarchy",
        "`report --hierarchy`",
        Differs("Call trees, and `--sort` with several columns."),
    ),
    row("diff", "`diff` of two recordings has the function", Passes(NONE, checks::diff)),
    row("diff", "`diff` of three recordings", Differs("Two inputs.")),
    row("annotate", "`annotate` prints the function and its instructions", Passes(NONE, checks::annotate)),
    row("annotate", "`annotate FUNCTION` prints them", Passes(NONE, checks::annotate_function)),
    row("annotate", "`--objdump`", Differs("The disassembler is built in.")),
    row(
        "script, script_perl, script_python, script_dlfilter",
        "scripts and filters of users",
        Differs("`script --format` writes the formats of viewers; there are no scripts."),
    ),
    row(
        "addr2line_inlines",
        "`script -F +srcline` prints lines of inlined functions",
        Differs(
            "Call chains of `script` have inlined functions; lines are in `report --sort srcline` and `annotate`.",
        ),
    ),
    row(
        "buildid",
        "`buildid-cache`, `record` fills the cache",
        Differs("Build ids are in the recording; the cache of perf is read, not filled."),
    ),
    row("pipe_test", "`record -o -` into `report -i -` and `inject`", Differs(NO_PIPE)),
    row(
        "base_probe/test_adding_kernel",
        "a probe is added, listed, counted and removed",
        Passes(PROBES, checks::probe_cycle),
    ),
    row(
        "base_probe/test_adding_kernel",
        "`-n` prints the definition and adds nothing",
        Passes(PROBES, checks::probe_dry_run),
    ),
    row(
        "base_probe/test_adding_kernel",
        "two probes of a function have equal counts, a pattern removes both",
        Passes(PROBES, checks::probe_twice),
    ),
    row(
        "base_probe/test_adding_kernel",
        "an existing probe is an error without `--force`",
        Differs("The second probe gets a new name, as with `--force`."),
    ),
    row(
        "base_probe/test_adding_kernel",
        "a variable that does not exist is an error with its name",
        Passes(PROBES, checks::probe_unknown_variable),
    ),
    row(
        "base_probe/test_adding_kernel",
        "a pattern adds probes",
        Differs("`-F` lists what matches; one definition adds one probe."),
    ),
    row("base_probe/test_basic", "`--quiet`", Differs("The output is short; redirect it.")),
    row(
        "base_probe/test_invalid_options",
        "a missing value is an error",
        Passes(NONE, checks::probe_missing_values),
    ),
    row(
        "base_probe/test_invalid_options",
        "options that exclude each other are an error",
        Passes(NONE, checks::probe_exclusive_options),
    ),
    row(
        "base_probe/test_line_semantics",
        "valid ranges of lines are accepted, wrong ones are errors",
        Passes(NONE, checks::probe_lines),
    ),
    row("base_probe/test_line_semantics", "`FUNCTION@FILE`", Differs("`FUNCTION` or `FILE:LINE`.")),
    row(
        "test_uprobe_from_different_cu",
        "a function of another compilation unit with `-flto` is found",
        Passes(PROBES, checks::probe_of_other_unit),
    ),
    row(
        "test_arm_*, test_intel_pt, coresight/*, amd-ibs-swfilt, test_brstack, record_lbr",
        "traces of one kind of processor",
        Differs("Not recorded: sampling works on all processors."),
    ),
    row(
        "daemon, inject*, kvm, ftrace, python-use, test_java_symbol",
        "commands that do not exist here",
        Differs("The service replaces `daemon`; `kvm` is the preset `kvm-exits`."),
    ),
];
