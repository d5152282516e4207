//! Tables of `perf lock contention` and `perf kmem stat`, which have the same columns as those of `perf-exporter`.

use std::collections::BTreeMap;

/// Returns the number of waits and their total in milliseconds, by the words after the four columns of numbers.
pub(crate) fn waits(table: &str) -> BTreeMap<String, (f64, f64)> {
    let mut rows = BTreeMap::new();
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [contended, total, unit, _, _, _, _, rest @ ..] = &words[..] else { continue };
        let (Ok(contended), Ok(total)) = (contended.parse::<f64>(), total.parse::<f64>()) else { continue };
        let factor = match *unit {
            "ns" => 1e-6,
            "us" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            unit => panic!("the unit {unit} in {table}"),
        };
        // perf prints a row for each call chain.
        let row: &mut (f64, f64) = rows.entry(rest.join(" ")).or_default();
        *row = (row.0 + contended, row.1 + total * factor);
    }
    rows
}

/// Returns allocated bytes, requested bytes and the number of allocations by function.
pub(crate) fn allocations(table: &str) -> BTreeMap<String, [u64; 3]> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let first = |cell: Option<&&str>| cell?.split('/').next()?.trim().parse::<u64>().ok();
        // perf prints the distance from the start of the function without 0x.
        let name = cells.first()?.split('+').next()?.to_owned();
        Some((name, [first(cells.get(1))?, first(cells.get(2))?, first(cells.get(3))?]))
    };
    let mut rows: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for (name, sums) in table.lines().filter_map(row) {
        let all = rows.entry(name).or_default();
        all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
    }
    rows
}
