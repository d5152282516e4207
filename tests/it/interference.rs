//! A short run of `cargo bench --bench interference` on machines of its own seeds: the goals of detection and of the naming of suspects.

use crate::simulation::{Contender, Naming, World, all, proportion, rate};

/// Seeds that neither the benchmark nor the choice of constants uses.
const SEEDS: std::ops::Range<u64> = 5000..5003;

/// The goal is less than 0.01 alarms per container and day. A hundred container-days cannot prove that: the benchmark has 4000. They detect a
/// method with several times as many.
#[test]
fn a_simulated_machine_without_interference_raises_few_alarms() {
    let score = all(SEEDS, World::new(2, 0.0), &[Contender::Robust]).remove(0);
    let (_, most) = rate(score.vain, score.containers);
    println!("{} alarms in {:.0} container-days: at most {most:.3} a day", score.vain, score.containers);
    assert!(score.vain <= 2, "{} alarms in {:.0} container-days", score.vain, score.containers);
}

#[test]
fn a_victim_that_is_twice_as_slow_is_found_and_its_antagonist_is_the_first_suspect() {
    let world = World { rise: Some(2.0), ..World::new(3, 10.0) };
    let score = all(SEEDS, world, &[Contender::Robust]).remove(0);
    let (found, all) = score.found(u64::MAX, |outcome| outcome.usage >= 0.3);
    println!("{found} of {all}: {:?}", proportion((found, all)));
    assert!(all >= 10 && found * 100 >= all * 90, "{found} of {all}");
    let (first, named) = score.named(Naming::First, |_| true);
    assert!(first * 100 >= named * 80, "{first} of {named}");
    let (wrong, _) = score.named(Naming::Wrong, |_| true);
    assert!(wrong * 100 <= named * 10, "{wrong} of {named}");
}
