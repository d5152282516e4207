//! Arguments of `perf-exporter report` and `perf-exporter diff`.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use regex::Regex;

use crate::cli::percent;
use crate::cli::service::ServiceArgs;
use crate::cli::time_range::time_range;
use crate::report::{Chains, Key, Only, Options};

/// Smallest share of a branch of a call tree in percent, as in perf.
const BRANCH: f64 = 0.5;

/// Callers that the column `parent` shows by default, as in perf.
const PARENT: &str = "^sys_|^do_page_fault";

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
An input is a file (perf.data, pprof or folded stacks) or the URL of a running service: http://node:7373 for its last minute, or \
http://node:7373/debug/pprof/profile with the parameters of its profiles.

On a terminal, the interactive view of perf is shown: + expands call trees, a annotates, d and t zoom into a shared object or thread, / filters \
functions, h shows all keys, q quits.")]
pub(in crate::cli) struct ReportArgs {
    /// Input: a file, or the URL of a service. May be repeated.
    #[arg(short = 'i', long = "input", value_name = "FILE|URL", default_value = "perf.data")]
    pub(super) inputs: Vec<OsString>,
    /// Print text. This is the default if standard input or output is not a terminal.
    #[arg(long, conflicts_with = "tui")]
    stdio: bool,
    /// Show the interactive view, or fail if standard input or output is not a terminal.
    #[arg(long)]
    pub(super) tui: bool,
    /// Print the machine, the command and the events before the tables.
    #[arg(long, conflicts_with = "tui")]
    pub(super) header: bool,
    /// Print the machine, the command and the events only.
    #[arg(long, conflicts_with = "tui")]
    pub(super) header_only: bool,
    #[command(flatten)]
    pub(super) table: TableArgs,
    /// Count a function for what its callees did, too. This is the default for recordings with call chains.
    #[arg(long, overrides_with = "no_children")]
    children: bool,
    /// Count a function only for itself, with the functions that called it.
    #[arg(long, overrides_with = "children")]
    no_children: bool,
    /// Call trees: caller (outermost function first), callee, or none; with the smallest share of a branch in percent: caller,0.5.
    #[arg(short = 'g', long = "call-graph", value_name = "ORDER[,PERCENT]", value_parser = call_graph)]
    call_graph: Option<CallGraph>,
    /// Expression for the callers that the column parent shows.
    #[arg(short = 'p', long, value_name = "REGEX", default_value = PARENT)]
    parent: Regex,
    /// Show the number of samples.
    #[arg(short = 'n', long)]
    show_nr_samples: bool,
    /// Print only the entries: no headings and no totals.
    #[arg(short = 'q', long, conflicts_with_all = ["tui", "header", "header_only"])]
    pub(super) quiet: bool,
    /// Smallest share of an entry and of a branch of a call tree, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    percent_limit: Option<f64>,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

/// The columns and the entries of a table.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct TableArgs {
    /// Columns that distinguish entries: comm, dso, symbol, pid, cpu, cgroup, pod, srcline, srcfile, parent.
    #[arg(short = 's', long, value_name = "KEY,…", value_delimiter = ',', value_parser = key)]
    sort: Vec<Key>,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
}

/// The samples and the entries of a table.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct FilterArgs {
    /// Only threads with these names.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    comms: Vec<String>,
    /// Only these modules: the name of the file or its path.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    dsos: Vec<String>,
    /// Only these functions.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    symbols: Vec<String>,
    /// Only samples of recordings of perf from START to STOP, in seconds as script prints them. Either can be omitted.
    #[arg(long, value_name = "START,STOP", value_parser = time_range)]
    pub(in crate::cli) time: Option<RangeInclusive<u64>>,
}

impl FilterArgs {
    /// Returns the names to which a table is limited.
    pub(in crate::cli) fn only(&self) -> Only {
        Only { comms: self.comms.clone(), dsos: self.dsos.clone(), symbols: self.symbols.clone() }
    }
}

impl TableArgs {
    /// Returns the options of a table with these columns by default.
    pub(super) fn options(&self, sort: &[Key]) -> Options {
        let sort = if self.sort.is_empty() { sort } else { &self.sort };
        Options { sort: sort.to_vec(), only: self.filter.only(), ..Options::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct CallGraph {
    order: Option<Order>,
    smallest: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    None,
    Caller,
    Callee,
}

impl ReportArgs {
    /// Reports whether an option requests text.
    pub(super) fn is_text(&self) -> bool {
        self.stdio || self.header || self.header_only || self.quiet
    }

    /// Returns the options for a recording with call chains, or without.
    pub(super) fn options(&self, has_chains: bool) -> Options {
        let children = has_chains && !self.no_children;
        let limit = self.percent_limit;
        let graph = self.call_graph.unwrap_or(CallGraph { order: None, smallest: None });
        let smallest = graph.smallest.or(limit).unwrap_or(BRANCH);
        let by_default = if children { Order::Caller } else { Order::Callee };
        let chains = match graph.order.unwrap_or(by_default) {
            _ if !has_chains => Chains::None,
            Order::None => Chains::None,
            Order::Caller => Chains::Caller(smallest),
            Order::Callee => Chains::Callee(smallest),
        };
        Options {
            children,
            chains,
            counts: self.show_nr_samples,
            percent_limit: limit.unwrap_or(0.0),
            parent: Some(self.parent.clone()),
            ..self.table.options(&[Key::Comm, Key::Dso, Key::Symbol])
        }
    }
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Inputs are files (perf.data, pprof or folded stacks) or URLs of running services. A recording can be compared with a node now: \
perf-exporter diff before.pb.gz http://node:7373.")]
pub(in crate::cli) struct DiffArgs {
    /// The base.
    #[arg(value_name = "BASE")]
    pub(super) base: OsString,
    /// The recording to compare with it.
    #[arg(value_name = "FILE|URL")]
    pub(super) now: OsString,
    #[command(flatten)]
    pub(super) table: TableArgs,
    /// Write a differential flame graph to this file instead of the table: .svg, or .html with a table of functions.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

fn key(word: &str) -> Result<Key, String> {
    match Key::parse(word) {
        Some(key) if key.is_of_access() => {
            Err("this column is of memory accesses: use perf-exporter mem report".into())
        }
        found => found.ok_or_else(|| expected(Key::ALL.into_iter().filter(|key| !key.is_of_access()))),
    }
}

/// Returns the error that lists columns.
pub(in crate::cli) fn expected(keys: impl Iterator<Item = Key>) -> String {
    format!("expected {}", keys.map(Key::as_str).collect::<Vec<_>>().join(", "))
}

/// Reads the words that perf knows, of which the order and the number have an effect.
fn call_graph(text: &str) -> Result<CallGraph, String> {
    let mut graph = CallGraph { order: None, smallest: None };
    for word in text.split(',') {
        match word {
            "none" => graph.order = Some(Order::None),
            "caller" => graph.order = Some(Order::Caller),
            "callee" => graph.order = Some(Order::Callee),
            "graph" | "function" | "percent" => {}
            number => match percent(number) {
                Ok(number) => graph.smallest = Some(number),
                Err(_) => {
                    return Err("expected caller, callee or none, and a number such as caller,0.5".into());
                }
            },
        }
    }
    Ok(graph)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    fn options(line: &str) -> Result<Options, String> {
        typed::<ReportArgs>(line).map(|args| args.options(true))
    }

    #[test]
    fn the_defaults_are_those_of_perf() {
        let all = options("").unwrap();
        assert!(all.children && all.percent_limit == 0.0 && all.chains == Chains::Caller(0.5));
        assert_eq!(all.sort, [Key::Comm, Key::Dso, Key::Symbol]);
        let own = options("--no-children").unwrap();
        assert_eq!((own.children, own.chains), (false, Chains::Callee(0.5)));
        let flat = typed::<ReportArgs>("").unwrap().options(false);
        assert_eq!((flat.children, flat.chains), (false, Chains::None));
    }

    #[test]
    fn call_trees_are_chosen_in_the_words_of_perf() {
        for (line, chains) in [
            ("-g none", Chains::None),
            ("-g caller", Chains::Caller(0.5)),
            ("-g graph,2,callee,function", Chains::Callee(2.0)),
            ("--percent-limit 3", Chains::Caller(3.0)),
            ("--percent-limit 3 -g caller,1", Chains::Caller(1.0)),
        ] {
            assert_eq!(options(line).unwrap().chains, chains, "{line}");
        }
    }

    #[test]
    fn nonsense_is_answered_with_what_is_possible() {
        for (line, words) in [
            ("--sort comm,weather", "expected comm, dso, symbol"),
            ("--sort mem", "use perf-exporter mem report"),
            ("-g sideways", "expected caller, callee or none"),
            ("--percent-limit 101", "expected a number from 0 to 100"),
            ("--parent (", "regex"),
            ("--tui --stdio", "cannot be used with"),
        ] {
            let error = options(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
