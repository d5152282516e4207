//! The same as `inlining.c`: `spins MS` burns time below `outermost`.

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

#[inline(always)]
fn innermost(n: u64) -> u64 {
    let mut sum = 0u64;
    for i in 0..n {
        sum = black_box(sum.wrapping_add(i * i)); // hot
    }
    sum
}

#[inline(always)]
fn middle(n: u64) -> u64 {
    innermost(n) // in the middle
}

#[inline(never)]
fn outermost(n: u64) -> u64 {
    black_box(middle(n)) // outermost
}

fn main() {
    println!("ready");
    let mut order = String::new();
    while std::io::stdin().read_line(&mut order).unwrap() > 0 {
        let ms: u64 = order.trim().strip_prefix("spins ").unwrap().parse().unwrap();
        // Not the time of the CPU: what is waited for is samples, however many.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(ms) {
            black_box(outermost(black_box(100_000)));
        }
        println!("done 0");
        std::io::stdout().flush().unwrap();
        order.clear();
    }
}
