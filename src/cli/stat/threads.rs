//! `stat -a --per-thread`: all threads of the machine.

use std::sync::Arc;

use anyhow::anyhow;

use super::aggregation::Parts;
use crate::cli::observe::{Failure, Subject};
use crate::host::Roots;
use crate::register;
use crate::sys::usage;

/// Descriptors that remain for files and pipes.
const OTHER: usize = 64;

/// Returns all threads as the target, and as parts of it.
///
/// # Errors
/// If counting `events` of each thread needs more descriptors than this process may open.
pub(super) fn all(roots: &Roots, events: usize) -> Result<(Subject, Parts), Failure> {
    let threads: Vec<(u32, Arc<[u8]>)> = register::threads(roots).map(|(_, tid, name)| (tid, name)).collect();
    let limit = usize::try_from(usage::raise_descriptor_limit()).unwrap_or(usize::MAX);
    check(threads.len(), events, limit)?;
    let subject = Subject::Threads(threads.iter().map(|(tid, _)| *tid).collect());
    Ok((subject, Parts::of_machine(threads.into_iter())))
}

/// Checks that `limit` descriptors are enough.
fn check(threads: usize, events: usize, limit: usize) -> Result<(), Failure> {
    let needed = threads.saturating_mul(events).saturating_add(OTHER);
    if needed <= limit {
        return Ok(());
    }
    let fitting = (limit.saturating_sub(OTHER) / threads.max(1)).max(1);
    Err(Failure::Failed(anyhow!(
        "--per-thread: {threads} threads × {events} events need {needed} descriptors, but the limit is {limit}; count at most \
         {fitting} with -e, select processes with -p, or raise the limit with ulimit -n"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_descriptors_are_an_error_with_a_remedy() {
        assert!(check(100, 9, 1024).is_ok());
        let Err(Failure::Failed(error)) = check(1000, 11, 4096) else { panic!("no error") };
        let error = error.to_string();
        assert!(
            error.contains("1000 threads × 11 events need 11064 descriptors, but the limit is 4096"),
            "{error}"
        );
        assert!(error.contains("at most 4 with -e") && error.contains("ulimit -n"), "{error}");
    }
}
