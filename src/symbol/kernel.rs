//! Names of kernel functions: those in the kernel's list, and those reported by later records.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::spans::{Answer, Name, Span};
use super::{Reason, Segment};
use crate::clock::Monotonic;
use crate::error::{FileError, FileErrorKind};
use crate::host::Roots;
use crate::probe::kallsyms::{KallsymsError, Table};
use crate::ring::Ksymbol;
use crate::stack;

/// The most functions that are kept from records: BPF programs and trampolines.
const CHANGED_FUNCTIONS_LIMIT: usize = 16_384;
/// The longest interval between two reads of the list, if reading it does not help.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The longest name, in bytes. The kernel's `KSYM_NAME_LEN` is 512.
const NAME_LIMIT: usize = 512;

/// The functions of the kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    /// The list, or why there is none; `None` before the first look-up.
    table: Option<Result<Listed, Reason>>,
    read_at: Monotonic,
    /// The minimum time before the list is read again.
    wait: Duration,
    /// Functions from records, by their first addresses.
    changed: BTreeMap<u64, ChangedFunction>,
    /// The most of them that are marked as removed.
    removed: usize,
    limit: usize,
}

#[derive(Debug)]
struct Listed {
    table: Table,
    /// For each range of the list.
    segments: Vec<Arc<Segment>>,
}

#[derive(Debug)]
struct ChangedFunction {
    end: u64,
    name: Arc<str>,
    /// Whether it was removed. Earlier samples may still arrive.
    removed: bool,
}

impl Kernel {
    /// Creates an empty state with a list of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        let (read_at, wait) = (Monotonic::default(), Duration::ZERO);
        Self { table: None, read_at, wait, changed: BTreeMap::new(), removed: 0, limit }
    }

    /// Reads the list at the first call. Reads it again if one of these addresses is in no known function and the last read is older than
    /// `refresh`: a module may have been loaded. If a read does not help, the interval doubles, because a
    /// read takes 0.1 s. Returns whether the list was read.
    pub(super) fn prepare(
        &mut self,
        roots: &Roots,
        now: Monotonic,
        refresh: Duration,
        mut addresses: impl Iterator<Item = u64>,
    ) -> bool {
        let is_first = self.table.is_none();
        if !is_first && now.since(self.read_at) < self.wait.max(refresh) {
            return false;
        }
        let Some(missing) = addresses.find(|&address| is_first || !self.knows(address)) else {
            return false;
        };
        let table = Table::read(roots, self.limit).map_err(|error| reason(&error));
        self.table = Some(table.map(|table| Listed::new(table, roots)));
        self.read_at = now;
        let has_helped = is_first || self.knows(missing);
        self.wait = if has_helped { refresh } else { (self.wait.max(refresh) * 2).min(LONGEST_WAIT) };
        true
    }

    /// Adds or removes a function. Returns whether the table had room for it.
    pub(super) fn apply_ksymbol(&mut self, symbol: &Ksymbol<'_>) -> bool {
        let (start, end) = (symbol.address, symbol.address.saturating_add(symbol.length.into()));
        if symbol.removed {
            if let Some(changed) = self.changed.get_mut(&start).filter(|changed| !changed.removed) {
                changed.removed = true;
                self.removed += 1;
            }
            return true;
        }
        let overlapped = self.changed.range(..end).rev().take_while(|(_, changed)| changed.end > start);
        let overlapped: Vec<u64> = overlapped.map(|(&start, _)| start).collect();
        for start in overlapped {
            self.changed.remove(&start);
        }
        if self.changed.len() >= CHANGED_FUNCTIONS_LIMIT && self.removed > 0 {
            self.changed.retain(|_, changed| !changed.removed);
            self.removed = 0;
        }
        let has_room = self.changed.len() < CHANGED_FUNCTIONS_LIMIT;
        if has_room && end > start {
            let name = &symbol.name[..symbol.name.len().min(NAME_LIMIT)];
            let name = crate::error::printable(&String::from_utf8_lossy(name)).into();
            self.changed.insert(start, ChangedFunction { end, name, removed: false });
        }
        has_room
    }

    /// Returns the function at an address, and the span for which the result is valid.
    pub(super) fn find(&self, address: u64) -> (Answer, Span) {
        let before = self.changed.range(..=address).next_back();
        let changed = before.filter(|(_, changed)| address < changed.end);
        if let Some((&start, changed)) = changed.filter(|(_, changed)| !changed.removed) {
            return (changed.answer(start), (start, changed.end));
        }
        let after = self.changed.range((Bound::Excluded(address), Bound::Unbounded)).next();
        let bounds = match changed {
            Some((&start, changed)) => (start, changed.end),
            None => {
                (before.map_or(0, |(_, changed)| changed.end), after.map_or(u64::MAX, |(&start, _)| start))
            }
        };
        let listed = match &self.table {
            Some(Ok(listed)) => listed.find(address).ok_or(Reason::KernelUnknown),
            Some(Err(reason)) => Err(*reason),
            None => Err(Reason::KernelUnreadable),
        };
        let here = (address, address.saturating_add(1));
        match (listed, changed) {
            (Ok((answer, (start, end))), _) => (answer, (start.max(bounds.0), end.min(bounds.1))),
            (Err(_), Some((&start, changed))) => (changed.answer(start), here),
            (Err(reason), None) => (Answer { name: Err(reason), segment: None }, here),
        }
    }

    /// Reports whether an address is in a known function.
    fn knows(&self, address: u64) -> bool {
        let changed =
            self.changed.range(..=address).next_back().is_some_and(|(_, changed)| address < changed.end);
        changed || matches!(&self.table, Some(Ok(listed)) if listed.table.covers(address))
    }

    /// Limits the list to `limit` bytes. A larger list is dropped.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if self.table.iter().flatten().any(|listed| listed.table.bytes() > limit) {
            self.table = None;
        }
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let changed: usize = self.changed.values().map(|changed| 64 + changed.name.len()).sum();
        changed + self.table.iter().flatten().map(|listed| listed.table.bytes()).sum::<usize>()
    }
}

fn reason(error: &KallsymsError) -> Reason {
    match error {
        KallsymsError::Hidden { .. } | KallsymsError::Forbidden(_) => Reason::KernelForbidden,
        KallsymsError::Unreadable(FileError { kind: FileErrorKind::TooLarge { .. }, .. }) => Reason::TooLarge,
        _ => Reason::KernelUnreadable,
    }
}

impl Listed {
    fn new(table: Table, roots: &Roots) -> Self {
        let segments = table.ranges().iter().map(|range| {
            let path = match &range.module {
                Some(module) => format!("[{module}]").into(),
                None => "[kernel.kallsyms]".into(),
            };
            let (start, limit) = (range.start, range.limit);
            let build_id = stack::kernel_build_id(roots, range.module.as_deref());
            Arc::new(Segment { start, limit, path, build_id, named: true, ..Segment::default() })
        });
        let segments = segments.collect();
        Self { table, segments }
    }

    fn find(&self, address: u64) -> Option<(Answer, Span)> {
        let at = self.table.find(address)?;
        let segment = self.segments.get(at.range).cloned();
        Some((
            Answer { name: Ok(Name::plain(at.name.into()).at((at.start, at.end))), segment },
            (at.start, at.end),
        ))
    }
}

impl ChangedFunction {
    fn answer(&self, start: u64) -> Answer {
        Answer { name: Ok(Name::plain(Arc::clone(&self.name)).at((start, self.end))), segment: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 T tcp_sendmsg
ffffffff81000300 D _sdata
ffffffffc0000000 t nf_in\t[nf_conntrack]
ffffffffc0000100 d table\t[nf_conntrack]
";
    const REFRESH: Duration = Duration::from_secs(10);

    struct Host(tempfile::TempDir, Roots);

    impl Host {
        fn new(symbols: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("proc")).unwrap();
            let roots = Roots::under(dir.path());
            let host = Self(dir, roots);
            host.write(symbols);
            host
        }

        fn write(&self, symbols: &str) {
            std::fs::write(self.0.path().join("proc/kallsyms"), symbols).unwrap();
        }
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic(Duration::from_secs(seconds))
    }

    fn name(kernel: &Kernel, address: u64) -> Result<String, Reason> {
        let (answer, (start, end)) = kernel.find(address);
        assert!((start..end).contains(&address) || address == u64::MAX, "{start:#x} {end:#x}");
        let path = answer.segment.map(|segment| segment.path.to_string()).unwrap_or_default();
        answer.name.map(|name| format!("{} {path}", name.line().name))
    }

    #[test]
    fn a_function_is_in_the_kernel_or_in_a_module() {
        let host = Host::new(SYMBOLS);
        let mut kernel = Kernel::new(1 << 20);
        assert!(kernel.prepare(&host.1, at(0), REFRESH, [1].into_iter()));
        assert_eq!(name(&kernel, 0xffff_ffff_8100_0110).unwrap(), "tcp_sendmsg [kernel.kallsyms]");
        assert_eq!(name(&kernel, 0xffff_ffff_c000_0001).unwrap(), "nf_in [nf_conntrack]");
        assert_eq!(name(&kernel, 0xffff_ffff_8100_0400), Err(Reason::KernelUnknown));
    }

    #[test]
    fn the_list_is_read_again_for_a_new_module_but_not_at_once() {
        let host = Host::new(SYMBOLS);
        let mut kernel = Kernel::new(1 << 20);
        let (known, new) = (0xffff_ffff_8100_0110, 0xffff_ffff_c100_0004);
        assert!(!kernel.prepare(&host.1, at(0), REFRESH, std::iter::empty()));
        assert!(kernel.prepare(&host.1, at(1), REFRESH, [known].into_iter()));
        host.write(&format!("{SYMBOLS}ffffffffc1000000 t fresh\t[veth]\n"));
        assert!(!kernel.prepare(&host.1, at(5), REFRESH, [known, new].into_iter()));
        assert!(!kernel.prepare(&host.1, at(20), REFRESH, [known].into_iter()));
        assert!(kernel.prepare(&host.1, at(20), REFRESH, [known, new].into_iter()));
        assert_eq!(name(&kernel, new).unwrap(), "fresh [veth]");
    }

    #[test]
    fn an_address_that_is_in_nothing_is_not_looked_up_all_the_time() {
        let host = Host::new(SYMBOLS);
        let mut kernel = Kernel::new(1 << 20);
        let read = |second: &u64| kernel.prepare(&host.1, at(*second), REFRESH, [0x1000].into_iter());
        let seconds: Vec<u64> = (0..2000).filter(read).collect();
        assert_eq!(seconds, [0, 10, 30, 70, 150, 310, 630, 1230, 1830]);
    }

    #[test]
    fn hidden_addresses_are_a_missing_permission_that_may_be_given_later() {
        let host = Host::new("0000000000000000 T _stext\n");
        let mut kernel = Kernel::new(1 << 20);
        kernel.prepare(&host.1, at(0), REFRESH, [1].into_iter());
        assert_eq!(name(&kernel, 1), Err(Reason::KernelForbidden));
        assert!(Table::read(&host.1, 1 << 20).unwrap_err().to_string().contains("CAP_SYSLOG"));
        host.write(SYMBOLS);
        kernel.prepare(&host.1, at(30), REFRESH, [1].into_iter());
        assert_eq!(name(&kernel, 0xffff_ffff_8100_0110).unwrap(), "tcp_sendmsg [kernel.kallsyms]");
    }

    #[test]
    fn what_the_kernel_tells_of_is_known_until_something_else_is_there() {
        let mut kernel = Kernel::new(1 << 20);
        let symbol = |address, removed, name: &'static [u8]| Ksymbol { address, length: 64, removed, name };
        kernel.apply_ksymbol(&symbol(0xc000, false, b"bpf_prog_1_x"));
        assert_eq!(name(&kernel, 0xc03f).unwrap(), "bpf_prog_1_x ");
        assert!(name(&kernel, 0xc040).is_err());
        kernel.apply_ksymbol(&symbol(0xc000, true, b"bpf_prog_1_x"));
        assert_eq!(name(&kernel, 0xc000).unwrap(), "bpf_prog_1_x ");
        kernel.apply_ksymbol(&symbol(0xc020, false, b"\xff\n"));
        assert!(name(&kernel, 0xc000).is_err());
        assert_eq!(name(&kernel, 0xc020).unwrap(), "\u{fffd}\\n ");
    }

    #[test]
    fn functions_without_end_take_no_more_memory() {
        let mut kernel = Kernel::new(1 << 20);
        let symbol = |number, removed| Ksymbol { address: number * 64, length: 64, removed, name: b"x" };
        let limit = CHANGED_FUNCTIONS_LIMIT as u64;
        let room = (0..2 * limit).filter(|&number| kernel.apply_ksymbol(&symbol(number, false))).count();
        assert_eq!((kernel.changed.len(), room), (CHANGED_FUNCTIONS_LIMIT, CHANGED_FUNCTIONS_LIMIT));
        // Removed functions are dropped first.
        kernel.apply_ksymbol(&symbol(5, true));
        assert!(kernel.apply_ksymbol(&symbol(limit, false)));
        assert_eq!(name(&kernel, limit * 64).unwrap(), "x ");
    }
}
