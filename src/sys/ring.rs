//! The ring of the running kernel: a mapping that the kernel writes and this process reads.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::sample::{Unread, in_portions, records};
use super::{Drained, Ring};
use crate::error::Errno;

/// A mapped ring.
#[derive(Debug)]
pub struct LiveRing {
    base: NonNull<u8>,
    /// Size in bytes of the page with the positions, which precedes the records.
    page: usize,
    /// Size for records in bytes, a power of two.
    size: usize,
    /// Buffer to assemble a record that wraps around the end.
    scratch: Vec<u8>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and there are no other pointers into it.
unsafe impl Send for LiveRing {}

impl LiveRing {
    /// Maps the ring of `event`.
    pub(super) fn map(event: BorrowedFd<'_>, pages: usize) -> Result<Self, Errno> {
        let page = rustix::param::page_size();
        let size = pages.checked_mul(page).filter(|_| pages.is_power_of_two()).ok_or(Errno::EINVAL)?;
        let length = size.checked_add(page).ok_or(Errno::EINVAL)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice does not affect memory that Rust uses.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::ENOMEM)?;
        Ok(Self { base, page, size, scratch: Vec::new() })
    }

    fn positions(&self) -> *mut perf_event_mmap_page {
        self.base.as_ptr().cast()
    }

    /// Returns the position up to which the kernel has written.
    fn head(&self) -> &AtomicU64 {
        // SAFETY: the first page of the mapping is this structure; the pointer is only formed, not read.
        let head = unsafe { &raw mut (*self.positions()).data_head };
        // SAFETY: the field is aligned, lives as long as the mapping, and is only accessed by atomic operations.
        unsafe { AtomicU64::from_ptr(head) }
    }

    /// Returns the position up to which this process has read.
    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as for `head`.
        let tail = unsafe { &raw mut (*self.positions()).data_tail };
        // SAFETY: as for `head`.
        unsafe { AtomicU64::from_ptr(tail) }
    }

    /// Lends the unread bytes, up to the end of the ring and from its start, to `read`.
    ///
    /// The slices are exactly the bytes between tail and head. The kernel never writes there. It looks for space between the head and the
    /// tail that this process published last (`perf_output_begin`, `ring_buffer_has_space`). It drops the record if there is none. It does
    /// not overwrite because the ring is mapped writable. Bytes outside of that range may be written at any time, and no reference ever
    /// covers them.
    fn lend(&self, unread: Unread, read: impl FnOnce(&[u8], &[u8]) -> usize) -> usize {
        debug_assert!(unread.start + unread.to_end <= self.size && unread.from_start <= unread.start);
        // SAFETY: the pages behind the first are the ring's; `page` is within the mapping.
        let data = unsafe { self.base.as_ptr().add(self.page) };
        // SAFETY: `start` is within the ring.
        let start = unsafe { data.add(unread.start) };
        // SAFETY: `to_end` bytes from there are mapped for as long as `self` lives, and are initialized. They are not written before
        // `drain` moves the tail, which is after `read` has returned.
        let to_end = unsafe { slice::from_raw_parts(start, unread.to_end) };
        // SAFETY: as for the bytes up to the end; the two ranges do not overlap.
        let from_start = unsafe { slice::from_raw_parts(data, unread.from_start) };
        read(to_end, from_start)
    }
}

impl Ring for LiveRing {
    fn drain(&mut self, mut each: impl FnMut(&[u8])) -> Drained {
        // Pairs with the kernel's barrier before it moves the head: the records up to there are complete. See perf_output_put_handle() in
        // kernel/events/ring_buffer.c, which describes both pairs.
        let head = self.head().load(Ordering::Acquire);
        let tail = self.tail().load(Ordering::Relaxed);
        let mut scratch = std::mem::take(&mut self.scratch);
        let portion = |unread, enough| {
            self.lend(unread, |to_end, from_start| {
                records(to_end, from_start, enough, &mut scratch, &mut each)
            })
        };
        // Ordered after all reads of the portion: from here on the kernel may write there.
        let release = |tail| self.tail().store(tail, Ordering::Release);
        let drained = in_portions((tail, head), self.size, portion, release);
        self.scratch = scratch;
        drained
    }

    fn size(&self) -> usize {
        self.size
    }
}

impl Drop for LiveRing {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` created, with its length; no reference into it outlives `self`.
        let result = unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.size) };
        debug_assert_eq!(result, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::event::Modifiers;
    use crate::sys::live::Live;
    use crate::sys::{Attr, Event, Fields, Kernel, Place, Rate, ReadFormat, Sampling, Sideband, Start};

    /// The kernel's side of a ring: it writes between the head and the tail, and drops a record that does not fit there.
    struct Writer {
        base: NonNull<u8>,
        page: usize,
        size: usize,
    }

    // SAFETY: the test ends the thread of the writer before it unmaps the ring.
    unsafe impl Send for Writer {}

    impl Writer {
        /// Returns a ring in memory that no event has, and its writer.
        fn with_ring() -> (LiveRing, Self) {
            let page = rustix::param::page_size();
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: as in `map`.
            let base = unsafe { libc::mmap(std::ptr::null_mut(), 2 * page, protection, flags, -1, 0) };
            assert_ne!(base, libc::MAP_FAILED);
            let base = NonNull::new(base.cast()).unwrap();
            (LiveRing { base, page, size: page, scratch: Vec::new() }, Self { base, page, size: page })
        }

        fn position(&self, field: impl Fn(*mut perf_event_mmap_page) -> *mut u64) -> &AtomicU64 {
            // SAFETY: both sides access the positions by atomic operations only.
            unsafe { AtomicU64::from_ptr(field(self.base.as_ptr().cast())) }
        }

        fn head(&self) -> &AtomicU64 {
            // SAFETY: as for `LiveRing::head`.
            self.position(|page| unsafe { &raw mut (*page).data_head })
        }

        /// Writes a record, and reports whether there was space for it.
        fn write(&self, record: &[u8]) -> bool {
            // SAFETY: as for `LiveRing::tail`.
            let tail = self.position(|page| unsafe { &raw mut (*page).data_tail }).load(Ordering::Acquire);
            let head = self.head().load(Ordering::Relaxed);
            if head + record.len() as u64 - tail > self.size as u64 {
                return false;
            }
            for (at, &byte) in (head..).zip(record) {
                // SAFETY: the place is within the mapping.
                let place = unsafe { self.base.as_ptr().add(self.page + at as usize % self.size) };
                // SAFETY: it is not between tail and head, so the reader does not access it.
                unsafe { place.write(byte) };
            }
            self.head().store(head + record.len() as u64, Ordering::Release);
            true
        }
    }

    /// Also run by an interpreter that finds every access to memory which the other side may be writing (`.ci/memory miri`).
    #[test]
    fn a_reader_gets_each_record_of_a_concurrent_writer_once_and_whole() {
        const RECORDS: u32 = if cfg!(miri) { 300 } else { 100_000 };
        let (mut ring, writer) = Writer::with_ring();
        let written = thread::spawn(move || {
            for number in 0..RECORDS {
                // Kind, flags and size of the record, and its number as often as it fits.
                let words = 2 + number % 9 * 2;
                let header = u64::from(words * 4) << 48 | 9;
                let content = std::iter::repeat_n(number.to_ne_bytes(), words as usize - 2).flatten();
                let record: Vec<u8> = header.to_ne_bytes().into_iter().chain(content).collect();
                while !writer.write(&record) {
                    thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < RECORDS {
            let drained = ring.drain(|record| {
                let numbers =
                    record[8..].chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
                assert_eq!(record.len() as u32, 8 + next % 9 * 8);
                assert!(numbers.into_iter().all(|number| number == next), "{next}: {record:?}");
                next += 1;
            });
            if drained.bytes == 0 {
                thread::yield_now();
            }
        }
        written.join().unwrap();
        assert_eq!(ring.drain(|_| panic!("all records were read")).bytes, 0);
    }

    /// Returns options for context switches of this thread, which any user may count for its own threads.
    fn switches() -> Attr {
        let sampling = Sampling {
            rate: Rate::Period(1),
            fields: Fields { identifier: true, read: Some(ReadFormat::default()), ..Fields::default() },
            sideband: Sideband::default(),
            ordered: false,
        };
        let attr = Attr::software(3, Some(sampling), Start::Later);
        Attr { modifiers: Modifiers { exclude_kernel: true, ..Modifiers::default() }, ..attr }
    }

    #[test]
    fn only_powers_of_two_can_be_mapped_and_one_ring_follows_another() {
        let Ok(event) = Live.open(&switches(), Place::Thread(0), None) else {
            eprintln!("skipped: perf_event_open is not allowed here");
            return;
        };
        assert_eq!(event.map(3).unwrap_err(), Errno::EINVAL);
        assert_eq!(event.map(usize::MAX).unwrap_err(), Errno::EINVAL);
        for pages in [1, 4, 2] {
            let mut ring = event.map(pages).unwrap();
            assert_eq!(ring.size(), pages * rustix::param::page_size());
            assert_eq!(ring.drain(|_| panic!("nothing was enabled")).bytes, 0);
        }
        assert!(event.id().unwrap() > 0);
        event.write_to(&event).unwrap_err();
        assert!(event.descriptor().is_some());
    }
}
