//! Selection of samples.

use std::ops::RangeInclusive;

use anyhow::{Context, bail};

use super::args::ScriptArgs;
use crate::host::CpuSet;
use crate::profile::Profile;

/// The selected samples.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    args: &'a ScriptArgs,
    cpus: Option<CpuSet>,
    /// The first and the last time, in nanoseconds.
    times: Option<RangeInclusive<u64>>,
}

/// What a sample is selected by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) comm: &'a str,
    pub(super) cpu: Option<u32>,
    pub(super) event: &'a str,
}

impl<'a> Filter<'a> {
    /// Parses the options.
    ///
    /// # Errors
    /// If a list of CPUs or a time is invalid.
    pub(super) fn new(args: &'a ScriptArgs) -> anyhow::Result<Self> {
        let cpus = args
            .cpu
            .as_deref()
            .map(|list| list.parse().with_context(|| format!("--cpu {list}")))
            .transpose()?;
        let times = match &args.time {
            None => None,
            Some(text) => {
                let Some((start, stop)) = text.split_once(',') else {
                    bail!("--time {text}: write START,STOP");
                };
                let parse = |word: &str, otherwise| match word.trim() {
                    "" => Ok(otherwise),
                    word => nanoseconds(word)
                        .with_context(|| format!("--time {text}: {word:?} is not a time in seconds")),
                };
                Some(parse(start, 0)?..=parse(stop, u64::MAX)?)
            }
        };
        Ok(Self { args, cpus, times })
    }

    /// Returns the first and the last time of the selected samples; `None`: all.
    pub(super) fn times(&self) -> Option<RangeInclusive<u64>> {
        self.times.clone()
    }

    /// Reports whether a sample is selected by its task, CPU and event.
    pub(super) fn takes(&self, of: Subject<'_>) -> bool {
        let args = self.args;
        let among = |list: &[u32], value| list.is_empty() || list.contains(&value);
        let named = |list: &[String], name: &str| list.is_empty() || list.iter().any(|word| word == name);
        among(&args.pid, of.pid)
            && among(&args.tid, of.tid)
            && named(&args.comms, of.comm)
            && named(&args.event, of.event)
            && self.cpus.as_ref().is_none_or(|cpus| of.cpu.is_some_and(|cpu| cpus.contains(cpu)))
    }

    /// Reports for each stack of a profile whether it is selected by its innermost function.
    pub(super) fn stacks(&self, tables: &Profile) -> Vec<bool> {
        let innermost = |stack: &[u32]| tables.locations.get(*stack.first()? as usize);
        let takes = |stack: &Box<[u32]>| match innermost(stack) {
            Some(location) => {
                self.takes_place(tables.module(location), tables.names(location).first().copied())
            }
            None => self.takes_place("[unknown]", None),
        };
        tables.stacks.iter().map(takes).collect()
    }

    /// Reports whether a sample is selected by its innermost function.
    pub(super) fn takes_place(&self, dso: &str, symbol: Option<&str>) -> bool {
        let (dsos, symbols) = (&self.args.dsos, &self.args.symbols);
        let file = dso.rsplit('/').next().unwrap_or(dso);
        (dsos.is_empty() || dsos.iter().any(|word| word == dso || word == file))
            && (symbols.is_empty() || symbol.is_some_and(|symbol| symbols.iter().any(|word| word == symbol)))
    }
}

/// Parses seconds with at most nine decimals.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        assert_eq!(nanoseconds("16273.738558"), Some(16_273_738_558_000));
        assert_eq!((nanoseconds("2"), nanoseconds("0.000000001")), (Some(2_000_000_000), Some(1)));
        for text in ["", "-1", "1.0000000001", "1.x", "99999999999999"] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
