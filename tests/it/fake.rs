//! A whole collection with the fake kernel: from a configuration and a host in a directory to the scrape.

use std::path::Path;
use std::sync::Arc;

use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config::Config;
use perf_exporter::counter::{Bounds, Collector};
use perf_exporter::event::Catalog;
use perf_exporter::export::prometheus::{Encoder, Format};
use perf_exporter::host::{Facts, Roots};
use perf_exporter::metrics::Snapshot;
use perf_exporter::plan::{Entries, StreamSupport, plan};
use perf_exporter::sys::Budget;
use perf_exporter::sys::fake::{Count, FakeKernel};
use perf_exporter::targets::Watch;

/// Scrapes all counters of `config` on the host at `root`, with each counter at seven.
pub(crate) fn scrape(root: &Path, config: &Config, format: Format) -> String {
    let roots = Roots::under(root);
    let (kernel, clock) = (FakeKernel::new(), Clock::manual(Timestamp(1_000_000)));
    let facts = Facts::read(&roots);
    let budget = Budget { limit: 10_000, used: 0 };
    let plan = plan(
        &Entries::counters(&config.counters),
        &Catalog::load(&roots, &facts),
        &StreamSupport::foreseen(&facts),
    );
    let mut watch = Watch::new(roots.clone());
    watch.need(plan.needs());
    watch.refresh();
    let mut collector = Collector::new(kernel.clone(), clock.clone(), &roots, facts, true, budget).unwrap();
    collector.apply(&plan, Bounds { series: 1000, ring_memory: 1 << 20 }, &watch);
    kernel.update(|event| event.count = Count { value: 7, enabled: 1_000_000, running: 1_000_000 });
    let snapshot = Snapshot::new(clock.now(), collector.collect());
    assert!(snapshot.conflicts().is_empty(), "{:?}", snapshot.conflicts());
    let mut encoder = Encoder::new(Arc::new(snapshot), format);
    let mut text = Vec::new();
    while encoder.next_chunk(&mut text) {}
    String::from_utf8(text).unwrap()
}
