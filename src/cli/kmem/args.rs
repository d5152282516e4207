//! Arguments of `perf-exporter kmem`.

use clap::{Args, ValueEnum};

use crate::cli::follow::FollowArgs;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Without -a, -C, -p, -t, -G or a command, the whole machine is traced. Ctrl-C ends the measurement and prints the table. \
With one of these options, a command only limits the duration: -a sleep 10. A command without these options is the target \
itself, with its children; perf kmem record traces the whole machine in this case.

A row is a function of the kernel that allocates memory from slabs. Total_alloc is what the allocator reserved, Total_req \
what the function requested, both in bytes, and per allocation after the slash. Frag is the difference in percent. Ping-pong \
is the number of objects that another CPU freed. Memory that was allocated before the measurement is not included in what \
was freed.

Each allocation and each free writes a record. On a busy machine, select a target.

Requires CAP_PERFMON and tracefs. Names of functions require CAP_SYSLOG.

Exit codes: the exit code of the command; 1 if nothing could be traced, 2 for invalid arguments, 126 or 127 if the command \
cannot be run.")]
pub(in crate::cli) struct KmemArgs {
    #[command(flatten)]
    pub(super) follow: FollowArgs,
    /// Sort keys, most significant first: frag, hit, bytes, pingpong, callsite.
    #[arg(
        short = 's',
        long,
        value_name = "KEY,…",
        value_delimiter = ',',
        default_value = "frag,hit,bytes",
        hide_possible_values = true
    )]
    pub(super) sort: Vec<Key>,
    /// Maximum number of rows.
    #[arg(short = 'l', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) line: Option<u32>,
    /// Show addresses instead of functions.
    #[arg(long)]
    pub(super) raw_ip: bool,
}

/// Sort key of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Key {
    /// Internal fragmentation, highest first.
    Frag,
    /// Number of allocations, highest first.
    Hit,
    /// Allocated bytes, most first.
    Bytes,
    /// Number of objects that another CPU freed, highest first.
    Pingpong,
    /// Address of the function, lowest first.
    Callsite,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    #[test]
    fn options_are_perfs() {
        let args: KmemArgs = typed("-s bytes,hit -l 5 --raw-ip -- ls -l").unwrap();
        assert_eq!((args.sort, args.line, args.raw_ip), (vec![Key::Bytes, Key::Hit], Some(5), true));
        assert_eq!(args.follow.command, ["ls", "-l"]);
        let args: KmemArgs = typed("").unwrap();
        assert_eq!(args.sort, [Key::Frag, Key::Hit, Key::Bytes]);
        for (line, words) in [("-s size", "invalid value 'size'"), ("-l 0", "0 is not in 1..")] {
            let error = typed::<KmemArgs>(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
