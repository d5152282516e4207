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

With --page, a row is a function that allocates pages, with their order, type of mobility and flags. Alloc-only pages were \
not freed during the measurement, free-only pages were allocated before it. Each record has a call chain.

Each allocation and each free writes a record. On a busy machine, select a target.

Requires CAP_PERFMON and tracefs. Names of functions require CAP_SYSLOG.

Exit codes: the exit code of the command; 1 if nothing could be traced, 2 for invalid arguments, 126 or 127 if the command \
cannot be run.")]
pub(in crate::cli) struct KmemArgs {
    #[command(flatten)]
    pub(super) follow: FollowArgs,
    /// Show pages instead of slabs: by caller, order, type of mobility and flags.
    #[arg(long)]
    pub(super) page: bool,
    /// One row per caller, which is the only view.
    #[arg(long, hide = true)]
    caller: bool,
    /// Sort keys, most significant first: frag, hit, bytes, pingpong, callsite [default: frag,hit,bytes]; with --page: bytes,
    /// hit, callsite, order, migtype, gfp [default: bytes,hit].
    #[arg(short = 's', long, value_name = "KEY,…", value_delimiter = ',', hide_possible_values = true)]
    sort: Vec<Key>,
    /// Maximum number of rows.
    #[arg(short = 'l', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) line: Option<u32>,
    /// Show addresses instead of functions.
    #[arg(long)]
    pub(super) raw_ip: bool,
}

impl KmemArgs {
    /// Returns the maximum number of rows.
    pub(super) fn lines(&self) -> usize {
        self.line.map_or(usize::MAX, |lines| lines as usize)
    }

    /// Returns the sort keys of the table.
    ///
    /// # Errors
    /// If the table has no such column.
    pub(super) fn sort(&self) -> anyhow::Result<Vec<Key>> {
        const SLABS: &[Key] = &[Key::Frag, Key::Hit, Key::Bytes, Key::Pingpong, Key::Callsite];
        const PAGES: &[Key] = &[Key::Bytes, Key::Hit, Key::Callsite, Key::Order, Key::Migtype, Key::Gfp];
        let (known, default, table) = match self.page {
            true => (PAGES, &[Key::Bytes, Key::Hit][..], "of pages (--page)"),
            false => (SLABS, &[Key::Frag, Key::Hit, Key::Bytes][..], "of slabs, without --page,"),
        };
        if self.sort.is_empty() {
            return Ok(default.to_vec());
        }
        let word = |key: &Key| format!("{key:?}").to_lowercase();
        if let Some(key) = self.sort.iter().find(|key| !known.contains(key)) {
            let known = known.iter().map(word).collect::<Vec<_>>().join(", ");
            anyhow::bail!("--sort {}: the table {table} can be sorted by {known}", word(key));
        }
        Ok(self.sort.clone())
    }
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
    /// Order of the pages, highest first.
    Order,
    /// Type of mobility, in the order of the kernel.
    Migtype,
    /// Flags, in alphabetical order.
    Gfp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    #[test]
    fn options_are_perfs() {
        let args: KmemArgs = typed("-s bytes,hit -l 5 --raw-ip -- ls -l").unwrap();
        assert_eq!(
            (args.sort().unwrap(), args.line, args.raw_ip),
            (vec![Key::Bytes, Key::Hit], Some(5), true)
        );
        assert_eq!(args.follow.command, ["ls", "-l"]);
        let args: KmemArgs = typed("").unwrap();
        assert_eq!(args.sort().unwrap(), [Key::Frag, Key::Hit, Key::Bytes]);
        let args: KmemArgs = typed("--page --caller").unwrap();
        assert_eq!(args.sort().unwrap(), [Key::Bytes, Key::Hit]);
        for line in ["--page -s bytes,frag", "-s gfp"] {
            let error = typed::<KmemArgs>(line).unwrap().sort().unwrap_err().to_string();
            assert!(error.contains("can be sorted by"), "{line}: {error}");
        }
        for (line, words) in [("-s size", "invalid value 'size'"), ("-l 0", "0 is not in 1..")] {
            let error = typed::<KmemArgs>(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
