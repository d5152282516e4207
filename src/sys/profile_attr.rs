//! Options of the events of a profile.

use super::{Attr, Fields, Rate, Registers, Sampling, Sideband};
use crate::config::profiled::Unwind;
use crate::event;
use crate::plan::Sampler;

/// Size of the record header, and of the words that every sample contains: ID, address, task and time.
const FIXED: usize = 8 + 4 * 8;
/// Size of `sched:sched_switch` in a sample: a size, four common fields, two names, and the outgoing and incoming task.
const SWITCH: usize = 72;
/// Maximum number of words in a call chain that mark the context of the following addresses (`PERF_MAX_CONTEXTS_PER_STACK`).
const CONTEXTS: u64 = 8;
/// Maximum number of addresses of a call chain, unless configured otherwise (`PERF_MAX_STACK_DEPTH`).
const DEPTH: u64 = 127;
/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// Maximum size of a record: the size has 16 bits, and is a multiple of 8.
const RECORD: usize = 65_528;

impl Attr {
    /// Returns the options for sampling `event`, starting with the first [`Event::enable`](super::Event::enable).
    pub fn sampling(event: &event::Event, sampling: Sampling) -> Self {
        Self { sampling: Some(sampling), ..Self::counting(event) }
    }
}

impl Sampling {
    /// Returns the sampling options of a profile. Times are those of `CLOCK_MONOTONIC`, so that they can be compared with records of mapped
    /// files in another ring.
    pub fn of(sampler: &Sampler) -> Self {
        let waits = sampler.waits.is_some();
        // A frequency is not suitable: switches come in bursts, after which the kernel continues with a period that is much too long. The
        // weights of its samples do not compensate for that.
        let rate = if waits { Rate::Period(1) } else { sampler.rate };
        let fields = Fields {
            identifier: true,
            ip: true,
            tid: true,
            time: true,
            period: sampler.period.is_none() && !waits,
            callchain: sampler.unwind != Unwind::Nothing,
            raw: waits,
            user_stack: sampler.unwind.stack(),
            cgroup: sampler.tells_cgroup,
            ..Fields::NONE
        };
        Self { rate, fields, sideband: Sideband::default(), ordered: true }
    }

    /// Returns the sampling options for records of `event` that are stored in a file, as `perf record` chooses them. The reader of the file
    /// has no access to the program: therefore [`Unwind::Auto`] means frame pointers.
    pub fn stored(sampler: &Sampler, event: &event::Event) -> Self {
        let sampling = Self::of(sampler);
        let user_stack = match sampler.unwind {
            Unwind::Dwarf { stack } => stack,
            Unwind::Auto { .. } | Unwind::FramePointers | Unwind::Nothing => 0,
        };
        let fields = Fields {
            cpu: true,
            period: true,
            raw: event.selector.kind == TRACEPOINT,
            user_stack,
            all_registers: true,
            kernel_only: user_stack > 0,
            access: sampler.memory.is_some(),
            split_weight: sampler.memory.as_ref().is_some_and(|memory| memory.is_split),
            physical: sampler.memory.as_ref().is_some_and(|memory| memory.physical),
            ..sampling.fields
        };
        Self { fields, ..sampling }
    }

    /// Returns the maximum size of a sample of a profile, in bytes, for call chains of at most `depth` addresses
    /// (`kernel.perf_event_max_stack`).
    pub fn most_bytes(&self, depth: Option<u64>) -> usize {
        let Fields { cpu, period, callchain, raw, user_stack, cgroup, .. } = self.fields;
        let chain = usize::try_from(depth.unwrap_or(DEPTH).saturating_add(1 + CONTEXTS)).unwrap_or(RECORD);
        let parts = [
            FIXED,
            if cpu { 8 } else { 0 },
            if period { 8 } else { 0 },
            if callchain { chain.saturating_mul(8) } else { 0 },
            if raw { SWITCH } else { 0 },
            // The ABI and the registers; the size of the stack copy before it, and its filled size behind it.
            if user_stack > 0 { (1 + Registers::COUNT + 2) * 8 + user_stack as usize } else { 0 },
            if cgroup { 8 } else { 0 },
        ];
        parts.into_iter().fold(0, usize::saturating_add).min(RECORD)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::profiled::{SampledTargets, one_event};
    use crate::event::Catalog;
    use crate::host::{Facts, Roots};
    use crate::plan::Value;

    fn sampler(rate: Rate, period: Option<u64>, unwind: Unwind) -> Sampler {
        Sampler {
            entry: "a".into(),
            events: Vec::new(),
            rate,
            value: Value { name: "cpu".into(), nanoseconds: true },
            period,
            waits: None,
            unwind,
            lines: false,
            targets: SampledTargets::default(),
            tells_cgroup: true,
            cpus: false,
            per: None,
            functions: 50,
            window: Duration::from_secs(60),
            memory: None,
        }
    }

    #[test]
    fn a_sample_tells_what_is_not_known_without_it() {
        let clock = sampler(Rate::Frequency(19), Some(52_631_578), Unwind::FramePointers);
        let Sampling { rate, fields, ordered, .. } = Sampling::of(&clock);
        assert_eq!((rate, ordered), (Rate::Frequency(19), true));
        assert_eq!((fields.period, fields.raw, fields.user_stack), (false, false, 0));
        let faults = sampler(Rate::Frequency(19), None, Unwind::Dwarf { stack: 8192 });
        let fields = Sampling::of(&faults).fields;
        assert_eq!((fields.period, fields.callchain, fields.user_stack), (true, true, 8192));
    }

    #[test]
    fn a_stored_sample_has_its_cpu_and_period_and_the_stack_for_dwarf_alone() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::load(&Roots::under(dir.path()), &Facts::default());
        let event = catalog.resolve(&one_event("cpu-clock").unwrap()).unwrap().remove(0);
        let fields = |unwind, event: &event::Event| {
            Sampling::stored(&sampler(Rate::Frequency(19), Some(1), unwind), event).fields
        };
        let auto = fields(Unwind::Auto { stack: 8192 }, &event);
        assert!(auto.cpu && auto.period && auto.callchain && !auto.raw);
        assert_eq!((auto.user_stack, auto.kernel_only), (0, false));
        let dwarf = fields(Unwind::Dwarf { stack: 8192 }, &event);
        assert_eq!((dwarf.user_stack, dwarf.kernel_only), (8192, true));
        let mut tracepoint = event;
        tracepoint.selector.kind = TRACEPOINT;
        assert!(fields(Unwind::Nothing, &tracepoint).raw);
    }

    #[test]
    fn a_sample_has_room_for_its_chain_and_its_stack_and_ends_at_64_kib() {
        let bytes =
            |unwind, depth| Sampling::of(&sampler(Rate::Period(1), Some(1), unwind)).most_bytes(depth);
        assert_eq!(bytes(Unwind::FramePointers, Some(127)), 40 + 136 * 8 + 8);
        assert_eq!(bytes(Unwind::FramePointers, None), bytes(Unwind::FramePointers, Some(127)));
        let stack = bytes(Unwind::Auto { stack: 16 << 10 }, None) - bytes(Unwind::FramePointers, None);
        assert_eq!(stack, (16 << 10) + (3 + Registers::COUNT) * 8);
        assert_eq!(bytes(Unwind::Auto { stack: 60 << 10 }, Some(10_000)), RECORD);
        assert_eq!(bytes(Unwind::FramePointers, Some(u64::MAX)), RECORD);
    }
}
