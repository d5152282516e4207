//! A mutex that goes to whoever waits for it before it goes back to the thread that had it. A mutex of the standard
//! library may let a thread that comes back at once pass all others, again and again.

use std::sync::{Mutex, MutexGuard};

use super::lock;

#[derive(Debug)]
pub(super) struct Fair<T> {
    value: Mutex<T>,
    /// Who holds it is the next to get the value.
    turn: Mutex<()>,
}

impl<T> Fair<T> {
    pub(super) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), turn: Mutex::new(()) }
    }

    /// The value, when it is this thread's turn. No thread may ask while it has it.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        let _turn = lock(&self.turn);
        lock(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_waits_gets_it_although_another_thread_comes_back_at_once() {
        const MOMENT: Duration = Duration::from_millis(1);
        let shared = Arc::new((Fair::new(true), AtomicU32::new(0)));
        let busy = Arc::clone(&shared);
        let busy = thread::spawn(move || {
            let (fair, turns) = &*busy;
            // Never without it for longer than it takes to ask.
            while let goes_on = fair.lock()
                && *goes_on
            {
                turns.fetch_add(1, Ordering::SeqCst);
                thread::sleep(MOMENT);
            }
        });
        let (fair, turns) = &*shared;
        let passed = || {
            thread::sleep(3 * MOMENT);
            let before = turns.load(Ordering::SeqCst);
            let _goes_on = fair.lock();
            turns.load(Ordering::SeqCst) - before
        };
        // Once at least nothing but the other one holds this thread up.
        let least = (0..20).map(|_| passed()).min();
        *fair.lock() = false;
        busy.join().unwrap();
        assert_eq!(least, Some(0), "the other one had a turn each time");
    }
}
