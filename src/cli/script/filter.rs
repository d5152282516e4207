//! Selection of samples.

use anyhow::Context as _;

use super::args::ScriptArgs;
use crate::host::CpuSet;
use crate::profile::Profile;

/// The selected samples.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    args: &'a ScriptArgs,
    cpus: Option<CpuSet>,
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
    /// If the list of CPUs is invalid.
    pub(super) fn new(args: &'a ScriptArgs) -> anyhow::Result<Self> {
        let cpus = args
            .cpu
            .as_deref()
            .map(|list| list.parse().with_context(|| format!("--cpu {list}")))
            .transpose()?;
        Ok(Self { args, cpus })
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
        let takes = |stack: &[u32]| match innermost(stack) {
            Some(location) => {
                self.takes_place(tables.module(location), tables.names(location).first().copied())
            }
            None => self.takes_place("[unknown]", None),
        };
        tables.stacks.iter().map(|stack| takes(stack)).collect()
    }

    /// Reports whether a sample is selected by its innermost function.
    pub(super) fn takes_place(&self, dso: &str, symbol: Option<&str>) -> bool {
        let (dsos, symbols) = (&self.args.dsos, &self.args.symbols);
        let file = dso.rsplit('/').next().unwrap_or(dso);
        (dsos.is_empty() || dsos.iter().any(|word| word == dso || word == file))
            && (symbols.is_empty() || symbol.is_some_and(|symbol| symbols.iter().any(|word| word == symbol)))
    }
}
