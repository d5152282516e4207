//! The thread that empties rings. It sleeps until a ring has enough records.

use std::convert::Infallible;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use super::RingId;
use crate::error::Errno;
use crate::sys::scheduling::{self, Scheduling, Urgency};

/// Epoll data of the wake-up signal, besides those of rings.
const SIGNAL: u64 = u64::MAX;

/// Maximum number of rings per wake-up; the next wake-up reports the others.
const BATCH: usize = 64;

/// Interval of reading rings that are too small to wake the reader up in time.
const SMALL: Duration = Duration::from_millis(20);

/// Maximum time to wait at the end for a running callback. A callback that waits for a file may never return.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A thread that calls a callback when rings are to be read. Dropping it ends the thread, and waits for at most a second: a callback that
/// does not return is left running, and is the last one.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    scheduling: Scheduling,
    /// Disconnected when the thread ends.
    ended: Receiver<Infallible>,
}

/// State shared by the thread and its owner. The thread may outlive its owner, and must then still be able to see that it is to stop.
#[derive(Debug)]
struct Shared {
    epoll: OwnedFd,
    signal: OwnedFd,
    stop: AtomicBool,
    /// Whether there are small rings.
    small: AtomicBool,
}

impl Shared {
    fn signal(&self) -> bool {
        rustix::io::write(&self.signal, &1u64.to_ne_bytes()).is_ok()
    }
}

/// Wakes a [`Reader`] up, if it still exists.
#[derive(Debug)]
pub(crate) struct Waker(Arc<Shared>);

impl Waker {
    pub(super) fn wake(&self) {
        self.0.signal();
    }
}

impl Reader {
    /// Starts the thread; `name` is its name, at most 15 bytes. `read` receives the rings to read. It receives none if `every` has passed
    /// without any, or if a small ring may have records.
    ///
    /// # Errors
    /// When no descriptors are left (it needs two), or no thread can be created.
    pub fn start(
        name: &str,
        every: Option<Duration>,
        urgency: Urgency,
        read: impl FnMut(&[RingId]) + Send + 'static,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let signal = eventfd(0, EventfdFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &signal, epoll::EventData::new_u64(SIGNAL), flags)?;
        let (stop, small) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { epoll, signal, stop, small });
        let waiting = Arc::clone(&shared);
        let (running, ended) = channel();
        let (scheduled, schedules) = channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let (_running, mut read) = (running, read);
            // On an overloaded machine, a ring fills up while its reader waits for a CPU.
            scheduled.send(scheduling::prefer(urgency)).ok();
            while let Some(ready) = wait(&waiting, every) {
                read(&ready);
            }
        })?;
        let scheduling = schedules.recv().map_err(io::Error::other)?;
        Ok(Self { shared, thread, scheduling, ended })
    }

    /// Returns the name of its thread.
    pub fn name(&self) -> &str {
        self.thread.thread().name().unwrap_or_default()
    }

    /// Returns how its thread is scheduled.
    pub fn scheduling(&self) -> Scheduling {
        self.scheduling
    }

    /// Watches a ring from now on, by the descriptor of its event, until the event is closed and the ring dropped. Each change of the
    /// descriptor's state is reported once. A hangup, because the thread has ended or the ring was removed, is also reported once and does
    /// not delay other rings.
    ///
    /// # Errors
    /// The kernel's errno; `EEXIST` if it already watches the ring.
    pub fn listen(&self, event: BorrowedFd<'_>, ring: RingId) -> Result<(), Errno> {
        // The kernel resets the readiness of a perf event once it has reported it: the event is edge-triggered anyway.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.shared.epoll, event, epoll::EventData::new_u64(ring.token()), flags)?;
        Ok(())
    }

    /// Returns a waker, which wakes the reader up without a ring.
    pub(crate) fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.shared))
    }

    /// Reads more often from now on, for a ring that is too small to wake it up in time.
    pub fn read_often(&self) {
        if !self.shared.small.swap(true, Ordering::Relaxed) {
            self.shared.signal();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if !self.shared.signal() {
            return;
        }
        match self.ended.recv_timeout(STOP_TIMEOUT) {
            Err(RecvTimeoutError::Timeout) => tracing::warn!(
                thread = self.thread.thread().name(),
                "the thread did not end within a second because it waits for a file: it is left running"
            ),
            Err(RecvTimeoutError::Disconnected) => {}
            Ok(never) => match never {},
        }
    }
}

/// Waits for rings to read, at most for `every`. Returns `None` when the thread is to stop.
fn wait(shared: &Shared, every: Option<Duration>) -> Option<Vec<RingId>> {
    let mut events = Vec::with_capacity(BATCH);
    let small = shared.small.load(Ordering::Relaxed);
    let most = if small { Some(every.map_or(SMALL, |every| every.min(SMALL))) } else { every };
    // A duration that the kernel cannot represent means no limit.
    let most = most.and_then(|most| Timespec::try_from(most).ok());
    match epoll::wait(&shared.epoll, rustix::buffer::spare_capacity(&mut events), most.as_ref()) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Some(Vec::new()),
        Err(errno) => {
            tracing::error!(%errno, "the ring reader stopped: only collections empty the rings");
            return None;
        }
    }
    // The structure is packed on some architectures: its fields are copied, not borrowed.
    let tokens = events.iter().map(|&epoll::Event { data, .. }| data.u64());
    let ready = tokens.filter(|&token| token != SIGNAL).map(RingId::of_token).collect();
    (!shared.stop.load(Ordering::Acquire)).then_some(ready)
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc::channel;

    use super::*;

    /// Maximum time that a test waits for a thread, so that a broken reader fails the test instead of blocking it.
    const LIMIT: Duration = Duration::from_secs(10);

    fn next<T>(receiver: &Receiver<T>) -> T {
        receiver.recv_timeout(LIMIT).unwrap()
    }

    /// Reports whether the sending thread ends.
    fn ends<T>(receiver: &Receiver<T>) -> bool {
        loop {
            match receiver.recv_timeout(LIMIT) {
                Ok(_) => {}
                Err(error) => return error == RecvTimeoutError::Disconnected,
            }
        }
    }

    /// Creates a waker without a reader. The function returns how often it was called since the last time.
    pub(in crate::ring) fn counting_waker() -> (Waker, impl Fn() -> u64) {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let (stop, small) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { epoll, signal, stop, small });
        let waker = Waker(Arc::clone(&shared));
        let calls = move || {
            let mut count = [0; 8];
            rustix::io::read(&shared.signal, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
        };
        (waker, calls)
    }

    #[test]
    fn a_waker_wakes_it_up_with_no_ring_named() {
        let (sender, receiver) = channel();
        let reader =
            Reader::start("reader", None, Urgency::Raised, move |ready| drop(sender.send(ready.to_vec())))
                .unwrap();
        assert_eq!(reader.name(), "reader");
        let waker = reader.waker();
        waker.wake();
        assert_eq!(next(&receiver), []);
        drop(reader);
        waker.wake();
        assert!(ends(&receiver));
    }

    #[test]
    fn the_end_waits_for_a_callback_that_returns_soon() {
        let (begun, begins) = channel();
        let done = Arc::new(AtomicBool::new(false));
        let mark = Arc::clone(&done);
        let reader = Reader::start("reader", Some(Duration::from_millis(1)), Urgency::Raised, move |_| {
            begun.send(()).ok();
            thread::sleep(Duration::from_millis(50));
            mark.store(true, Ordering::Relaxed);
        })
        .unwrap();
        next(&begins);
        drop(reader);
        assert!(done.load(Ordering::Relaxed));
        assert!(ends(&begins));
    }

    #[test]
    fn it_looks_up_now_and_then_where_no_ring_wants_to_be_read() {
        let (sender, receiver) = channel();
        let every = Some(Duration::from_millis(1));
        let reader =
            Reader::start("reader", every, Urgency::Raised, move |ready| drop(sender.send(ready.to_vec())))
                .unwrap();
        assert!(next(&receiver).is_empty() && next(&receiver).is_empty());
        drop(reader);
    }

    #[test]
    fn it_looks_often_once_there_is_a_small_ring() {
        for every in [None, Some(Duration::from_secs(3600))] {
            let (sender, receiver) = channel();
            let reader = Reader::start("reader", every, Urgency::Rings, move |ready| {
                drop(sender.send(ready.to_vec()));
            });
            let reader = reader.unwrap();
            assert_eq!(receiver.recv_timeout(5 * SMALL), Err(RecvTimeoutError::Timeout), "there is none yet");
            reader.read_often();
            for _ in 0..3 {
                assert_eq!(next(&receiver), []);
            }
            drop(reader);
        }
    }

    #[test]
    fn it_tells_which_ring_wants_to_be_read_and_ends_when_dropped() {
        let (sender, receiver) = channel();
        let reader =
            Reader::start("reader", None, Urgency::Rings, move |ready| sender.send(ready.to_vec()).unwrap())
                .unwrap();
        let (a, b) = (eventfd(0, EventfdFlags::CLOEXEC).unwrap(), eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        reader.listen(a.as_fd(), RingId::of_cpu(7)).unwrap();
        reader.listen(b.as_fd(), RingId::of_cpu(8)).unwrap();
        reader.listen(a.as_fd(), RingId::of_cpu(7)).unwrap_err();
        rustix::io::write(&b, &1u64.to_ne_bytes()).unwrap();
        assert_eq!(next(&receiver), [RingId::of_cpu(8)]);
        drop(reader);
        // The thread has ended, and with it the sender.
        assert!(ends(&receiver));
    }

    #[test]
    fn a_ring_that_hung_up_is_told_once_and_does_not_hold_up_the_others() {
        let (sender, receiver) = channel();
        let reader =
            Reader::start("reader", None, Urgency::Rings, move |ready| drop(sender.send(ready.to_vec())))
                .unwrap();
        let (hung_up, other_end) = rustix::pipe::pipe().unwrap();
        let alive = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        reader.listen(hung_up.as_fd(), RingId::of_cpu(1)).unwrap();
        reader.listen(alive.as_fd(), RingId::of_cpu(2)).unwrap();
        drop(other_end);
        let mut tellings = 0;
        for turn in 1..=20 {
            rustix::io::write(&alive, &1u64.to_ne_bytes()).unwrap();
            loop {
                let ready = next(&receiver);
                tellings += ready.iter().filter(|&&ring| ring == RingId::of_cpu(1)).count();
                if ready.contains(&RingId::of_cpu(2)) {
                    break;
                }
            }
            assert!(tellings <= 1, "it was reported {tellings} times by turn {turn}");
        }
        drop(reader);
    }

    #[test]
    fn the_end_does_not_wait_for_a_callback_that_is_stuck() {
        let (begun, begins) = channel();
        let (release, released) = channel::<()>();
        let (gone, end) = channel::<Infallible>();
        let every = Some(Duration::from_millis(1));
        let reader = Reader::start("reader", every, Urgency::Raised, move |_| {
            let _gone = &gone;
            begun.send(()).unwrap();
            // Like a file that does not respond.
            released.recv().ok();
        })
        .unwrap();
        next(&begins);
        // Returns although the callback is still blocked.
        drop(reader);
        drop(release);
        assert!(ends(&end), "it ends when it can");
        assert!(begins.try_recv().is_err(), "and calls back no more");
    }
}
