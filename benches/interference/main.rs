//! Simulated machines with victims and antagonists: how well anomalies are found and suspects are named, against other methods.
//!
//! `cargo bench --bench interference` takes some minutes. Arguments, after `--`:
//!
//!   results  the table of docs/anomalies.md (default)
//!   limits   the cases in which it fails (default)
//!   tune     false alarms of fixed limits on the seeds for tuning, from which the limit of the table was chosen
//!
//! The parameters of the machines are frozen (simulation/parameters.rs). Nothing depends on the time or on this machine.
//! tests/it/interference.rs runs it on fewer machines, with bounds that so few can hold.

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]

mod simulation;

use simulation::parameters::{HELD_OUT, TUNING};
use simulation::{Contender, Form, Naming, Outcome, Score, World, all, proportion, rate};

/// The lowest limit with less than one false alarm per machine and week on the seeds for tuning (`-- tune`).
const LIMIT: f64 = 4.0;
/// Machines of each table, a week each.
const MACHINES: u64 = 30;
const WEEK: u64 = 7;

fn percent(counts: (usize, usize)) -> String {
    let (low, high) = proportion(counts);
    let share = 100.0 * counts.0 as f64 / counts.1.max(1) as f64;
    format!("{share:.0}% ({:.0}–{:.0})", 100.0 * low, 100.0 * high)
}

fn per(events: u64, time: f64, digits: usize) -> String {
    let (low, high) = rate(events, time);
    format!("{:.digits$} ({low:.digits$}–{high:.digits$})", events as f64 / time)
}

fn seconds(steps: Option<u64>) -> String {
    steps.map_or("–".into(), |steps| format!("{} s", 10 * steps))
}

/// Prints false alarms of machines without interference, and recall, delay and precision of those with it.
fn results() {
    let contenders = [
        Contender::Robust,
        Contender::Cpi2,
        Contender::Fixed(LIMIT),
        Contender::OneOutlier,
        Contender::ThreeOutliers,
        Contender::Prometheus,
    ];
    let seeds = HELD_OUT..HELD_OUT + MACHINES;
    let quiet = all(seeds.clone(), World::new(WEEK, 0.0), &contenders);
    let disturbed = all(seeds, World::new(WEEK, simulation::parameters::EPISODES), &contenders);
    println!("{} container-days, {:.0} busy", quiet[0].containers.round(), quiet[0].busy);
    println!(
        "| method | false alarms per machine and week | per container and day | per busy one | precision |"
    );
    println!("|---|---|---|---|---|");
    for (contender, (quiet, disturbed)) in contenders.iter().zip(quiet.iter().zip(&disturbed)) {
        let precision = (disturbed.justified as usize, (disturbed.justified + disturbed.vain) as usize);
        println!(
            "| {} | {} | {} | {} | {} |",
            contender.name(),
            per(quiet.vain, quiet.machines / 7.0, 2),
            per(quiet.vain, quiet.containers, 4),
            per(quiet.vain, quiet.busy, 4),
            percent(precision)
        );
    }
    println!(
        "\n| method | × 1.2 | × 1.3 | × 1.5 | × 2 | × 3 | × 1.5 and more in 5 min | median | 95th percentile |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (contender, score) in contenders.iter().zip(&disturbed) {
        let recall =
            |rise: f64| percent(score.found(u64::MAX, |found| found.usage >= 0.3 && found.rise == rise));
        let recalls: Vec<String> = simulation::parameters::RISES.map(recall).into();
        let soon = score.found(30, |found| found.usage >= 0.3 && found.rise >= 1.5);
        let (median, late) = (seconds(score.delay(0.5)), seconds(score.delay(0.95)));
        println!(
            "| {} | {} | {} | {median} | {late} |",
            contender.name(),
            recalls.join(" | "),
            percent(soon)
        );
    }
    for (contender, score) in contenders.iter().zip(&disturbed).take(2) {
        println!("\n{}: episodes of busy victims × 1.5 within 5 min by form:", contender.name());
        for form in Form::ALL {
            let soon = score.found(30, |found| found.usage >= 0.3 && found.rise == 1.5 && found.form == form);
            println!("  {form:?} {} {soon:?}", percent(soon));
        }
    }
    println!("\n| method | suspects of | first | listed | wrong | none |\n|---|---|---|---|---|---|");
    for (contender, score) in contenders.iter().zip(&disturbed).take(2) {
        naming(&contender.name(), "all", score, |_| true);
        for rise in simulation::parameters::RISES {
            naming(&contender.name(), &format!("× {rise}"), score, |outcome| outcome.rise == rise);
        }
        for form in Form::ALL {
            naming(&contender.name(), &format!("{form:?}"), score, |outcome| outcome.form == form);
        }
        naming(&contender.name(), "two", score, |outcome| outcome.is_pair);
    }
}

fn naming(method: &str, of: &str, score: &Score, is_counted: impl Fn(&Outcome) -> bool + Copy) {
    let share = |naming| percent(score.named(naming, is_counted));
    let shares = [Naming::First, Naming::Listed, Naming::Wrong, Naming::None].map(share);
    println!("| {method} | {of} | {} |", shares.join(" | "));
}

/// Prints the cases in which the robust method fails.
fn limits() {
    let seeds = HELD_OUT..HELD_OUT + MACHINES;
    let run = |world| all(seeds.clone(), world, &[Contender::Robust]).remove(0);
    let usual = World::new(WEEK, simulation::parameters::EPISODES);
    let score = run(usual);
    let line = |what: &str, counts| println!("{what}: {} {counts:?}", percent(counts));
    let is_busy = |found: &Outcome| found.usage >= 0.3;
    line(
        "below 0.25 CPUs, × 1.5 and more",
        score.found(u64::MAX, |found| found.usage < 0.25 && found.rise >= 1.5),
    );
    line(
        "5 to 8 minutes",
        score.found(u64::MAX, |found| is_busy(found) && found.rise >= 1.5 && found.length < 48),
    );
    line("longer", score.found(u64::MAX, |found| is_busy(found) && found.rise >= 1.5 && found.length >= 48));
    let soon = |form| score.found(30, |found| is_busy(found) && found.rise >= 1.5 && found.form == form);
    Form::ALL
        .into_iter()
        .for_each(|form| line(&format!("{form:?}, × 1.5 and more, in 5 minutes"), soon(form)));
    let sustained = |found: &Outcome| is_busy(found) && found.form != Form::Pulses;
    line(
        "all but pulses, × 1.5, in 5 minutes",
        score.found(30, |found| sustained(found) && found.rise == 1.5),
    );
    line("all but pulses, × 1.5 and more", score.found(30, |found| sustained(found) && found.rise >= 1.5));
    for deviation in [0.1, 0.2, 0.4] {
        let score = run(World { deploy_change: (deviation, 1.0), ..World::new(WEEK, 0.0) });
        let alarms = per(score.vain, score.machines / 7.0, 2);
        println!(
            "deploys that change cycles per instruction by {deviation}: {alarms} false alarms per machine and week"
        );
    }
    let world = World { contention: true, ..usual };
    let waits = all(seeds.clone(), world, &[Contender::Waits]).remove(0);
    line("CPU contention, by run-queue latency", waits.found(u64::MAX, |_| true));
    println!("  {} and {}", seconds(waits.delay(0.5)), seconds(waits.delay(0.95)));
    println!("  {} false alarms per machine and week", per(waits.vain, waits.machines / 7.0, 2));
    naming("robust", "contention", &waits, |_| true);
}

/// Prints the false alarms of fixed limits.
fn tune() {
    let limits = [2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0].map(Contender::Fixed);
    for (limit, score) in limits.iter().zip(all(TUNING, World::new(WEEK, 0.0), &limits)) {
        println!("{}: {} per machine and week", limit.name(), per(score.vain, score.machines / 7.0, 2));
    }
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, part, is_default) in
        [("tune", tune as fn(), false), ("results", results, true), ("limits", limits, true)]
    {
        if wanted.is_empty() && is_default || wanted.iter().any(|wanted| wanted == name) {
            part();
        }
    }
}
