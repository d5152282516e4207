//! docs/memory.md: the table of shares, made of [`Shares::of`].

use std::fmt::Write as _;
use std::path::Path;

use super::{Demand, Part, Shares};
use crate::host;

const HEAD: &str = "\
# Memory

`limits.memory` is one budget for everything in the exporter that grows. By default it is 64 MiB and 2 MiB for each CPU, and 48 MiB
less without profiles: 68 MiB on 2 CPUs, 20 MiB without profiles. The code of the program is not part of it: about 12 MiB of the
resident memory are pages of the executable and of the C library, which the kernel can drop and read again.

Each part has a share of the budget, and the shares add up to it. A part whose share is full frees what was used least recently, or
what is oldest:

- **rings**: a ring grows when records are lost, up to its part of the share; the sizes of rings are powers of two.
  `limits.ring_memory` is an upper bound for this share. What rings do not use goes to the other parts.
- **unwind**, **symbols**: tables of files that were not used for the longest time are dropped, and read again when they are
  needed. All unwind tables are dropped every five minutes, and names that were not used for five minutes. A profile with
  `lines: true` reads the debug information of one file at a time, up to `limits.debug_info`; this memory is freed after the
  request and is not part of the budget.
- **stacks**: of all windows of profiles the oldest slot (a twelfth of its window) is dropped, with the stacks that only it had. The samples are
  counted under losses on `/status`; metrics keep them. A stack for which there is still no room counts as
  `perf_stacks_cut_total{reason=\"full\"}`.
- **waiting**: rings are not emptied while this share is full. Records that find no room in their ring are counted as lost.
- **queues**: the oldest request that waits to be sent is dropped, and counted. While responses under way fill the share, requests
  for profiles get 503 with `Retry-After`.
- **series**: the metrics with the most series are reduced to a common number of series. The busiest keep their labels, the others
  are aggregated into `other`, as by `limits.series`. Counters of CPUs and of the whole machine always keep theirs.
- **history** and **evidence** are reserved.
- **other** is all anonymous memory that no other part accounts for. Its share is a reserve: nothing is freed when it is full.

A part that the configuration does not use has no share: without `profiles` there are no unwind tables, symbols and stacks. With a
section under `export` the share of the queues is about three times as large as in the tables.

`/status` and `/api/v1/status` show used and limit of each part. `perf_exporter_memory_bytes` and
`perf_exporter_memory_limit_bytes` are the same as metrics:

```
perf_exporter_memory_bytes / perf_exporter_memory_limit_bytes > 0.9
```

A value of `limits.memory` that is too small for the number of CPUs is refused when the configuration is loaded, with the least value
that would do. With glibc, freed memory goes back to the kernel every ten seconds if there are more than 4 MiB of it. Memory that
lies between small allocations does not: after the most adverse load that is measured (`cargo bench --bench trouble`) the
exporter keeps some 30 MiB more than after its start.

`BLESS=1 cargo test --locked --lib budget::page` writes this page anew; a test holds it against the program.

";

/// The tables are for all kinds of rings that a configuration can have: those of the built-in one.
fn page() -> String {
    let mut page = HEAD.to_owned();
    for (title, profiles) in [("With profiles", true), ("Without profiles", false)] {
        writeln!(page, "## {title}\n").unwrap();
        let demands = [2, 8, 64, 256].map(|cpus| Demand {
            cpus,
            profiles,
            pushes: false,
            rings: 2 + usize::from(profiles),
            ring_memory: None,
        });
        let shares = demands.map(|demand| Shares::of(demand.default_limit(), &demand));
        writeln!(page, "Shares of the default in MiB, by the number of CPUs:\n").unwrap();
        writeln!(page, "| part | 2 | 8 | 64 | 256 | contents |\n|---|--:|--:|--:|--:|---|").unwrap();
        for part in Part::ALL.into_iter().filter(|&part| shares[0].get(part) > 0) {
            write!(page, "| {} |", part.as_str()).unwrap();
            shares.iter().for_each(|shares| write!(page, " {} |", mebibytes(shares.get(part))).unwrap());
            writeln!(page, " {} |", part.description()).unwrap();
        }
        write!(page, "| `limits.memory` |").unwrap();
        shares.iter().for_each(|shares| write!(page, " {} |", mebibytes(shares.total())).unwrap());
        writeln!(page, " the sum |").unwrap();
        write!(page, "| the least `limits.memory` |").unwrap();
        demands.iter().for_each(|demand| write!(page, " {} |", mebibytes(demand.least())).unwrap());
        writeln!(page, " below, a configuration is refused |\n").unwrap();
    }
    page.trim_end().to_owned() + "\n"
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
    // The last newline is not read.
    let written = host::read_text(&path).unwrap_or_default();
    assert!(
        written == page.trim_end(),
        "docs/memory.md is not current: BLESS=1 cargo test --locked --lib budget::page"
    );
}
