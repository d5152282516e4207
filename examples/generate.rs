//! Writes the man pages or the shell completions of perf-exporter: `generate man|completions DIR`.
//!
//! It is an example and not a command, because the service needs none of it. `.ci/release` runs it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Command;
use clap_complete::Shell;

/// Shells that have a completion file.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

#[expect(clippy::print_stderr, reason = "the error of a command is for the person who typed it")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match generate(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("generate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn generate(arguments: &[String]) -> anyhow::Result<()> {
    let [kind, dir] = arguments else { bail!("usage: generate man|completions DIR") };
    fs::create_dir_all(dir).with_context(|| format!("cannot create {dir}"))?;
    match kind.as_str() {
        "man" => man(Path::new(dir)),
        "completions" => completions(Path::new(dir)),
        _ => bail!("{kind}: not one of man and completions"),
    }
}

/// Writes `perf-exporter.1`, and `perf-exporter-COMMAND.1` for each visible command.
fn man(dir: &Path) -> anyhow::Result<()> {
    clap_mangen::generate_to(perf_exporter::cli::grammar(), dir).context("the man pages cannot be written")
}

/// Writes the files under the names by which each shell loads them.
fn completions(dir: &Path) -> anyhow::Result<()> {
    let mut grammar = visible(&perf_exporter::cli::grammar());
    for shell in SHELLS {
        let written = clap_complete::generate_to(shell, &mut grammar, "perf-exporter", dir).and_then(repair);
        written.with_context(|| format!("the completions for {shell} cannot be written"))?;
    }
    Ok(())
}

/// Gives a command one name in a completion file. In bash, clap_complete 4.6.11 writes the hyphen of the program in two ways,
/// and then completes no options of commands.
fn repair(file: PathBuf) -> io::Result<()> {
    let text = perf_exporter::host::read_text(&file).map_err(io::Error::other)?;
    fs::write(file, text.replace("perf__subcmd__exporter", "perf__exporter"))
}

/// Returns the grammar without hidden commands, which `clap_complete` completes like any other.
fn visible(grammar: &Command) -> Command {
    Command::new("perf-exporter")
        .version(env!("CARGO_PKG_VERSION"))
        .args(grammar.get_arguments().cloned())
        .subcommands(grammar.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}
