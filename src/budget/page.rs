//! Generates docs/memory.md with the table of shares from [`Shares::of`].

use std::fmt::Write as _;
use std::path::Path;

use super::{Demand, Part, Shares};
use crate::host;

const HEAD: &str = "\
# Memory

`limits.memory` is one budget for everything in the exporter that grows. The default is 64 MiB plus 2 MiB per CPU, minus 48 MiB
without profiles: 68 MiB on 2 CPUs, or 20 MiB without profiles. The code of the program is not part of the budget: about 12 MiB of
the resident memory are pages of the executable and of the C library, which the kernel can drop and read again.

Each part has a share of the budget. The sum of the shares is the budget. When the share of a part is full, the part frees the data
that is oldest or was least recently used:

- **rings**: a ring grows when records are lost, up to its part of the share. Ring sizes are powers of two. `limits.ring_memory` is
  an upper bound of this share. Memory that rings do not use is available to the other parts.
- **unwind**, **symbols**: the least recently used tables are dropped, and read again when they are needed. All unwind tables are
  dropped every five minutes. Symbol names that were not used for five minutes are dropped. A profile with `lines: true` reads the
  debug information of one file at a time, up to `limits.debug_info`, and so does a request for `/annotate`. This memory is freed
  after the request and is not part of the budget.
- **stacks**: the oldest samples of the entry of `profiles` with the largest log are dropped, with the stacks that occur only in them. The
  samples are counted on `/status`; metrics still include them. A stack that still exceeds the share is counted in
  `perf_truncated_stacks_total{reason=\"table_full\"}`.
- **waiting**: rings are not read while this share is full. Records that do not fit into their ring are counted as lost.
- **queues**: the oldest queued request is dropped and counted. Uploaded profiles use at most half of the share; the least
  recently used ones are dropped. While responses in flight fill the share, requests for profiles are answered with 503 and
  `Retry-After`.
- **series**: the metrics with the most series are reduced to a common number of series. The busiest series keep their labels, the
  others are aggregated into `other`, as with `limits.series`. Counters of CPUs and of the whole machine always keep their labels.
- **history**: the lists (system calls, preemptions, …) of the cgroups and programs with the least CPU time in the last five minutes are
  dropped, then these cgroups and programs are forgotten. A series of a cgroup or program that changes all the time takes 1.4 KiB for an
  hour, and a name of a list 1 KiB.
- **evidence**: one file of the archive of an incident at a time, which may be larger than the share. Nothing is freed.
- **other** is all anonymous memory that belongs to no other part. Its share is a reserve: nothing is freed when it is full.

A part that the configuration does not use has no share: without `profiles` there are no unwind tables, symbols and stacks. With a
section under `export`, the share of the queues is about three times as large as in the tables.

`/status` and `/api/v1/status` show the usage and the limit of each part. `perf_exporter_memory_bytes` and
`perf_exporter_memory_limit_bytes` are the corresponding metrics:

```
perf_exporter_memory_bytes / perf_exporter_memory_limit_bytes > 0.9
```

The exporter rejects a configuration with a `limits.memory` that is too small for the number of CPUs, and reports the required
minimum. With glibc, freed memory is returned to the kernel every ten seconds if it is more than 4 MiB, and at least each minute. The
release files use jemalloc, which returns free pages after a second. Memory between small live allocations cannot be returned: after
the most adverse measured load (`cargo bench --bench trouble`), the exporter keeps about 30 MiB more than after its start.
`perf_exporter_memory_bytes{part=\"other\"}` contains such memory.

Run `BLESS=1 cargo test --locked --lib budget::page` to regenerate this page. A test checks that it is up to date.

";

/// Generates the page. The tables include all kinds of rings that a configuration can use, as in the built-in configuration.
fn page() -> String {
    let mut page = HEAD.to_owned();
    for (title, profiles) in [("With profiles", true), ("Without profiles", false)] {
        writeln!(page, "## {title}\n").unwrap();
        let demands = [2, 8, 64, 256].map(|cpus| Demand {
            cpus,
            profiles,
            pushes: false,
            history: true,
            incidents: true,
            rings: 2 + usize::from(profiles),
            ring_memory: None,
        });
        let shares = demands.map(|demand| Shares::of(demand.default_limit(), &demand));
        writeln!(page, "Shares of the default limit in MiB, by number of CPUs:\n").unwrap();
        writeln!(page, "| part | 2 | 8 | 64 | 256 | contents |\n|---|--:|--:|--:|--:|---|").unwrap();
        for part in Part::ALL.into_iter().filter(|&part| shares[0].get(part) > 0) {
            write!(page, "| {} |", part.as_str()).unwrap();
            shares.iter().for_each(|shares| write!(page, " {} |", mebibytes(shares.get(part))).unwrap());
            writeln!(page, " {} |", part.description()).unwrap();
        }
        write!(page, "| `limits.memory` |").unwrap();
        shares.iter().for_each(|shares| write!(page, " {} |", mebibytes(shares.total())).unwrap());
        writeln!(page, " sum |").unwrap();
        write!(page, "| minimum of `limits.memory` |").unwrap();
        demands.iter().for_each(|demand| write!(page, " {} |", mebibytes(demand.least())).unwrap());
        writeln!(page, " configurations with less are rejected |\n").unwrap();
    }
    reach(&mut page);
    page.trim_end().to_owned() + "\n"
}

/// Bytes of a sample without its CPU, and of stacks, tasks and caches. With 6 bits for one of 64 CPUs, these are the bytes of a sample that the
/// test `an_hour_of_64_cpus` prints.
const SAMPLE: f64 = 3.92;
const STACKS: u64 = 8 << 20;
/// Samples a second and CPU, by default.
const FREQUENCY: u64 = 19;
/// The longest time that samples are kept, in seconds.
const HISTORY: u64 = 3600;

/// Returns the bytes of a sample on a machine with so many CPUs.
fn sample(cpus: usize) -> f64 {
    SAMPLE + f64::from(usize::BITS - (cpus - 1).leading_zeros()) / 8.0
}

/// Writes how far back profiles reach.
fn reach(page: &mut String) {
    writeln!(page, "## How far back profiles reach\n").unwrap();
    writeln!(
        page,
        "Each sample is kept for an hour, if the share of **stacks** permits. A sample takes about {:.1} bytes: measured with an\n\
         hour of samples of 64 CPUs with 20 000 different stacks of 26 frames on average, and 2400 threads (`cargo test --release\n\
         --locked --lib -- --ignored --nocapture an_hour_of_64_cpus`). The stacks, threads and caches take {} MiB. So if all CPUs are busy\n\
         all the time, profiles at {FREQUENCY} samples a second and CPU reach back:\n",
        sample(64),
        STACKS >> 20
    )
    .unwrap();
    writeln!(
        page,
        "| CPUs | samples a second | share of stacks | with the default limit | `limits.memory` for an hour |"
    )
    .unwrap();
    writeln!(page, "|--:|--:|--:|--:|--:|").unwrap();
    for cpus in [2, 8, 64, 256] {
        let demand = Demand {
            cpus,
            profiles: true,
            pushes: false,
            history: true,
            incidents: true,
            rings: 3,
            ring_memory: None,
        };
        let rate = cpus as u64 * FREQUENCY;
        let default = demand.default_limit();
        let share = |limit: u64| Shares::of(limit, &demand).get(Part::Stacks);
        // After samples were dropped, the share is full to seven eighths.
        let seconds = |limit: u64| {
            let bytes = (share(limit) / 8 * 7).saturating_sub(STACKS);
            (bytes as f64 / (sample(cpus) * rate as f64)) as u64
        };
        let enough = (default >> 20..).find(|&mebibytes| seconds(mebibytes << 20) >= HISTORY).unwrap();
        writeln!(
            page,
            "| {cpus} | {rate} | {} MiB | {} min | {} |",
            mebibytes(share(default)),
            seconds(default).min(HISTORY) / 60,
            if enough << 20 == default { "the default".to_owned() } else { format!("{enough}MiB") },
        )
        .unwrap();
    }
    writeln!(
        page,
        "\nThe CPU of a sample takes as many bits as the number of the last CPU has. An idle CPU has no samples, so a machine that is half\n\
         busy reaches back twice as far. A wait (`off_cpu`) takes about 7 bytes more than a sample of a clock, because its duration is\n\
         kept exactly. Each process with a sample takes about 300 bytes until its last sample has left: many short processes shorten the\n\
         time. If the share is full, the entry with the largest log loses its oldest samples first. `/status` shows from when on each\n\
         entry has all its samples."
    )
    .unwrap();
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

#[test]
fn the_page_about_memory_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/memory.md");
    let page = page();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    // `read_text` strips the last newline.
    let written = host::read_text(&path).unwrap_or_default();
    assert!(
        written == page.trim_end(),
        "docs/memory.md is outdated; run BLESS=1 cargo test --locked --lib budget::page"
    );
}
