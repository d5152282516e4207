//! Stacks sampled at overflows of a hardware counter, and at calls of a kernel function.

use std::thread;
use std::time::Duration;

use crate::probes::GETPPID;
use crate::support::Feature;
use crate::support::calls::Calls;
use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::folded::Folded;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::users::SampleRate;
use crate::{ALWAYS_FRESH, advance, agree, counters_with};

/// A kernel function that is an ancestor of system calls in a stack. On arm64 it is not the direct caller: at the entry of a function, the
/// kernel follows frame pointers from the caller's frame and so skips the caller.
const SYSCALL: &str = if cfg!(target_arch = "aarch64") { "do_el0_svc" } else { "do_syscall_64" };

/// CPU time of the worker in milliseconds; about four hundred samples at 99 samples per second.
const MILLISECONDS: u64 = 4000;

/// A profile of a worker, and its counters.
struct Sampled {
    service: Service,
    worker: Worker,
    cgroup: TestCgroup,
    _rate: SampleRate,
}

impl Sampled {
    /// Starts a worker and a service that counts and samples its cycles at this rate. Unwinding is by frame pointers, and function metrics
    /// are off, because a guest needs many seconds to read the symbol tables of the test binary.
    fn by(rate: &str) -> Self {
        let rate_of_kernel = SampleRate::steady();
        let (cgroup, worker) = (TestCgroup::new("sampled"), Worker::start("sampled"));
        cgroup.take(worker.pid());
        let service = Service::start(&format!(
            "{ALWAYS_FRESH}counters: {{core: {{events: [cycles], per: [cgroup]}}}}\n\
             cgroups: {{include: [\"{}\"], attribution: dedicated}}\n\
             profiles: {{hot: {{event: cycles, {rate}, unwind: fp, functions: 0, window: 600s}}}}\n",
            cgroup.path()
        ));
        Self { service, worker, cgroup, _rate: rate_of_kernel }
    }

    /// Orders work, and returns the number of cycles that it took and the number of its samples.
    fn meanwhile(&mut self, work: impl FnOnce(&mut Worker)) -> [f64; 2] {
        let before = self.service.metrics();
        work(&mut self.worker);
        // A collection contains the samples that were analyzed before it. The ring reader runs five times per second.
        thread::sleep(Duration::from_secs(1));
        let after = self.service.metrics();
        let own = ("cgroup", self.cgroup.path());
        let cycles = advance(&before, &after, "perf_cgroup_cycles_total", &[own]);
        let samples = |metrics: &Exposition| metrics.sum("perf_samples_total", &[own, ("profile", "hot")]);
        // Sampling by frequency begins with bursts, because the first periods are too short.
        let lost = after.sum("perf_lost_records_total", &[("ring", "samples")]);
        assert!(
            lost <= 0.02 * samples(&after),
            "{lost} of {} records were lost, too many",
            samples(&after) + lost
        );
        assert_eq!(after.sum("perf_throttled_total", &[]), 0.0);
        [cycles, samples(&after) - samples(&before)]
    }

    fn folded(&self) -> Folded {
        Folded::of(&self.service, &format!("type=hot&pid={}", self.worker.pid()))
    }
}

/// Returns the cycles represented by samples in user space and in the kernel. The kernel's can exceed its share: after an idle CPU,
/// sampling by frequency begins with short periods.
fn modes(folded: &Folded) -> [f64; 2] {
    let kernel = folded.share_of(|stack| stack.last().is_some_and(|frame| frame.ends_with("_[k]")));
    [(1.0 - kernel) * folded.total(), kernel * folded.total()]
}

/// Checks the shares of the functions within the stacks of their callers.
fn assert_quarters(folded: &Folded) {
    let below = |function: &str| {
        folded.share_of(|stack| {
            let at = |name: &str| stack.iter().position(|frame| frame.ends_with(name));
            at("::serve").zip(at(function)).is_some_and(|(outer, inner)| outer < inner)
        })
    };
    let [three, one] = ["::three_quarters", "::one_quarter"].map(below);
    assert!(three + one > 0.6 && agree(three, 3.0 * one, 0.3), "{three} and {one}: {folded:#?}");
}

#[test]
fn cycles_are_sampled_so_many_times_a_second_and_each_sample_stands_for_its_cycles() {
    let Some(_counters) = counters_with(Feature::Pmu) else { return };
    let mut sampled = Sampled::by("frequency: 99");
    let [cycles, samples] = sampled.meanwhile(|worker| worker.does(Work::Quarters(MILLISECONDS)));
    let folded = sampled.folded();
    let [user, kernel] = modes(&folded);
    let told =
        format!("{samples} samples, {user} cycles of user space and {kernel} of the kernel, of {cycles}");
    // The kernel adapts the period to reach this rate, and begins with a period that is too short.
    let expected = 99.0 * MILLISECONDS as f64 / 1e3;
    assert!((0.7 * expected..2.0 * expected).contains(&samples), "{told}, and {expected} samples expected");
    assert!(agree(user + kernel, cycles, 0.15), "{told}");
    // The emulator reports many overflows late, when the kernel enables interrupts again after a system call.
    assert!(user > 2.0 * kernel, "{told}: {folded:#?}");
    assert_quarters(&folded);

    // Few long calls: an overflow that the emulator reports late, at the return from a system call, is a sample of user space. With 4000 calls
    // of 1 MiB these were a fifth of all samples, with 250 of 16 MiB they are a sixtieth or less.
    let [cycles, _] = sampled.meanwhile(|worker| worker.calls(Calls::Read(1 << 24), 250));
    let [user_after, kernel_after] = modes(&sampled.folded());
    let [user, kernel] = [user_after - user, kernel_after - kernel];
    assert!(kernel > 20.0 * user, "{user} cycles of user space and {kernel} of the kernel, of {cycles}");
}

#[test]
fn every_so_many_cycles_are_a_sample() {
    const PERIOD: f64 = 10_000_000.0;
    let Some(_counters) = counters_with(Feature::Pmu) else { return };
    let mut sampled = Sampled::by("period: 10000000");
    let [cycles, samples] = sampled.meanwhile(|worker| worker.does(Work::Quarters(MILLISECONDS)));
    let folded = sampled.folded();
    let [user, kernel] = modes(&folded);
    let told =
        format!("{samples} samples, {user} cycles of user space and {kernel} of the kernel, of {cycles}");
    assert!(agree(samples * PERIOD, cycles, 0.15), "{told}");
    assert!(agree(folded.total(), samples * PERIOD, 0.01), "{told}: {folded:#?}");
    assert!(samples > 100.0 && user > 9.0 * kernel, "{told}");
    assert_quarters(&folded);
}

#[test]
fn every_call_of_a_function_of_the_kernel_is_a_sample_with_the_stack_of_its_caller() {
    let Some(_counters) = counters_with(Feature::Kprobe) else { return };
    const CALLS: f64 = 1000.0;
    let mut worker = Worker::start("asks");
    let service = Service::start(&format!(
        "{ALWAYS_FRESH}counters: {{os: {{events: [context-switches], per: [cpu]}}}}\n\
         profiles:\n  asks: {{kprobe: {GETPPID}, unwind: fp, functions: 0}}\n  \
         answers: {{kretprobe: {GETPPID}, unwind: fp, functions: 0}}\n"
    ));
    worker.does(Work::Getppid(CALLS as u64));
    let folded =
        |entry: &str| Folded::of(&service, &format!("type={entry}&annotate=false&pid={}", worker.pid()));
    let (asks, answers) = (folded("asks"), folded("answers"));
    let lost = service.metrics().sum("perf_lost_records_total", &[("ring", "samples")]);
    for samples in [&asks, &answers] {
        let total = samples.total();
        assert!(total <= CALLS && total + lost >= CALLS, "{total} samples, {lost} lost: {samples:#?}");
        assert_eq!(samples.share_of(|stack| stack.iter().any(|frame| frame == SYSCALL)), 1.0, "{samples:#?}");
    }
    assert_eq!(asks.innermost().into_keys().collect::<Vec<_>>(), [GETPPID], "{asks:#?}");
    // The function has returned when the sample is taken.
    assert!(!answers.innermost().contains_key(GETPPID), "{answers:#?}");
}
