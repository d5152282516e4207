//! The texts of `perf c2c report --stdio`.

use std::fmt::{self, Display};

use super::counts::{Counts, Outcome};
use super::layout::{Column, head, row};
use super::lines::{Cell, Line};
use super::{CacheLines, Coalesce, Ranking};
use crate::clean::{NAME, clean};
use crate::report::percent;

/// The line above and below a title.
const RULE: &str = "=================================================";
/// The line above and below a cache line.
const LINE_RULE: &str = "  ----------------------------------------------------------------------";
/// Maximum length of the name of a function, as in perf.
const SYMBOL: usize = 30;
/// Number of columns of the distribution with figures of a whole cache line.
const OF_LINE: usize = 6;

impl Display for CacheLines {
    /// Writes the statistics and the tables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events(f)?;
        writeln!(f)?;
        self.shared(f)?;
        writeln!(f)?;
        self.details(f)?;
        if self.options.statistics {
            return Ok(());
        }
        writeln!(f)?;
        self.table(f)?;
        writeln!(f)?;
        self.distribution(f)
    }
}

fn title(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    writeln!(f, "{RULE}\n{text}\n{RULE}")
}

fn figure(f: &mut fmt::Formatter<'_>, name: &str, number: u64) -> fmt::Result {
    writeln!(f, "  {name:<34}: {number:>10}")
}

impl CacheLines {
    fn events(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        title(f, "            Trace Event Information")?;
        let counts = &self.counts;
        let llc = counts.get(Outcome::LoadLlc) + counts.get(Outcome::LocalHitm);
        let misses = counts.llc_misses();
        let write = |f: &mut fmt::Formatter<'_>, figures: &[(&str, Outcome)]| {
            figures.iter().try_for_each(|&(name, outcome)| figure(f, name, counts.get(outcome)))
        };
        write(
            f,
            &[
                ("Total records", Outcome::Record),
                ("Locked Load/Store Operations", Outcome::Locked),
                ("Load Operations", Outcome::Load),
                ("Loads - uncacheable", Outcome::LoadUncached),
                ("Loads - IO", Outcome::LoadIo),
                ("Loads - Miss", Outcome::LoadMiss),
                ("Loads - no mapping", Outcome::LoadNoAddress),
                ("Load Fill Buffer Hit", Outcome::LoadFillBuffer),
                ("Load L1D hit", Outcome::LoadL1),
                ("Load L2D hit", Outcome::LoadL2),
            ],
        )?;
        figure(f, "Load LLC hit", llc)?;
        write(
            f,
            &[
                ("Load Local HITM", Outcome::LocalHitm),
                ("Load Remote HITM", Outcome::RemoteHitm),
                ("Load Remote HIT", Outcome::RemoteHit),
                ("Load Local DRAM", Outcome::LocalRam),
                ("Load Remote DRAM", Outcome::RemoteRam),
                ("Load MESI State Exclusive", Outcome::LoadExclusive),
                ("Load MESI State Shared", Outcome::LoadShared),
            ],
        )?;
        figure(f, "Load LLC Misses", misses)?;
        write(
            f,
            &[
                ("Load access blocked by data", Outcome::BlockedData),
                ("Load access blocked by address", Outcome::BlockedAddress),
                ("Load HIT Local Peer", Outcome::LocalPeer),
                ("Load HIT Remote Peer", Outcome::RemotePeer),
            ],
        )?;
        for (name, outcome) in [
            ("LLC Misses to Local DRAM", Outcome::LocalRam),
            ("LLC Misses to Remote DRAM", Outcome::RemoteRam),
            ("LLC Misses to Remote cache (HIT)", Outcome::RemoteHit),
            ("LLC Misses to Remote cache (HITM)", Outcome::RemoteHitm),
        ] {
            writeln!(f, "  {name:<34}: {:>10.1}%", percent(counts.get(outcome), misses))?;
        }
        write(
            f,
            &[
                ("Store Operations", Outcome::Store),
                ("Store - uncacheable", Outcome::StoreUncached),
                ("Store - no mapping", Outcome::StoreNoAddress),
                ("Store L1D Hit", Outcome::StoreL1Hit),
                ("Store L1D Miss", Outcome::StoreL1Miss),
                ("Store No available memory level", Outcome::StoreNoLevel),
                ("No Page Map Rejects", Outcome::NoMap),
                ("Unable to parse data source", Outcome::Unknown),
            ],
        )
    }

    fn shared(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        title(f, "    Global Shared Cache Line Event Information")?;
        let shared = |outcome| self.shared.get(outcome);
        let figures = [
            ("Total Shared Cache Lines", self.shared_lines),
            ("Load HITs on shared lines", shared(Outcome::Load)),
            ("Fill Buffer Hits on shared lines", shared(Outcome::LoadFillBuffer)),
            ("L1D hits on shared lines", shared(Outcome::LoadL1)),
            ("L2D hits on shared lines", shared(Outcome::LoadL2)),
            ("LLC hits on shared lines", shared(Outcome::LoadLlc) + shared(Outcome::LocalHitm)),
            ("Load hits on peer cache or nodes", self.shared.peer()),
            ("Locked Access on shared lines", shared(Outcome::Locked)),
            (
                "Blocked Access on shared lines",
                shared(Outcome::BlockedData) + shared(Outcome::BlockedAddress),
            ),
            ("Store HITs on shared lines", shared(Outcome::Store)),
            ("Store L1D hits on shared lines", shared(Outcome::StoreL1Hit)),
            ("Store No available memory level", shared(Outcome::StoreNoLevel)),
            ("Total Merged records", self.shared.hitm() + shared(Outcome::Store)),
        ];
        figures.into_iter().try_for_each(|(name, number)| figure(f, name, number))
    }

    fn details(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        title(f, "                 c2c details")?;
        for (place, event) in self.events.iter().enumerate() {
            let name = if place == 0 { "  Events" } else { "" };
            writeln!(f, "{name:<36}: {}", clean(event, NAME))?;
        }
        let ranking = match self.options.ranking {
            Ranking::Total => "Total HITMs",
            Ranking::Local => "Local HITMs",
            Ranking::Remote => "Remote HITMs",
        };
        writeln!(f, "  {:<34}: {ranking}", "Cachelines sort on")?;
        let grouping: Vec<&str> = self.options.coalesce.iter().map(|coalesce| coalesce.as_str()).collect();
        writeln!(f, "  {:<34}: offset,{}", "Cacheline data grouping", grouping.join(","))
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        title(f, "           Shared Data Cache Line Table")?;
        writeln!(f, "#")?;
        let ranking = match self.options.ranking {
            Ranking::Total => "Tot",
            Ranking::Local => "Lcl",
            Ranking::Remote => "Rmt",
        };
        let columns = [
            Column::new("", "Index", 5),
            Column::new("----------- Cacheline ----------", "Address", 18).over(2),
            Column::new("", "Node", 4),
            Column::new("", "PA cnt", 6),
            Column::new(ranking, "Hitm", 7),
            Column::new("------- Load Hitm -------", "Total", 7).over(2),
            Column::new("", "LclHitm", 7),
            Column::new("", "RmtHitm", 7),
            Column::new("Total", "records", 7),
            Column::new("Total", "Loads", 7),
            Column::new("Total", "Stores", 7),
            Column::new("--------- Stores --------", "L1Hit", 7).over(2),
            Column::new("", "L1Miss", 7),
            Column::new("", "N/A", 7),
            Column::new("----- Core Load Hit -----", "FB", 7).over(2),
            Column::new("", "L1", 7),
            Column::new("", "L2", 7),
            Column::new("- LLC Load Hit --", "LclHit", 8).over(1),
            Column::new("", "LclHitm", 7),
            Column::new("- RMT Load Hit --", "RmtHit", 8).over(1),
            Column::new("", "RmtHitm", 7),
            Column::new("--- Load Dram ----", "Lcl", 8).over(1),
            Column::new("", "Rmt", 8),
        ];
        head(f, &columns)?;
        self.lines.iter().enumerate().try_for_each(|(place, line)| row(f, &columns, &self.line(place, line)))
    }

    fn line(&self, place: usize, line: &Line) -> Vec<String> {
        let counts = &line.counts;
        let ranking = |counts: &Counts| self.options.ranking.of(counts);
        let mut cells = vec![
            place.to_string(),
            format!("{:#x}", line.address),
            "N/A".to_owned(),
            line.pages.changes.to_string(),
            share(ranking(counts), ranking(&self.counts)),
            counts.hitm().to_string(),
            counts.get(Outcome::LocalHitm).to_string(),
            counts.get(Outcome::RemoteHitm).to_string(),
            counts.records().to_string(),
            counts.loads().to_string(),
            counts.get(Outcome::Store).to_string(),
        ];
        let outcomes = [
            Outcome::StoreL1Hit,
            Outcome::StoreL1Miss,
            Outcome::StoreNoLevel,
            Outcome::LoadFillBuffer,
            Outcome::LoadL1,
            Outcome::LoadL2,
            Outcome::LoadLlc,
            Outcome::LocalHitm,
            Outcome::RemoteHit,
            Outcome::RemoteHitm,
            Outcome::LocalRam,
            Outcome::RemoteRam,
        ];
        cells.extend(outcomes.map(|outcome| counts.get(outcome).to_string()));
        cells
    }

    fn distribution(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        title(f, "      Shared Cache Line Distribution Pareto")?;
        writeln!(f, "#")?;
        let columns = self.distribution_columns();
        head(f, &columns)?;
        for (place, line) in self.lines.iter().enumerate() {
            if place > 0 {
                writeln!(f)?;
            }
            writeln!(f, "{LINE_RULE}")?;
            let mut cells = vec![place.to_string()];
            cells.extend(of_line().map(|outcome| line.counts.get(outcome).to_string()));
            cells.push(format!("{:#x}", line.address));
            row(f, &columns, &cells)?;
            writeln!(f, "{LINE_RULE}")?;
            for cell in line.cells.iter().filter(|cell| self.is_shown(cell)) {
                row(f, &columns, &self.cell(cell, &line.counts))?;
            }
        }
        Ok(())
    }

    /// Reports whether accesses contribute to sharing: only those are shown.
    fn is_shown(&self, cell: &Cell) -> bool {
        self.options.ranking.of(&cell.counts) > 0 || cell.counts.get(Outcome::Store) > 0
    }

    fn has(&self, coalesce: Coalesce) -> bool {
        self.options.coalesce.contains(&coalesce)
    }

    fn distribution_columns(&self) -> Vec<Column> {
        let shown = || self.lines.iter().flat_map(|line| &line.cells).filter(|cell| self.is_shown(cell));
        let mut columns = vec![
            Column::new("", "Num", 5),
            Column::new("----- HITM -----", "RmtHitm", 7).over(1),
            Column::new("", "LclHitm", 7),
            Column::new("------- Store Refs ------", "L1 Hit", 7).over(2),
            Column::new("", "L1 Miss", 7),
            Column::new("", "N/A", 7),
            Column::new("--------- Data address ---------", "Offset", 18).over(2),
            Column::new("", "Node", 4),
            Column::new("", "PA cnt", 6),
        ];
        if self.has(Coalesce::Pid) {
            columns.push(Column::new("", "Pid", 7));
        }
        if self.has(Coalesce::Tid) {
            let threads: Vec<String> = shown().map(thread).collect();
            columns.push(Column::of_texts("", "Tid", threads.iter().map(|text| &**text)));
        }
        if self.has(Coalesce::Code) {
            columns.push(Column::new("", "Code address", 18));
        }
        columns.extend([
            Column::new("---------- cycles ----------", "rmt hitm", 8).over(2),
            Column::new("", "lcl hitm", 8),
            Column::new("", "load", 8),
            Column::new("Total", "records", 7),
            Column::new("cpu", "cnt", 8),
        ]);
        if self.has(Coalesce::Code) {
            let symbols: Vec<String> = shown().map(|cell| self.symbol(cell)).collect();
            columns.push(Column::of_texts("", "Symbol", symbols.iter().map(|text| &**text)));
        }
        if self.has(Coalesce::Code) || self.has(Coalesce::Object) {
            columns.push(Column::of_texts("Shared", "Object", shown().map(|cell| &*cell.object)));
        }
        if self.has(Coalesce::Code) && self.options.sources {
            columns.push(Column::of_texts("", "Source:Line", shown().map(|cell| &*cell.source)));
        }
        columns.push(Column::new("", "Node", 4));
        columns
    }

    fn cell(&self, cell: &Cell, line: &Counts) -> Vec<String> {
        let counts = &cell.counts;
        let mut cells = vec![String::new()];
        cells.extend(of_line().map(|outcome| share(counts.get(outcome), line.get(outcome))));
        cells.extend([format!("{:#x}", cell.offset), "N/A".to_owned(), cell.pages.changes.to_string()]);
        if self.has(Coalesce::Pid) {
            cells.push(cell.pid.to_string());
        }
        if self.has(Coalesce::Tid) {
            cells.push(thread(cell));
        }
        if self.has(Coalesce::Code) {
            cells.push(format!("{:#x}", cell.code));
        }
        let means = [cell.remote_hitm, cell.local_hitm, cell.load];
        cells.extend(means.map(|mean| format!("{:.0}", mean.get())));
        cells.extend([counts.records().to_string(), cell.cpus.len().to_string()]);
        if self.has(Coalesce::Code) {
            cells.push(self.symbol(cell));
        }
        if self.has(Coalesce::Code) || self.has(Coalesce::Object) {
            cells.push(cell.object.to_string());
        }
        if self.has(Coalesce::Code) && self.options.sources {
            cells.push(cell.source.to_string());
        }
        let nodes: Vec<String> = cell.nodes.iter().map(|node| format!("{node:>2}")).collect();
        cells.push(nodes.join(" "));
        cells
    }

    fn symbol(&self, cell: &Cell) -> String {
        let most = if self.options.full_symbols { usize::MAX } else { SYMBOL };
        cell.symbol.chars().take(most).collect()
    }
}

/// Returns the outcomes of the first columns of the distribution.
fn of_line() -> [Outcome; OF_LINE - 1] {
    [
        Outcome::RemoteHitm,
        Outcome::LocalHitm,
        Outcome::StoreL1Hit,
        Outcome::StoreL1Miss,
        Outcome::StoreNoLevel,
    ]
}

fn share(value: u64, total: u64) -> String {
    format!("{:.2}%", percent(value, total))
}

fn thread(cell: &Cell) -> String {
    format!("{:>7}:{}", cell.tid, clean(&cell.comm, NAME))
}
