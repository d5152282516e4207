//! The source of the data of a memory access, with the names that perf prints.
//!
//! Source: `union perf_mem_data_src` in `include/uapi/linux/perf_event.h`; names: `tools/perf/util/mem-events.c` of Linux 6.2 and later.

/// Names of bits, from the lowest one.
type Names = &'static [&'static str];

const OPERATIONS: Names = &["N/A", "LOAD", "STORE", "PFETCH", "EXEC"];
/// Bits 0 to 2 are "not available", "hit" and "miss".
const LEVELS: Names = &[
    "L1",
    "LFB/MAB",
    "L2",
    "L3",
    "Local RAM",
    "Remote RAM (1 hop)",
    "Remote RAM (2 hops)",
    "Remote Cache (1 hop)",
    "Remote Cache (2 hops)",
    "I/O",
    "Uncached",
];
const SNOOPS: Names = &["N/A", "None", "Hit", "Miss", "HitM", "Fwd", "Peer"];
/// Bits 0 to 2 are "not available", "hit" and "miss".
const TLBS: Names = &["L1", "L2", "Walker", "Fault"];
const HOPS: [&str; 4] = ["core, same node", "node, same socket", "socket, same board", "board"];

/// Bit of levels and TLBs: not available, hit, miss.
const NA: u64 = 1;
const HIT: u64 = 2;
const MISS: u64 = 4;

/// The source of the data of a memory access (`PERF_SAMPLE_DATA_SRC`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DataSource(pub u64);

/// A place in the memory hierarchy that the field for levels (`mem_lvl`) can contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The first level cache.
    L1 = 0x8,
    /// A line fill buffer.
    FillBuffer = 0x10,
    /// The second level cache.
    L2 = 0x20,
    /// The third level cache.
    L3 = 0x40,
    /// Memory of the node.
    LocalRam = 0x80,
    /// Memory of another node.
    RemoteRam = 0x300,
    /// A cache of another node.
    RemoteCache = 0xc00,
    /// I/O memory.
    Io = 0x1000,
    /// Memory that is not cached.
    Uncached = 0x2000,
}

/// The state of the line in another cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Snoop {
    /// Another cache had the line.
    Hit = 0x4,
    /// Another cache had the line, and had modified it.
    HitModified = 0x10,
    /// The line came from a peer.
    Peer = 0x40,
}

/// Why a load was blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// The data of an earlier store could not be forwarded.
    Data = 2,
    /// The address conflicted with that of an earlier store.
    Address = 4,
}

impl Default for DataSource {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl DataSource {
    /// The source of a sample without this field: nothing is available (`PERF_MEM_NA`).
    pub const UNKNOWN: Self = Self(1 | 1 << 5 | 1 << 19 | 1 << 24 | 1 << 26);

    fn bits(self, first: u32, width: u32) -> u64 {
        (self.0 >> first) & ((1 << width) - 1)
    }

    fn operations(self) -> u64 {
        self.bits(0, 5)
    }

    fn levels(self) -> u64 {
        self.bits(5, 14)
    }

    /// Returns `mem_snoop`, and above it `mem_snoopx`.
    fn snoops(self) -> u64 {
        self.bits(19, 5) | self.bits(38, 2) << 5
    }

    fn hops(self) -> u64 {
        self.bits(43, 3)
    }

    /// Reports whether the access is a load.
    pub fn is_load(self) -> bool {
        self.operations() & 2 != 0
    }

    /// Reports whether the access is a store, and no load.
    pub fn is_store(self) -> bool {
        self.operations() & 6 == 4
    }

    /// Reports whether the level was hit.
    pub fn is_hit(self) -> bool {
        self.levels() & HIT != 0
    }

    /// Reports whether the level was missed.
    pub fn is_miss(self) -> bool {
        self.levels() & MISS != 0
    }

    /// Reports whether the hardware does not report the level.
    pub fn is_level_unavailable(self) -> bool {
        self.levels() & NA != 0
    }

    /// Reports whether the field for levels contains a level.
    pub fn is_at(self, level: Level) -> bool {
        self.levels() & level as u64 != 0
    }

    /// Reports whether another cache had the line in a state.
    pub fn has(self, snoop: Snoop) -> bool {
        self.snoops() & snoop as u64 != 0
    }

    /// Reports whether the access was remote, of an unknown level. With a number of hops, the flag can mean another core of the same node.
    pub fn is_remote(self) -> bool {
        self.bits(37, 1) != 0 && self.hops() == 0
    }

    /// Reports whether the instruction was locked.
    pub fn is_locked(self) -> bool {
        self.bits(24, 2) & 2 != 0
    }

    /// Reports whether the load was blocked for a reason.
    pub fn is_blocked(self, by: Blocked) -> bool {
        self.bits(40, 3) & by as u64 != 0
    }

    /// Returns the name of the operation: `LOAD`.
    pub fn operation_text(self) -> &'static str {
        let bits = self.operations();
        let first = OPERATIONS.iter().enumerate().find(|(bit, _)| bits & (1 << bit) != 0);
        first.map_or("No", |(_, name)| name)
    }

    /// Returns the place in the memory hierarchy: `L1 hit`, `Remote Cache (1 hop) hit`, `N/A`.
    pub fn level_text(self) -> String {
        let outcome = match self.levels() {
            levels if levels & HIT != 0 => " hit",
            levels if levels & MISS != 0 => " miss",
            _ => "",
        };
        // The number is more precise than the bits, which older kernels have alone.
        if let number @ 1..15 = self.bits(33, 4) {
            let remote = if self.bits(37, 1) != 0 { "Remote " } else { "" };
            let hops = usize::try_from(self.hops()).unwrap_or(0).checked_sub(1);
            let hops = hops.and_then(|hops| HOPS.get(hops)).map_or(String::new(), |hops| format!("{hops} "));
            return format!("{remote}{hops}{}{outcome}", numbered(number));
        }
        match joined(LEVELS, self.levels() >> 3) {
            levels if levels.is_empty() => "N/A".to_owned(),
            levels => levels + outcome,
        }
    }

    /// Returns the states of the line in other caches: `HitM`, `N/A`.
    pub fn snoop_text(self) -> String {
        or_unavailable(joined(SNOOPS, self.snoops()))
    }

    /// Returns the outcome of the address translation: `L1 or L2 hit`, `Walker miss`, `N/A`.
    pub fn tlb_text(self) -> String {
        let bits = self.bits(26, 7);
        let mut text = or_unavailable(joined(TLBS, bits >> 3));
        text += if bits & HIT != 0 { " hit" } else { "" };
        text + if bits & MISS != 0 { " miss" } else { "" }
    }

    /// Returns whether the instruction was locked: `Yes`, `No`, `N/A`.
    pub fn locked_text(self) -> &'static str {
        match self.bits(24, 2) {
            bits if bits & NA != 0 => "N/A",
            bits if bits & 2 != 0 => "Yes",
            _ => "No",
        }
    }

    /// Returns why the load was blocked: `Data`, `Addr`, `N/A`.
    pub fn blocked_text(self) -> &'static str {
        match (self.is_blocked(Blocked::Data), self.is_blocked(Blocked::Address)) {
            _ if self.bits(40, 3) & NA != 0 => "N/A",
            (true, true) => "Data Addr",
            (true, false) => "Data",
            (false, true) => "Addr",
            (false, false) => "N/A",
        }
    }
}

/// Returns the name of a level by its number (`mem_lvl_num`).
fn numbered(number: u64) -> String {
    match number {
        0x5 => "L2 MHB".into(),
        0x6 => "Memory-side Cache".into(),
        0x8 => "Uncached".into(),
        0x9 => "CXL".into(),
        0xa => "I/O".into(),
        0xb => "Any cache".into(),
        0xc => "LFB/MAB".into(),
        0xd => "RAM".into(),
        0xe => "PMEM".into(),
        level => format!("L{level}"),
    }
}

/// Returns the names of the bits that are set.
fn joined(names: Names, bits: u64) -> String {
    let set = names.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    set.map(|(_, &name)| name).collect::<Vec<_>>().join(" or ")
}

fn or_unavailable(text: String) -> String {
    if text.is_empty() { "N/A".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(bits: u64) -> DataSource {
        DataSource(bits << 5)
    }

    fn number(number: u64, remote: u64, hops: u64) -> DataSource {
        DataSource(HIT << 5 | number << 33 | remote << 37 | hops << 43)
    }

    /// The texts are those of `perf mem report` of perf 6.1 for the same bits, which `tests/live/memory.rs` compares.
    #[test]
    fn levels_have_the_names_of_perf() {
        for (source, text) in [
            (levels(0x8 | HIT), "L1 hit"),
            (levels(0x8 | MISS), "L1 miss"),
            (levels(0x10 | HIT), "LFB/MAB hit"),
            (levels(0x80 | HIT), "Local RAM hit"),
            (levels(0x400 | HIT), "Remote Cache (1 hop) hit"),
            (levels(0x800 | HIT), "Remote Cache (2 hops) hit"),
            (levels(0x3000 | HIT), "I/O or Uncached hit"),
            (levels(0x20), "L2"),
            (levels(NA), "N/A"),
            (levels(0), "N/A"),
            (levels(HIT), "N/A"),
            (number(4, 1, 0), "Remote L4 hit"),
            (number(0xd, 0, 0), "RAM hit"),
            (number(0xb, 1, 1), "Remote core, same node Any cache hit"),
            (number(0xe, 1, 7), "Remote PMEM hit"),
            (number(0xf, 1, 0), "N/A"),
            (DataSource::UNKNOWN, "N/A"),
        ] {
            assert_eq!(source.level_text(), text, "{source:x?}");
        }
        let both = DataSource(levels(0x400 | HIT).0 | number(3, 1, 0).0);
        assert_eq!(both.level_text(), "Remote L3 hit", "the number has priority");
    }

    #[test]
    fn the_other_fields_have_the_names_of_perf() {
        let snoop = |bits: u64, more: u64| DataSource(bits << 19 | more << 38).snoop_text();
        assert_eq!(snoop(0x10, 0), "HitM");
        assert_eq!(
            (snoop(0x4, 0), snoop(0x8, 0), snoop(0x2, 0)),
            ("Hit".into(), "Miss".into(), "None".into())
        );
        assert_eq!(
            (snoop(0x10, 2), snoop(0, 1), snoop(0, 0)),
            ("HitM or Peer".into(), "Fwd".into(), "N/A".into())
        );
        let tlb = |bits: u64| DataSource(bits << 26).tlb_text();
        assert_eq!((tlb(0x1a), tlb(0x24)), ("L1 or L2 hit".into(), "Walker miss".into()));
        assert_eq!(
            (tlb(0x64), tlb(1), tlb(2)),
            ("Walker or Fault miss".into(), "N/A".into(), "N/A hit".into())
        );
        let locked = |bits: u64| DataSource(bits << 24).locked_text();
        assert_eq!((locked(0), locked(1), locked(2)), ("No", "N/A", "Yes"));
        let blocked = |bits: u64| DataSource(bits << 40).blocked_text();
        assert_eq!((blocked(0), blocked(1), blocked(2), blocked(4)), ("N/A", "N/A", "Data", "Addr"));
        let operation = |bits: u64| DataSource(bits).operation_text();
        assert_eq!((operation(2), operation(4), operation(0)), ("LOAD", "STORE", "No"));
    }

    #[test]
    fn a_load_that_also_stores_is_a_load() {
        let operations = |bits: u64| (DataSource(bits).is_load(), DataSource(bits).is_store());
        assert_eq!((operations(2), operations(4)), ((true, false), (false, true)));
        assert_eq!((operations(6), operations(1)), ((true, false), (false, false)));
    }

    #[test]
    fn any_bits_have_texts() {
        for bit in 0..64 {
            for source in [DataSource(1 << bit), DataSource(u64::MAX << bit)] {
                let texts = [source.level_text(), source.snoop_text(), source.tlb_text()];
                assert!(texts.iter().all(|text| !text.is_empty()), "{bit}: {texts:?}");
            }
        }
    }
}
