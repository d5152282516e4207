//! The table of `perf-exporter lock contention`.

use super::args::Key;
use super::waits::{Place, Row};
use crate::cli::follow::Spread;

/// Column titles of perf, before those of the rows.
const TITLES: &str = " contended   total wait     max wait     avg wait";

/// Texts for the rows.
pub(super) trait Names {
    /// Returns the function of an address.
    fn function(&self, address: u64) -> String;
    /// Returns the address of the caller in a call chain.
    fn caller(&self, chain: &[u64]) -> Option<u64>;
    /// Returns the name of a lock; `None` for a lock in allocated memory.
    fn lock(&self, address: u64) -> Option<String>;
    /// Returns the name of a thread.
    fn thread(&self, tid: u32) -> String;
}

/// What the rows of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Callers,
    Stacks,
    Locks,
    Threads,
}

/// Sums of waits that have times.
pub(super) trait Times {
    fn times(&self) -> &Spread;
}

impl Times for Spread {
    fn times(&self) -> &Spread {
        self
    }
}

/// Returns the table of perf: at most the number of rows of `order`, sorted by its key, and a row for waits in `others`.
pub(super) fn table(
    view: View,
    rows: Vec<(Row, Spread)>,
    others: Option<&Spread>,
    order: (Key, usize),
    names: &impl Names,
) -> String {
    let titles = match view {
        View::Callers | View::Stacks => "         type   caller",
        View::Locks => "            address         type   lock",
        View::Threads => "          tid   comm",
    };
    table_of(titles, rows, others, order, |text, row, _| match row {
        Some(row) => write_row(text, row, names),
        None => text.push_str("   (others)\n"),
    })
}

/// Returns the rows of [`table`] with a separator between the columns, and times in nanoseconds, as `perf lock contention -x` prints them.
pub(super) fn columns(
    view: View,
    mut rows: Vec<(Row, Spread)>,
    others: Option<&Spread>,
    (key, lines): (Key, usize),
    names: &impl Names,
    separator: &str,
) -> String {
    sort(&mut rows, key);
    let titles = match view {
        View::Callers | View::Stacks => "type, caller",
        View::Locks => "address, type, lock",
        View::Threads => "tid, comm",
    };
    let titles = format!("contended, total wait, max wait, avg wait, {titles}").replace(", ", separator);
    let mut text = format!("# output: {titles}\n");
    let shown = rows.iter().take(lines).map(|(row, sum)| (Some(row), sum));
    for (row, sum) in shown.chain(others.map(|others| (None, others))) {
        let figures = [sum.of.count, sum.total, sum.most, mean(sum)].map(|figure| figure.to_string());
        let rest = row.map_or_else(|| vec!["(others)".into()], |row| cells(row, names));
        text.push_str(&figures.into_iter().chain(rest).collect::<Vec<_>>().join(separator));
        text.push('\n');
    }
    text
}

/// Returns the cells of a row after its times.
fn cells(Row { place, kind }: &Row, names: &impl Names) -> Vec<String> {
    let kind = kind.map_or("", |kind| kind.as_str()).to_owned();
    let function = |address: Option<u64>| address.map_or_else(|| "unknown".into(), |at| names.function(at));
    match place {
        Place::Caller(address) => vec![kind, function(*address)],
        Place::Stack(chain) => vec![kind, function(names.caller(chain))],
        Place::Lock(address) => {
            vec![format!("{address:#018x}"), kind, names.lock(*address).unwrap_or_else(|| "-".into())]
        }
        Place::Thread(tid) => vec![tid.to_string(), names.thread(*tid)],
    }
}

fn sort<R: Ord, S: Times>(rows: &mut [(R, S)], key: Key) {
    rows.sort_by(|(a, of_a), (b, of_b)| {
        value(of_b.times(), key).total_cmp(&value(of_a.times(), key)).then_with(|| a.cmp(b))
    });
}

fn mean(sum: &Spread) -> u64 {
    sum.total.checked_div(sum.of.count).unwrap_or_default()
}

/// Returns a table of waits: at most `lines` rows in the order of `key`, and a row for waits in `others`. `write` writes the rest of a row
/// after the columns of times, below `titles`. It receives `None` for the row of the others.
pub(super) fn table_of<R: Ord, S: Times>(
    titles: &str,
    mut rows: Vec<(R, S)>,
    others: Option<&S>,
    (key, lines): (Key, usize),
    mut write: impl FnMut(&mut String, Option<&R>, &S),
) -> String {
    sort(&mut rows, key);
    let mut text = format!("{TITLES}{titles}\n\n");
    let left_out = rows.len().saturating_sub(lines);
    let shown = rows.iter().take(lines).map(|(row, sum)| (Some(row), sum));
    for (row, sum) in shown.chain(others.map(|others| (None, others))) {
        write_sums(&mut text, sum.times());
        write(&mut text, row, sum);
    }
    if left_out > 0 {
        text.push_str(&format!("  ({left_out} more rows; use a higher -E)\n"));
    }
    text
}

fn write_sums(text: &mut String, sum: &Spread) {
    text.push_str(&format!(
        "{:>10} {:>12} {:>12} {:>12}",
        sum.of.count,
        time(sum.total),
        time(sum.most),
        time(mean(sum))
    ));
}

fn write_row(text: &mut String, row: &Row, names: &impl Names) {
    text.push_str(&match &cells(row, names)[..] {
        [first, second] => format!("   {first:>10}   {second}\n"),
        [address, kind, lock] => format!("   {address}   {kind:>10}   {lock}\n"),
        _ => String::from("\n"),
    });
    if let Place::Stack(chain) = &row.place {
        for &address in chain.iter() {
            text.push_str(&format!("\t\t\t{address:#x}  {}\n", names.function(address)));
        }
    }
}

fn value(sum: &Spread, key: Key) -> f64 {
    let whole = match key {
        Key::Contended => sum.of.count,
        Key::WaitTotal => sum.total,
        Key::WaitMax => sum.most,
        Key::WaitMin => sum.least,
        Key::AvgWait => return sum.of.mean,
    };
    whole as f64
}

/// Formats nanoseconds like perf, with the unit in which the number is at least 1.
fn time(nanoseconds: u64) -> String {
    const UNITS: [(f64, &str); 5] = [(3600e9, "h "), (60e9, "m "), (1e9, "s "), (1e6, "ms"), (1e3, "us")];
    let exact = nanoseconds as f64;
    match UNITS.iter().find(|(unit, _)| exact >= *unit) {
        Some((unit, word)) => format!("{:.2} {word}", exact / unit),
        None => format!("{nanoseconds} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::lock::kind::LockKind;

    struct Fixed;

    impl Names for Fixed {
        fn function(&self, address: u64) -> String {
            format!("function_{address}+0x10")
        }

        fn caller(&self, chain: &[u64]) -> Option<u64> {
            chain.get(1).copied()
        }

        fn lock(&self, address: u64) -> Option<String> {
            (address == 1).then(|| "tasklist_lock".into())
        }

        fn thread(&self, tid: u32) -> String {
            format!("worker/{tid}")
        }
    }

    fn rows(places: [Place; 2], kind: Option<LockKind>) -> Vec<(Row, Spread)> {
        let sum = |times: &[u64]| {
            let mut sum = Spread::default();
            times.iter().for_each(|&time| sum.add(time));
            sum
        };
        let [one, two] = places;
        vec![
            (Row { place: one, kind }, sum(&[1_500, 2_000_000])),
            (Row { place: two, kind }, sum(&[3_000_000_000, 7, 70_000_000_000])),
        ]
    }

    #[test]
    fn the_tables_are_as_recorded() {
        let callers = rows([Place::Caller(Some(1)), Place::Caller(None)], Some(LockKind::Mutex));
        let stacks = [Place::Stack([3, 4].into()), Place::Stack([5].into())];
        let stacks = rows(stacks, Some(LockKind::RwsemWrite));
        let locks = rows([Place::Lock(1), Place::Lock(0xffff_8881_3140_38f8)], Some(LockKind::RwlockRtRead));
        let threads = rows([Place::Thread(0), Place::Thread(4711)], None);
        let mut others = Spread::default();
        others.add(12);
        let texts = [
            table(View::Callers, callers.clone(), Some(&others), (Key::WaitTotal, 9), &Fixed),
            table(View::Callers, callers, None, (Key::WaitMin, 1), &Fixed),
            table(View::Stacks, stacks, None, (Key::WaitMax, 9), &Fixed),
            table(View::Locks, locks.clone(), None, (Key::Contended, 9), &Fixed),
            table(View::Threads, threads.clone(), None, (Key::AvgWait, 9), &Fixed),
            columns(View::Locks, locks, Some(&others), (Key::WaitTotal, 9), &Fixed, ","),
            columns(View::Threads, threads, None, (Key::WaitTotal, 1), &Fixed, ";"),
        ];
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn times_have_the_units_of_perf() {
        for (nanoseconds, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (747_860, "747.86 us"),
            (61_000_000_000, "1.02 m "),
        ] {
            assert_eq!(time(nanoseconds), text);
        }
    }
}
