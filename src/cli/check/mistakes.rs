//! Errors of a configuration: those of the file, and names that this host does not have.

use super::{CheckArgs, foreseen_of, unopened_entries};
use crate::config::{self, Config, LoadError, Problem};
use crate::event::Catalog;
use crate::host::{Facts, Roots};
use crate::plan::{Plan, Refused, StreamSupport, configured_probes, plan};
use crate::probe::install::Installer;

/// Error with its line and column.
type Located = ((usize, usize), String);

/// Removes entries from the plan that are wrong on this host, or on every host if `any_host`, and returns them as errors of the file, in
/// its order.
pub(super) fn mistakes(plan: &mut Plan, any_host: bool) -> Vec<String> {
    texts(located(plan, any_host))
}

/// Returns all errors of a file that cannot be used: those of the file, and those of its valid parts on this host. `valid` is a valid
/// configuration with a wrong web configuration file or memory limit.
pub(super) fn all(error: &LoadError, args: &CheckArgs, valid: Option<&Config>, roots: &Roots) -> Vec<String> {
    let (mut errors, parts) = match error {
        LoadError::Wrong(problems) if valid.is_none() => {
            let located = |problem: &Problem| ((problem.line, problem.column), problem.to_string());
            (problems.0.iter().map(located).collect(), args.config.as_deref().and_then(config::load_valid))
        }
        other => (other.lines().into_iter().map(|line| ((0, 0), line)).collect::<Vec<_>>(), None),
    };
    if let Some(config) = valid.or(parts.as_ref()) {
        errors.extend(on_host(config, roots, args.any_host));
    }
    texts(errors)
}

/// Returns the errors of a configuration on this host. Opens nothing.
fn on_host(config: &Config, roots: &Roots, any_host: bool) -> Vec<Located> {
    let facts = Facts::read(roots);
    let catalog = Catalog::load(roots, &facts);
    let installer = Installer::new(crate::cli::files(roots), std::process::id());
    let placed = foreseen_of(&installer.look(&configured_probes(&config.traced, &config.profiles)));
    let entries = unopened_entries(config, &placed);
    located(&mut plan(&entries, &catalog, &StreamSupport::foreseen(&facts)), any_host)
}

fn located(plan: &mut Plan, any_host: bool) -> Vec<Located> {
    let is_error = |refused: &Refused| if any_host { refused.is_wrong_everywhere() } else { refused.mistake };
    let (mistakes, refusals): (Vec<Refused>, _) =
        std::mem::take(&mut plan.refusals).into_iter().partition(is_error);
    plan.refusals = refusals;
    let text = |refused: &Refused| {
        let picture = refused.picture.iter().flat_map(|picture| picture.lines());
        let picture: String = picture.map(|line| format!("\n    {line}")).collect();
        let place = refused.location.as_ref().map_or((0, 0), |at| (at.line, at.column));
        (place, format!("{}{picture}", refused.problem()))
    };
    mistakes.iter().map(text).collect()
}

/// Returns the errors in the order of the file, each once: an entry with several scopes repeats them.
fn texts(mut errors: Vec<Located>) -> Vec<String> {
    errors.sort_by_key(|(place, _)| *place);
    let mut lines: Vec<String> = Vec::new();
    for (_, line) in errors {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}
