//! The profiles in the report of a check.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use super::words::{bytes, count, heading};
use crate::config::profiled::{Rate, SampledTargets};
use crate::health::{Line, Scope, classify};
use crate::host::{CpuSet, Facts};
use crate::plan::{Plan, Sampler};
use crate::ring::RingBudget;
use crate::sys::{Attr, Event as _, Kernel, Place, Sampling};
use crate::targets::{Glob, ProcessRule};

/// A profile whose events can be opened.
#[derive(Debug, Serialize)]
pub(super) struct ProfileRow {
    pub(super) entry: String,
    pub(super) events: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filter: Option<String>,
    /// Sampling rate, in words.
    pub(super) rate: String,
    /// Value that a sample adds: `cpu`, `off_cpu` or an event.
    pub(super) value: String,
    pub(super) unit: &'static str,
    /// Shortest wait that is kept, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) threshold_seconds: Option<f64>,
    /// `auto`, `fp` or `dwarf`.
    pub(super) unwind: &'static str,
    /// Maximum bytes of user stack copied into each sample.
    pub(super) stack_bytes: u32,
    /// Maximum size of a sample in bytes.
    pub(super) sample_bytes: usize,
    /// Maximum samples per second and CPU. `None` if unbounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) samples_per_second: Option<u64>,
    /// Maximum addresses in a call chain of the kernel, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) depth: Option<u64>,
    /// Whether source lines and inlined functions are looked up.
    pub(super) lines: bool,
    /// Selections that limit which samples are kept. Empty if all are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) only: Vec<String>,
    /// Topology level by which metrics are attributed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) per: Option<Scope>,
    pub(super) cpus: usize,
    pub(super) descriptors: usize,
    pub(super) functions: usize,
    pub(super) window_seconds: u64,
}

/// The ring memory that all profiles share.
#[derive(Debug, Serialize)]
pub(super) struct ProfileRings {
    /// Size of one ring in bytes.
    pub(super) bytes: u64,
    /// Number of rings: one per CPU.
    pub(super) rings: usize,
}

impl ProfileRow {
    fn new(sampler: &Sampler, facts: &Facts) -> Self {
        let Sampler { entry, events, value, unwind, waits, lines, targets, per, functions, window, .. } =
            sampler;
        Self {
            entry: entry.to_string(),
            events: events.iter().map(|event| event.name.to_string()).collect(),
            filter: events.iter().find_map(|event| event.filter.as_deref()).map(str::to_owned),
            rate: match sampler.rate {
                rate if waits.is_some() => format!("up to about {rate}"),
                Rate::Period(period) if sampler.most_samples().is_some() => format!("each {period} ns"),
                rate => rate.to_string(),
            },
            value: value.name.to_string(),
            unit: if value.nanoseconds { "nanoseconds" } else { "count" },
            threshold_seconds: waits.as_ref().map(|waits| waits.threshold.as_secs_f64()),
            unwind: unwind.as_str(),
            stack_bytes: unwind.stack(),
            sample_bytes: Sampling::of(sampler).most_bytes(facts.max_stack),
            samples_per_second: sampler.most_samples(),
            depth: facts.max_stack,
            lines: *lines,
            only: only(targets),
            per: per.map(Scope::Cpus),
            cpus: cpus(sampler, &facts.online).len(),
            descriptors: sampler.descriptors(&facts.online),
            functions: *functions,
            window_seconds: window.as_secs(),
        }
    }

    /// Returns the profiles with an event that is not among the `refused`.
    pub(super) fn all(plan: &Plan, facts: &Facts, refused: &[Line]) -> Vec<Self> {
        let rows = plan.samplers.iter().map(|sampler| Self::new(sampler, facts));
        let taken = |row: &Self| {
            let is_refused = |event: &String| refused.iter().any(|line| line.is_of(&row.entry, SCOPE, event));
            !row.events.iter().all(is_refused)
        };
        rows.filter(taken).collect()
    }
}

impl ProfileRings {
    /// Returns the size and number of rings, or `None` if nothing is sampled.
    pub(super) fn of(rows: &[ProfileRow], plan: &Plan, facts: &Facts, memory: u64) -> Option<Self> {
        let of = |sampler: &Arc<Sampler>| cpus(sampler, &facts.online).iter().collect::<Vec<_>>();
        let rings = plan.samplers.iter().flat_map(of).collect::<CpuSet>().len();
        let largest = rows.iter().map(|row| row.sample_bytes).max()?;
        // With a fixed period, the sampling rate is not known in advance.
        let rate: u64 = rows.iter().filter_map(|row| row.samples_per_second).sum();
        let page = rustix::param::page_size();
        let pages = RingBudget::new(facts, memory, rings, page).pages(rate as f64, largest, page);
        Some(Self { bytes: (pages * page) as u64, rings })
    }
}

/// Returns the CPUs on which a profile is sampled.
fn cpus(sampler: &Sampler, online: &CpuSet) -> CpuSet {
    let all = sampler.events.iter().flat_map(|event| sampler.cpus(event, online).iter().collect::<Vec<_>>());
    all.collect()
}

/// Describes which samples are kept. Empty if all are.
fn only(targets: &SampledTargets) -> Vec<String> {
    let but = |kept: String, left_out: Vec<String>| match (kept.is_empty(), left_out.is_empty()) {
        (_, true) => kept,
        (true, false) => format!("all but {}", left_out.join(", ")),
        (false, false) => format!("{kept} but {}", left_out.join(", ")),
    };
    let cgroups = targets.cgroups.as_ref().map(|of| {
        let texts = |globs: &[Glob]| globs.iter().map(|glob| glob.as_str().to_owned()).collect::<Vec<_>>();
        let kept = texts(&of.include);
        // The default selection: no restriction to describe.
        let kept = if kept == ["/", "/**"] { String::new() } else { kept.join(", ") };
        format!("cgroups {}", but(kept, texts(&of.exclude)))
    });
    let processes = targets.processes.as_ref().map(|of| {
        let texts = |rules: &[ProcessRule]| rules.iter().map(rule).collect::<Vec<_>>();
        format!("processes {}", but(texts(&of.include).join(", "), texts(&of.exclude)))
    });
    let cpus = targets.cpus.as_ref().map(|cpus| format!("CPUs {cpus}"));
    cgroups.into_iter().chain(processes).chain(cpus).collect()
}

/// Describes a process rule. Empty for a rule that matches all processes.
fn rule(rule: &ProcessRule) -> String {
    let ProcessRule { comm, exe, cgroup, pid, kernel } = rule;
    let text = |glob: &Option<Glob>| glob.as_ref().map(|glob| glob.as_str().to_owned());
    let (pid, kernel) = (pid.map(|pid| pid.to_string()), kernel.map(|kernel| kernel.to_string()));
    let said = [
        ("comm", text(comm)),
        ("exe", text(exe)),
        ("cgroup", text(cgroup)),
        ("pid", pid),
        ("kernel", kernel),
    ];
    let said = said.into_iter().filter_map(|(word, value)| Some(format!("{word}={}", value?)));
    said.collect::<Vec<_>>().join("+")
}

/// Scope of refusals of profiles.
const SCOPE: Scope = Scope::HOST;

/// Opens each event briefly on the first of its CPUs. A refusal there is taken to apply to all CPUs.
pub(super) fn refused<K: Kernel>(kernel: &K, plan: &Plan, facts: &Facts) -> Vec<Line> {
    let mut rows = Vec::new();
    for sampler in &plan.samplers {
        let attr = |event| Attr::sampling(event, Sampling::of(sampler));
        for event in &sampler.events {
            let Some(cpu) = sampler.cpus(event, &facts.online).iter().next() else { continue };
            let opened = kernel.open(&attr(event), Place::Cpu(cpu), None).and_then(|event| event.id());
            let Err(errno) = opened else { continue };
            let attempt = event.attempt(Scope::CPU);
            let refusal = classify(errno, &attempt, facts).refusal(&event.name, "this host", Some(errno));
            let (entry, position) = (Arc::clone(&sampler.entry), None);
            rows.push(Line { entry, scope: SCOPE, refusal, targets: 1, position });
        }
    }
    rows
}

/// Writes the profiles as text.
pub(super) fn write(
    out: &mut impl Write,
    rows: &[ProfileRow],
    rings: Option<&ProfileRings>,
) -> io::Result<()> {
    heading(out, rows, "Profiles")?;
    for row in rows {
        let only =
            if row.only.is_empty() { String::new() } else { format!("; only {}", row.only.join("; ")) };
        let per = row.per.map(|scope| format!(" per {scope}")).unwrap_or_default();
        writeln!(out, "  {}{per} on {}{only}", row.entry, count(row.cpus, "CPU"))?;
        let filter = row.filter.as_ref().map(|filter| format!(" where {filter}")).unwrap_or_default();
        writeln!(out, "    event     {}{filter}, {}", row.events.join(" and "), row.rate)?;
        let worth = match (row.threshold_seconds, row.unit == "nanoseconds") {
            (Some(seconds), _) => format!("time off CPU, for waits of at least {seconds} s"),
            (None, true) => format!("time ({})", row.value),
            (None, false) => format!("number of {}", row.value),
        };
        writeln!(out, "    value     {worth}")?;
        let copies = match row.stack_bytes {
            0 => "no stack copy".to_owned(),
            stack => format!("{} of stack in each sample", bytes(stack.into())),
        };
        let depth = row.depth.map(|depth| format!("; call chains of at most {depth} addresses"));
        writeln!(out, "    unwind    {}: {copies}{}", row.unwind, depth.unwrap_or_default())?;
        let size = bytes(row.sample_bytes as u64);
        let all = row.samples_per_second.map(|samples| samples.saturating_mul(row.sample_bytes as u64));
        let all = all.map_or("unbounded rate".into(), |all| format!("{} per second and CPU", bytes(all)));
        writeln!(out, "    samples   up to {size} each, {all}")?;
        if row.lines {
            writeln!(
                out,
                "    lines     source lines and inlined functions, where programs have debug information"
            )?;
        }
        if row.threshold_seconds.is_some() {
            writeln!(out, "    switches  one record of about 100 bytes per context switch")?;
        }
        write!(out, "    shown     the last {} s", row.window_seconds)?;
        match row.functions {
            0 => writeln!(out)?,
            top => writeln!(out, "; metrics for the {top} busiest functions")?,
        }
    }
    rings.map_or(Ok(()), |ProfileRings { bytes: each, rings }| {
        let (each, all) = (bytes(*each), bytes(each.saturating_mul(*rings as u64)));
        writeln!(out, "  rings       {each} of locked memory per CPU, {all} in total (limits.memory)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, load};
    use crate::error::Errno;
    use crate::event::Catalog;
    use crate::host::Roots;
    use crate::plan::{Entries, StreamSupport, plan};
    use crate::sys::fake::FakeKernel;

    /// Returns the plan for a section `profiles` on a machine with two CPUs and no other facts.
    fn planned(profiles: &str) -> (Plan, Facts) {
        let (config, _): (Config, _) = load(format!("profiles: {{{profiles}}}").as_bytes(), "f").unwrap();
        let facts = Facts { online: "0-1".parse().unwrap(), ..Facts::default() };
        let entries = Entries { profiles: &config.profiles, ..Entries::counters(&[]) };
        let catalog = Catalog::load(&Roots::under(std::path::Path::new("/nonexistent")), &facts);
        (plan(&entries, &catalog, &StreamSupport::foreseen(&facts)), facts)
    }

    fn text(profiles: &str) -> String {
        let (plan, facts) = planned(profiles);
        let rows = ProfileRow::all(&plan, &facts, &[]);
        let mut out = Vec::new();
        write(&mut out, &rows, ProfileRings::of(&rows, &plan, &facts, 8 << 20).as_ref()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_a_profile_takes_is_told_and_whose_samples_it_keeps() {
        let entry = "event: cpu-clock, unwind: fp, lines: true, cpus: 1, functions: 0, cgroups: {exclude: /a}, \
             processes: {include: [{comm: 'x*', pid: 7}, {exe: /b}]}";
        let expected = "
Profiles:
  a on 1 CPU; only cgroups all but /a; processes comm=x*+pid=7, exe=/b; CPUs 1
    event     cpu-clock, 19 samples per second and CPU
    value     time (cpu)
    unwind    fp: no stack copy
    samples   up to 1.1 KiB each, 20.9 KiB per second and CPU
    lines     source lines and inlined functions, where programs have debug information
    shown     the last 60 s
  rings       512 KiB of locked memory per CPU, 512 KiB in total (limits.memory)
";
        assert_eq!(text(&format!("a: {{{entry}}}")), expected);
        assert!(text("a: {event: cpu-clock, period: 5000000}").contains("cpu-clock, each 5000000 ns\n"));
        assert_eq!(text(""), "");
    }

    #[test]
    fn what_is_refused_everywhere_is_among_the_refusals_alone() {
        let (plan, facts) = planned("a: {event: cpu-clock}, b: {event: faults}");
        let kernel = FakeKernel::new();
        kernel.refuse(Errno::EACCES, |attr, _, _| attr.selector.config[0] == 0);
        let refused = refused(&kernel, &plan, &facts);
        let entries: Vec<&str> = refused.iter().map(|row| &*row.entry).collect();
        assert_eq!(entries, ["a"]);
        let rows = ProfileRow::all(&plan, &facts, &refused);
        assert_eq!(rows.iter().map(|row| &*row.entry).collect::<Vec<_>>(), ["b"]);
    }
}
