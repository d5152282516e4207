//! Arguments of `perf-exporter lock`.

use clap::{Args, Subcommand, ValueEnum};

use super::kind::{LockKind, LockKinds};
use crate::cli::follow::FollowArgs;
use crate::cli::sample::call_graph;
use crate::config::profiled::Unwind;

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct LockArgs {
    #[command(subcommand)]
    pub(super) view: View,
}

#[derive(Debug, Clone, Subcommand)]
pub(super) enum View {
    /// Show how long threads waited for locks of the kernel, as a table at the end: by caller, by lock or by thread.
    Contention(ContentionArgs),
    /// Show how long threads waited for locks of programs (futex calls), as a table at the end: by caller or by lock.
    Futex(FutexArgs),
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is traced. Ctrl-C ends the measurement and prints the table. \
With one of these options, a command only limits the duration: -a sleep 10. A command without these options is the target \
itself, with its children.

A row is one caller: the first function of the call chain that is not a lock function. perf skips three functions before it \
looks for the caller, and prints a row for each call chain. --stack-skip 3 -v does the same here. The types of locks are \
those of perf: spinlock, rwlock:R, rwlock:W, rwsem:R, rwsem:W, mutex, semaphore, rtmutex, rwlock-rt:R, rwlock-rt:W, \
pcpu-sem:R, pcpu-sem:W.

Locks of programs are not included: perf-exporter lock futex shows their waits.

Requires Linux 5.19, CAP_PERFMON and tracefs. Names of callers and of locks require CAP_SYSLOG.

Exit codes: the exit code of the command; 1 if nothing could be traced, 2 for invalid arguments, 126 or 127 if the command \
cannot be run.")]
pub(super) struct ContentionArgs {
    #[command(flatten)]
    pub(super) follow: FollowArgs,
    #[command(flatten)]
    pub(super) rows: RowsArgs,
    /// Show one row per thread. perf also has -t for it.
    #[arg(long)]
    pub(super) threads: bool,
    /// Show one row per lock, with its address and its name if it has one.
    #[arg(short = 'l', long, conflicts_with = "threads")]
    pub(super) lock_addr: bool,
    /// Include only locks of these types, such as spinlock,rwsem:W. rwsem is both rwsem:R and rwsem:W.
    #[arg(short = 'Y', long, value_name = "TYPE,…", value_delimiter = ',', value_parser = LockKind::parse)]
    pub(super) type_filter: Vec<LockKinds>,
    /// Include only these locks: addresses, such as 0xffff88813c0038f8, and names of variables of the kernel, such as tasklist_lock.
    #[arg(short = 'L', long, value_name = "LOCK,…", value_delimiter = ',')]
    pub(super) lock_filter: Vec<String>,
    /// Include only waits with a function in their call chain that has one of these texts in its name.
    #[arg(short = 'S', long, value_name = "TEXT,…", value_delimiter = ',')]
    pub(super) callstack_filter: Vec<String>,
    /// Show one row per call chain, with its functions.
    #[arg(short = 'v', long, conflicts_with_all = ["threads", "lock_addr"])]
    pub(super) verbose: bool,
    /// Print columns with this separator, and times in nanoseconds.
    #[arg(short = 'x', long, value_name = "SEPARATOR", conflicts_with = "verbose")]
    pub(super) field_separator: Option<String>,
    /// Maximum number of functions of a call chain.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=127))]
    pub(super) max_stack: u8,
    /// Number of functions to skip before the caller is searched for.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) stack_skip: u8,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is traced. Ctrl-C ends the measurement and prints the table. \
With one of these options, a command only limits the duration: -a sleep 10. A command without these options is the target \
itself, with its children.

A row is one caller: the first function of the call chain outside of the C library, where a thread waited for a mutex, a \
condition variable, a semaphore or another thread. The type is the operation of the call: wait, wait_bitset, lock_pi, \
requeue_pi, waitv. The times are those of calls that slept. Timeout is the number of them that timed out, failed the number \
that failed or were interrupted. Again is the number of calls that did not sleep, because the lock had changed before.

Locks that are taken without waiting make no call, and are not included. Calls of 32-bit programs on 64-bit kernels are not \
traced.

Requires CAP_PERFMON and tracefs.

Exit codes: the exit code of the command; 1 if nothing could be traced, 2 for invalid arguments, 126 or 127 if the command \
cannot be run.")]
pub(super) struct FutexArgs {
    #[command(flatten)]
    pub(super) follow: FollowArgs,
    #[command(flatten)]
    pub(super) rows: RowsArgs,
    /// Show one row per lock, with its address and its process.
    #[arg(short = 'l', long)]
    pub(super) lock_addr: bool,
    /// Show one row per call chain, with its functions.
    #[arg(short = 'v', long, conflicts_with = "lock_addr")]
    pub(super) verbose: bool,
    /// Maximum number of functions of a call chain that -v shows.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..))]
    pub(super) max_stack: u8,
    /// Unwinding method: auto (DWARF, with frame pointers where there is no DWARF), fp (frame pointers only, no stack copy), dwarf or
    /// dwarf,SIZE (copies SIZE bytes of the stack into each record).
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = call_graph)]
    pub(super) call_graph: Unwind,
}

/// Order and number of the rows.
#[derive(Debug, Clone, Args)]
pub(super) struct RowsArgs {
    /// Sort key: contended, wait_total, wait_max, wait_min, avg_wait.
    #[arg(short = 'k', long, value_name = "KEY", default_value = "wait_total", hide_possible_values = true)]
    pub(super) key: Key,
    /// Maximum number of rows.
    #[arg(short = 'E', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) entries: Option<u32>,
}

impl RowsArgs {
    /// Returns the sort key and the maximum number of rows.
    pub(super) fn order(&self) -> (Key, usize) {
        (self.key, self.entries.map_or(usize::MAX, |rows| rows as usize))
    }
}

/// Sort key of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum Key {
    /// Number of waits, highest first.
    Contended,
    /// Sum of the waits, longest first.
    WaitTotal,
    /// Longest wait, longest first.
    WaitMax,
    /// Shortest wait, longest first.
    WaitMin,
    /// Mean wait, longest first.
    AvgWait,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    fn read(line: &str) -> Result<ContentionArgs, String> {
        typed(line)
    }

    #[test]
    fn options_are_perfs() {
        let args = read("-a -E 5 -k avg_wait -Y rwsem,spinlock sleep 1").unwrap();
        assert_eq!(args.rows.order(), (Key::AvgWait, 5));
        let kinds: Vec<_> = args.type_filter.iter().flat_map(|kinds| kinds.iter()).collect();
        assert_eq!(kinds, [&LockKind::RwsemRead, &LockKind::RwsemWrite, &LockKind::Spinlock]);
        assert_eq!(args.follow.command, ["sleep", "1"]);
        assert_eq!((args.max_stack, args.stack_skip), (8, 0));
        assert!(read("-l").unwrap().lock_addr && read("--threads").unwrap().threads);
    }

    #[test]
    fn waits_of_programs_are_shown_by_caller_by_lock_or_by_call_chain() {
        let args: FutexArgs = typed("-v --max-stack 4 --call-graph fp -E 3 -- true").unwrap();
        assert_eq!((args.verbose, args.max_stack, args.rows.entries), (true, 4, Some(3)));
        assert_eq!((args.call_graph, args.rows.key), (Unwind::FramePointers, Key::WaitTotal));
        assert!(typed::<FutexArgs>("-l").unwrap().lock_addr);
        assert!(typed::<FutexArgs>("-l -v").unwrap_err().contains("cannot be used with"));
    }

    #[test]
    fn invalid_options_are_refused_in_words() {
        for (line, words) in [
            ("-k size", "invalid value 'size'"),
            ("-E 0", "0 is not in 1.."),
            ("-Y spin", "expected types of locks: semaphore, spinlock"),
            ("--max-stack 0", "0 is not in 1..=127"),
            ("-l --threads", "cannot be used with"),
            ("-v -l", "cannot be used with"),
            ("--time-limit 0", "expected seconds from 0.01"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
