//! Pages of files, cached within a byte limit.
//!
//! Each page is read with a bounded `pread` on first use. Files are not mapped: if another process truncates a mapped file, readers of the
//! mapping get `SIGBUS`.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};

use rustc_hash::FxHashMap;

use crate::host::ReadAt;

/// The size of a page in bytes.
pub(super) const PAGE: usize = 4096;
/// The bytes of a cached page, including its entries in the list and the index.
const PAGE_COST: u64 = PAGE as u64 + 64;
/// The fewest pages that the cache holds, whatever the limit: enough for one search.
const MIN_PAGES: usize = 16;
/// The key of a page that could not be read. Files have numbers from 1 on.
const NO_PAGE: Key = (0, 0);

/// The number of a file, and the number of a page in it.
type Key = (u32, u32);

/// A cache of pages with clock replacement.
#[derive(Debug)]
pub(super) struct Pages {
    index: FxHashMap<Key, usize>,
    pages: Vec<Page>,
    /// The content of each page, in one block of memory: it does not fragment the heap, and is returned to the kernel as a whole.
    contents: Vec<[u8; PAGE]>,
    hand: usize,
    limit: usize,
}

#[derive(Debug)]
struct Page {
    key: Key,
    /// Less than [`PAGE`] at the end of the file.
    length: usize,
    used: bool,
}

impl Pages {
    /// Creates an empty cache of at most `bytes`.
    pub(super) fn new(bytes: u64) -> Self {
        let mut pages =
            Self { index: FxHashMap::default(), pages: Vec::new(), contents: Vec::new(), hand: 0, limit: 0 };
        pages.set_limit(bytes);
        pages
    }

    /// Changes the limit, and drops the pages above it.
    pub(super) fn set_limit(&mut self, bytes: u64) {
        self.limit = usize::try_from(bytes / PAGE_COST).unwrap_or(usize::MAX).max(MIN_PAGES);
        if self.pages.len() <= self.limit {
            return;
        }
        for page in self.pages.drain(self.limit..) {
            self.index.remove(&page.key);
        }
        self.contents.truncate(self.limit);
        self.pages.shrink_to_fit();
        self.contents.shrink_to_fit();
        self.index.shrink_to_fit();
    }

    /// Drops all pages and frees their memory.
    pub(super) fn clear(&mut self) {
        (self.index, self.pages, self.contents, self.hand) = Default::default();
    }

    /// Returns the bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_COST
    }

    /// Returns the index of a cached page.
    fn find(&mut self, key: Key) -> Option<usize> {
        let place = *self.index.get(&key)?;
        // The index contains only pages that exist.
        self.pages[place].used = true;
        Some(place)
    }

    /// Returns the content of a page. `place` is from [`find`](Self::find) or [`load`](Self::load).
    fn content(&self, place: usize) -> &[u8] {
        &self.contents[place][..self.pages[place].length]
    }

    /// Reads a page in place of one that was not used recently.
    fn load(&mut self, key: Key, file: &dyn ReadAt) -> io::Result<usize> {
        let place = self.vacate();
        let page = &mut self.pages[place];
        page.length = fill(file, &mut self.contents[place], u64::from(key.1) * PAGE as u64)?;
        (page.key, page.used) = (key, true);
        self.index.insert(key, place);
        Ok(place)
    }

    /// Returns an empty slot for a page.
    fn vacate(&mut self) -> usize {
        if self.pages.len() < self.limit {
            self.pages.push(Page { key: NO_PAGE, length: 0, used: false });
            self.contents.push([0; PAGE]);
            return self.pages.len() - 1;
        }
        // After one turn no page is marked as used. There is at least one.
        loop {
            self.hand = (self.hand + 1) % self.pages.len();
            let page = &mut self.pages[self.hand];
            if !std::mem::take(&mut page.used) {
                self.index.remove(&page.key);
                page.key = NO_PAGE;
                return self.hand;
            }
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &dyn ReadAt, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match file.read_at(room, offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A file whose pages are cached.
pub(super) struct PagedFile<'a> {
    file: &'a dyn ReadAt,
    /// A number that no other file has.
    number: u32,
    pages: &'a RefCell<Pages>,
    allowance: &'a Allowance,
}

/// The bytes that may be read before the caller must continue with other work.
#[derive(Debug)]
pub(super) struct Allowance {
    left: Cell<u64>,
    exceeded: Cell<bool>,
}

impl Allowance {
    /// The cost of a byte that is copied out of the cache and interpreted, in bytes read from a file.
    const COPY: u64 = 16;

    pub(super) fn new(bytes: u64) -> Self {
        Self { left: Cell::new(bytes), exceeded: Cell::new(false) }
    }

    /// Reports whether content was not available yet, or the allowance was used up.
    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded.get()
    }

    fn spend(&self, bytes: u64) -> io::Result<()> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| self.later())?;
        self.left.set(left);
        Ok(())
    }

    fn later(&self) -> io::Error {
        self.exceeded.set(true);
        ErrorKind::WouldBlock.into()
    }
}

impl<'a> PagedFile<'a> {
    pub(super) fn new(
        file: &'a dyn ReadAt,
        number: u32,
        pages: &'a RefCell<Pages>,
        allowance: &'a Allowance,
    ) -> Self {
        Self { file, number, pages, allowance }
    }
}

impl ReadAt for PagedFile<'_> {
    /// Reads from one page.
    ///
    /// # Errors
    /// As `pread(2)`. [`ErrorKind::WouldBlock`] if the content is not available yet or the allowance is used up.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Ok(number) = u32::try_from(offset / PAGE as u64) else { return Ok(0) };
        let key = (self.number, number);
        let mut pages = self.pages.borrow_mut();
        let place = match pages.find(key) {
            Some(place) => place,
            None => {
                self.allowance.spend(PAGE as u64)?;
                pages.load(key, self.file).map_err(|error| match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => self.allowance.later(),
                    _ => error,
                })?
            }
        };
        let rest = pages.content(place).get((offset % PAGE as u64) as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        self.allowance.spend(count as u64 * Allowance::COPY)?;
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file in memory whose first reads fail.
    struct Slow {
        bytes: Vec<u8>,
        refusals: Cell<u32>,
        reads: Cell<u32>,
    }

    impl Slow {
        fn new(size: usize, refusals: u32) -> Self {
            let bytes = (0..size).map(|at| (at % 251) as u8).collect();
            Self { bytes, refusals: Cell::new(refusals), reads: Cell::new(0) }
        }
    }

    impl ReadAt for Slow {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            if let Some(left) = self.refusals.get().checked_sub(1) {
                self.refusals.set(left);
                return Err(ErrorKind::TimedOut.into());
            }
            self.reads.set(self.reads.get() + 1);
            let rest = self.bytes.get(offset as usize..).unwrap_or_default();
            // At most some bytes at a time, as pread may do.
            let count = rest.len().min(buffer.len()).min(3000);
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }

        fn length(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }
    }

    #[test]
    fn a_page_is_read_once_until_others_take_its_place() {
        let file = Slow::new(100 * PAGE, 0);
        let (pages, allowance) = (RefCell::new(Pages::new(0)), Allowance::new(u64::MAX));
        let paged = PagedFile::new(&file, 1, &pages, &allowance);
        let read = |page: usize| {
            let mut word = [0; 8];
            paged.read_exact_at(&mut word, (page * PAGE) as u64).unwrap();
            assert_eq!(word[..], file.bytes[page * PAGE..page * PAGE + 8]);
            file.reads.get()
        };
        let first = read(0);
        assert_eq!(read(0), first);
        (1..100).for_each(|page| _ = read(page));
        assert!(read(0) > first * 100);
        assert_eq!(pages.borrow().bytes(), MIN_PAGES as u64 * PAGE_COST);
        pages.borrow_mut().set_limit(1 << 20);
        (0..100).for_each(|page| _ = read(page));
        let all = file.reads.get();
        (0..100).for_each(|page| _ = read(page));
        assert_eq!(file.reads.get(), all);
        pages.borrow_mut().set_limit(0);
        assert_eq!(pages.borrow().bytes(), MIN_PAGES as u64 * PAGE_COST);
        read(99);
        pages.borrow_mut().clear();
        assert_eq!(pages.borrow().bytes(), 0);
        let all = file.reads.get();
        assert!(read(99) > all, "a page that was dropped is read again");
    }

    #[test]
    fn what_is_not_available_yet_is_another_time() {
        let file = Slow::new(PAGE, 1);
        let pages = RefCell::new(Pages::new(0));
        for is_there in [false, true] {
            let allowance = Allowance::new(1 << 20);
            let paged = PagedFile::new(&file, 1, &pages, &allowance);
            let answer = paged.read_exact_at(&mut [0; 4], 8).map_err(|error| error.kind());
            assert_eq!(answer, if is_there { Ok(()) } else { Err(ErrorKind::WouldBlock) });
            assert_eq!(allowance.is_exceeded(), !is_there);
        }
    }

    #[test]
    fn no_more_is_read_than_the_allowance() {
        let file = Slow::new(10 * PAGE, 0);
        let (pages, allowance) = (RefCell::new(Pages::new(0)), Allowance::new(3 * PAGE as u64));
        let paged = PagedFile::new(&file, 1, &pages, &allowance);
        let read = (0..10).filter(|page| paged.read_at(&mut [0], page * PAGE as u64).is_ok()).count();
        assert_eq!((read, allowance.is_exceeded()), (2, true));
    }

    proptest! {
        #[test]
        fn any_reads_bring_what_is_in_the_file(
            size in 0usize..20 * PAGE,
            reads in proptest::collection::vec((0usize..24 * PAGE, 0usize..2 * PAGE), 1..40),
        ) {
            let file = Slow::new(size, 0);
            let (pages, allowance) = (RefCell::new(Pages::new(0)), Allowance::new(u64::MAX));
            let paged = PagedFile::new(&file, 1, &pages, &allowance);
            for (at, length) in reads {
                let mut buffer = vec![0; length];
                let answer = paged.read_exact_at(&mut buffer, at as u64);
                match file.bytes.get(at..at + length) {
                    Some(bytes) => prop_assert!(answer.is_ok() && buffer == bytes),
                    None => prop_assert!(answer.is_err() || length == 0),
                }
            }
        }
    }
}
