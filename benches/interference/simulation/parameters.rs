//! The numbers of the simulated machines.
//!
//! FROZEN: these numbers were fixed before any method was run on them. Do not change a number because of a result. A change makes all figures
//! in docs/anomalies.md invalid.

/// Seeds for choosing methods and constants.
pub(crate) const TUNING: std::ops::Range<u64> = 0..30;
/// First seed of the results. Those from 1000 on were used when the robust method was changed because of a result.
pub(crate) const HELD_OUT: u64 = 2000;

/// Length of a step in milliseconds: an interval of the exporter.
pub(crate) const STEP: u64 = 10_000;
pub(crate) const STEPS_OF_A_MINUTE: u64 = 6;
pub(crate) const STEPS_OF_A_DAY: u64 = 8640;

/// CPUs of a machine.
pub(crate) const CPUS: [f64; 3] = [8.0, 12.0, 16.0];
/// Least and largest number of pods.
pub(crate) const PODS: (f64, f64) = (10.0, 30.0);
/// Shares of the pods that are idle services, batch jobs, and antagonists. The others are busy services.
pub(crate) const IDLE: f64 = 0.15;
pub(crate) const BATCH: f64 = 0.15;
pub(crate) const ANTAGONISTS: f64 = 0.15;
/// Share of the CPUs that services use on average.
pub(crate) const LOAD: (f64, f64) = (0.3, 0.5);

/// Natural logarithm of cycles per instruction: mean and deviation between workloads.
pub(crate) const CPI: (f64, f64) = (0.18, 0.35);
/// Change of cycles per instruction when the load doubles.
pub(crate) const LOAD_SLOPE: (f64, f64) = (-0.05, 0.25);
/// Share by which the load of a service rises and falls in a day.
pub(crate) const DIURNAL: (f64, f64) = (0.1, 0.6);
/// Memory in steps, and deviation, of the load.
pub(crate) const LOAD_NOISE: (f64, f64) = (30.0, 0.15);
/// Deviation of the load without memory.
pub(crate) const LOAD_JITTER: f64 = 0.08;
/// Memory in steps, and deviation, of cycles per instruction: two hours, two minutes.
pub(crate) const SLOW_NOISE: (f64, f64) = (720.0, 0.03);
pub(crate) const FAST_NOISE: (f64, f64) = (12.0, 0.05);
/// Deviation without memory at half a CPU. It grows with the root of the inverse of the usage.
pub(crate) const JITTER: f64 = 0.04;
/// Probability of a single high value, and mean of its share above.
pub(crate) const TAIL: (f64, f64) = (0.004, 0.3);
/// Phases of a program, such as garbage collections: number in a day, least and largest length in steps, and mean of the share above.
pub(crate) const PHASES: f64 = 8.0;
pub(crate) const PHASE_LENGTH: (f64, f64) = (1.0, 6.0);
pub(crate) const PHASE_RISE: f64 = 0.2;
/// Share above at the start of a program, and steps in which it falls to a third.
pub(crate) const COLD: (f64, f64) = (0.5, 6.0);
/// Rise of all pods on a machine whose CPUs are all busy, from 60% on.
pub(crate) const CROWDED: f64 = 0.1;
/// Probability that an interval has no values.
pub(crate) const GAP: f64 = 0.0005;

/// Deploys of a workload and restarts of a pod, in a day. A restart takes 2 to 6 steps.
pub(crate) const DEPLOYS: f64 = 1.0 / 3.0;
pub(crate) const RESTARTS: f64 = 1.0 / 7.0;
/// Deviation of the permanent change by a deploy, and its limit.
pub(crate) const DEPLOY_CHANGE: (f64, f64) = (0.05, 0.12);

/// CPUs of a batch job, steps in which it runs (5 minutes to an hour) and rests (half an hour to 6 hours), and deviation between runs.
pub(crate) const BATCH_CPUS: (f64, f64) = (1.0, 3.0);
pub(crate) const BATCH_RUNS: (f64, f64) = (30.0, 360.0);
pub(crate) const BATCH_RESTS: (f64, f64) = (180.0, 2160.0);
pub(crate) const BATCH_CHANGE: f64 = 0.08;

/// Episodes of interference in a day, from the second day on, and steps between them at least.
pub(crate) const EPISODES: f64 = 4.0;
pub(crate) const PAUSE: u64 = 270;
/// Steps of an episode: 5 minutes to an hour.
pub(crate) const EPISODE: (f64, f64) = (30.0, 360.0);
/// Cycles per instruction of the victim, as a multiple.
pub(crate) const RISES: [f64; 5] = [1.2, 1.3, 1.5, 2.0, 3.0];
/// Sensitivity from which a pod is a victim.
pub(crate) const SENSITIVE: f64 = 0.3;
/// CPUs of an antagonist.
pub(crate) const ANTAGONIST_CPUS: (f64, f64) = (1.0, 4.0);
/// Share of its CPUs that an antagonist uses before it grows.
pub(crate) const BEFORE_GROWTH: f64 = 0.3;
/// Steps for which an antagonist with pulses runs and rests.
pub(crate) const PULSE: (f64, f64) = (6.0, 18.0);
/// Probability that a second antagonist runs at the same time, with half of the effect.
pub(crate) const PAIR: f64 = 0.1;

/// Share of all CPUs that an antagonist demands that keeps pods waiting.
pub(crate) const CONTENTION: (f64, f64) = (0.6, 1.5);
/// Natural logarithm of the run-queue latency in seconds, and its deviation between pods and between steps.
pub(crate) const LATENCY: (f64, f64, f64) = (-6.2, 0.35, 0.35);
/// Latency in seconds for each CPU that is missing, as a share of those that there are.
pub(crate) const LATENCY_OF_OVERLOAD: f64 = 0.06;
