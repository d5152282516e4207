//! Where code is in the address space of a file.

use super::headers::Headers;

/// The sections with code, or the segments of a file without sections, sorted by address.
#[derive(Debug)]
pub(super) struct CodeRanges(Box<[Range]>);

#[derive(Debug, Clone, Copy)]
struct Range {
    start: u64,
    /// The end, which is not in it.
    end: u64,
    /// How much code there is before it, in bytes.
    before: u64,
}

impl CodeRanges {
    pub(super) fn of(headers: &Headers) -> Self {
        let mut ranges = headers.code.clone();
        if ranges.is_empty() {
            let code = headers.segments.iter().filter(|segment| segment.executable && segment.file.size > 0);
            ranges.extend(code.filter_map(|segment| {
                Some((segment.address, segment.address.checked_add(segment.file.size)?))
            }));
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

    /// The end of the range that an address is in.
    pub(super) fn end(&self, address: u64) -> Option<u64> {
        self.range(address).map(|range| range.end)
    }

    /// How much code there is before an address, in bytes; `None` if it is in none.
    pub(super) fn place(&self, address: u64) -> Option<u64> {
        self.range(address).map(|range| range.before.saturating_add(address - range.start))
    }

    /// The address that has so much code before it.
    pub(super) fn address(&self, place: u64) -> u64 {
        let behind = self.0.partition_point(|range| range.before <= place);
        let range = behind.checked_sub(1).and_then(|last| self.0.get(last));
        range.map_or(0, |range| range.start.saturating_add(place - range.before))
    }

    /// How much code there is, in bytes.
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
