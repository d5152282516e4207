//! Options of perf that select what to sample.

use std::time::Duration;

use clap::Args;

use crate::cli::observe::TargetArgs;
use crate::config::profiled::{self, STACK, STACKS, Unsuitable, Unwind, one_event};
use crate::event::syntax::Event;

/// Options for the event, the rate and the target of sampling.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct SampleArgs {
    /// Event to sample, in the syntax of perf: cycles:u, page-faults, sched:sched_switch. The default is cycles, or cpu-clock without
    /// hardware counters.
    #[arg(short = 'e', long = "event", value_name = "EVENT", value_parser = event)]
    pub(super) event: Option<Event>,
    /// Approximate samples per second on each CPU. The default is 99, and 4000 for a recorded command, but at most the kernel's maximum.
    #[arg(short = 'F', long = "freq", value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) frequency: Option<u64>,
    /// Sample once per PERIOD counts of the event instead; for clocks, once per PERIOD nanoseconds.
    #[arg(short = 'c', long = "count", value_name = "PERIOD", conflicts_with = "frequency", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) period: Option<u64>,
    /// Record call chains. This is the default; disable it with --call-graph no.
    #[arg(short = 'g')]
    _callers: bool,
    /// Unwinding method: auto (DWARF, with frame pointers where there is no DWARF), fp (frame pointers only, no stack copy), dwarf or
    /// dwarf,SIZE (copies SIZE bytes of the stack into each sample), or no (no call chains).
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = call_graph)]
    pub(super) call_graph: Unwind,
    /// Show source lines and inlined functions, if programs have debug information. Resolving them takes additional time at the end.
    #[arg(long = "inline")]
    pub(super) inlined: bool,
    /// Instead of an event, record where threads wait and for how long. Waits shorter than the threshold (default 1ms) are omitted.
    #[arg(long, value_name = "THRESHOLD", num_args = 0..=1, require_equals = true, default_missing_value = "1ms", conflicts_with_all = ["event", "frequency", "period"], value_parser = threshold)]
    pub(in crate::cli) off_cpu: Option<Duration>,
    #[command(flatten)]
    pub(in crate::cli) target_args: TargetArgs,
}

fn event(text: &str) -> Result<Event, Unsuitable> {
    let event = one_event(text)?;
    match event.alias {
        None => Ok(event),
        Some(_) => Err(Unsuitable {
            message: "the profile is named after its event".into(),
            hint: "omit name=".into(),
        }),
    }
}

/// Parses the unwinding method of `--call-graph`.
///
/// # Errors
/// Describes the expected text.
pub(in crate::cli) fn call_graph(text: &str) -> Result<Unwind, String> {
    let size = |text: &str| {
        let size = text.parse::<u64>().ok().filter(|size| STACKS.contains(size) && size.is_multiple_of(8));
        size.and_then(|size| u32::try_from(size).ok()).ok_or_else(|| {
            format!(
                "{text:?} is not a valid stack size: use a multiple of 8 from {} to {}, such as dwarf,{STACK}",
                STACKS.start(),
                STACKS.end()
            )
        })
    };
    match text.split_once(',') {
        Some(("dwarf", bytes)) => Ok(Unwind::Dwarf { stack: size(bytes)? }),
        None if text == "auto" => Ok(Unwind::Auto { stack: STACK }),
        None if text == "dwarf" => Ok(Unwind::Dwarf { stack: STACK }),
        None if text == "fp" => Ok(Unwind::FramePointers),
        None if text == "no" => Ok(Unwind::Nothing),
        _ => Err("expected auto, fp, dwarf, dwarf,SIZE or no".into()),
    }
}

fn threshold(text: &str) -> Result<Duration, String> {
    profiled::duration(text).ok_or_else(|| "expected a whole number with ms, s, m or h, such as 10ms".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;

    fn read(line: &str) -> Result<SampleArgs, String> {
        typed(line)
    }

    #[test]
    fn callers_are_sampled_unless_somebody_says_no() {
        for (line, unwind) in [
            ("", Unwind::Auto { stack: STACK }),
            ("-g", Unwind::Auto { stack: STACK }),
            ("--call-graph fp", Unwind::FramePointers),
            ("--call-graph dwarf", Unwind::Dwarf { stack: STACK }),
            ("--call-graph dwarf,8192", Unwind::Dwarf { stack: 8192 }),
            ("--call-graph no", Unwind::Nothing),
        ] {
            assert_eq!(read(line).unwrap().call_graph, unwind, "{line}");
        }
    }

    #[test]
    fn a_wait_is_a_millisecond_unless_somebody_says_how_long() {
        assert_eq!(read("").unwrap().off_cpu, None);
        assert_eq!(read("--off-cpu").unwrap().off_cpu, Some(profiled::THRESHOLD));
        assert_eq!(read("--off-cpu=20ms").unwrap().off_cpu, Some(Duration::from_millis(20)));
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (line, words) in [
            ("-e cycles,faults", "is more than one event, but a profile samples one event"),
            ("-e sched:*", "is a pattern"),
            ("-e cycles:pp", "the modifiers `p` and `P` are not supported"),
            ("-e cpu/event=1,name=x/", "omit name="),
            ("-e cycles:", "is not an event"),
            ("-F 0", "0 is not in 1.."),
            ("-F 99 -c 1000", "cannot be used with"),
            ("--call-graph lbr", "expected auto, fp, dwarf, dwarf,SIZE or no"),
            ("--call-graph dwarf,100", "use a multiple of 8 from 1024 to 61440, such as dwarf,16384"),
            ("--off-cpu=5", "expected a whole number with ms, s, m or h"),
            ("--off-cpu -e cycles", "cannot be used with"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
