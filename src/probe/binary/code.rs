//! Code ranges in the address space of a file.

use super::headers::Headers;

/// The code sections, or the executable segments of a file without sections, sorted by address.
#[derive(Debug)]
pub(super) struct CodeRanges(Box<[Range]>);

#[derive(Debug, Clone, Copy)]
struct Range {
    start: u64,
    /// Exclusive.
    end: u64,
    /// Number of code bytes before this range.
    before: u64,
}

impl CodeRanges {
    pub(super) fn of(headers: &Headers) -> Self {
        let mut ranges = headers.code.clone();
        if ranges.is_empty() {
            let code = headers.segments.iter().filter(|segment| segment.executable && segment.size() > 0);
            ranges.extend(code.map(|segment| (segment.start, segment.limit)));
            ranges.sort_unstable();
        }
        let mut before = 0u64;
        let ranges = ranges.into_iter().map(|(start, end)| {
            let range = Range { start, end, before };
            before = before.saturating_add(end.saturating_sub(start));
            range
        });
        Self(ranges.collect())
    }

    /// Returns the end of the range that contains an address.
    pub(super) fn end(&self, address: u64) -> Option<u64> {
        self.range(address).map(|range| range.end)
    }

    /// Returns the number of code bytes before an address. `None` if the address is not in code.
    pub(super) fn place(&self, address: u64) -> Option<u64> {
        self.range(address).map(|range| range.before.saturating_add(address - range.start))
    }

    /// Returns the address that has this number of code bytes before it.
    pub(super) fn address(&self, place: u64) -> u64 {
        let behind = self.0.partition_point(|range| range.before <= place);
        let range = behind.checked_sub(1).and_then(|last| self.0.get(last));
        range.map_or(0, |range| range.start.saturating_add(place - range.before))
    }

    /// Returns the size of all code, in bytes.
    pub(super) fn len(&self) -> u64 {
        self.0.last().map_or(0, |last| last.before.saturating_add(last.end.saturating_sub(last.start)))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    fn range(&self, address: u64) -> Option<&Range> {
        let before = self.0.partition_point(|range| range.start <= address).checked_sub(1)?;
        self.0.get(before).filter(|range| address < range.end)
    }
}
