//! Writes the man pages or the shell completions of perf-exporter: `generate man|completions DIR`.
//!
//! It is an example and not a command, because the service needs none of it. `.ci/release` runs it.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
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
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {dir}"))?;
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
    let mut grammar = perf_exporter::cli::grammar();
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut grammar, "perf-exporter", dir)
            .with_context(|| format!("the completions for {shell} cannot be written"))?;
    }
    Ok(())
}
