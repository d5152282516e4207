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
    use std::thread;

    use super::*;

    #[test]
    fn who_waits_gets_it_although_another_thread_comes_back_at_once() {
        let fair = Arc::new(Fair::new(false));
        let busy = Arc::clone(&fair);
        let busy = thread::spawn(move || {
            // Never without it for longer than it takes to ask.
            while !*busy.lock() {}
        });
        *fair.lock() = true;
        busy.join().unwrap();
    }
}
