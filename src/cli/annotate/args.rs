//! Arguments of `perf-exporter annotate`.

use std::ffi::OsString;

use clap::Args;

use crate::annotate::{Options, Syntax, Target, TextOptions};
use crate::cli::service::ServiceArgs;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
An input is a file (perf.data, or pprof) or the URL of a running service: http://node:7373 for its last minute. The files of the functions \
must be on the machine where the command runs, or on that of the service. They are found by their build id.")]
pub(in crate::cli) struct AnnotateArgs {
    /// Function. By default all functions with samples, those with the largest shares first; of a service, the first of them.
    #[arg(value_name = "SYMBOL", conflicts_with = "symbol")]
    name: Option<String>,
    /// Input: a file, or the URL of a service.
    #[arg(short = 'i', long = "input", value_name = "FILE|URL", default_value = "perf.data")]
    pub(super) input: OsString,
    /// Function, like SYMBOL.
    #[arg(short = 's', long, value_name = "SYMBOL")]
    symbol: Option<String>,
    /// Only functions of this module: the name of the file or its path.
    #[arg(short = 'd', long, alias = "dso", value_name = "NAME")]
    dsos: Option<String>,
    /// Print text without arrows for jumps, which are drawn on terminals.
    #[arg(long)]
    pub(super) stdio: bool,
    /// Notation of instructions of x86: att or intel.
    #[arg(short = 'M', long, value_name = "STYLE", default_value = "att", value_parser = syntax)]
    pub(super) disassembler_style: Syntax,
    /// Print a summary by source line, and the source line of each hot instruction.
    #[arg(short = 'l', long)]
    print_line: bool,
    /// Show numbers of samples instead of percentages.
    #[arg(short = 'n', long)]
    show_nr_samples: bool,
    /// Print no text of source lines.
    #[arg(long)]
    no_source: bool,
    /// Smallest share of a function in its event, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = crate::cli::percent)]
    pub(super) percent_limit: f64,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

impl AnnotateArgs {
    pub(super) fn target(&self) -> Target {
        Target { symbol: self.name.clone().or_else(|| self.symbol.clone()), module: self.dsos.clone() }
    }

    pub(super) fn options(&self, cache: Option<String>) -> Options {
        let syntax = self.disassembler_style;
        Options { syntax, source: !self.no_source, cache, ..Options::default() }
    }

    /// Returns the options of the text. Arrows are for terminals.
    pub(super) fn text(&self, is_terminal: bool) -> TextOptions {
        let jumps = is_terminal && !self.stdio;
        TextOptions { lines: self.print_line, counts: self.show_nr_samples, jumps }
    }
}

fn syntax(word: &str) -> Result<Syntax, String> {
    let known = Syntax::ALL.into_iter().find(|syntax| syntax.as_str() == word);
    known.ok_or_else(|| "expected att or intel".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    #[test]
    fn the_function_is_an_argument_or_an_option_as_in_perf() {
        let target = |line: &str| typed::<AnnotateArgs>(line).map(|args| args.target().symbol);
        assert_eq!(target("burns"), Ok(Some("burns".into())));
        assert_eq!(target("-s burns"), Ok(Some("burns".into())));
        assert_eq!(target(""), Ok(None));
        assert!(target("burns -s spins").is_err());
    }

    #[test]
    fn nonsense_is_answered_with_what_is_possible() {
        for (line, words) in
            [("-M masm", "expected att or intel"), ("--percent-limit 101", "expected a number from 0 to 100")]
        {
            let error = typed::<AnnotateArgs>(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
