//! What is kept, and for how long.

use super::*;
use crate::budget::Part;
use crate::clock::Timestamp;

fn store(limit: u64) -> (Baselines, Clock) {
    (Baselines::new(Share::fixed(Part::Queues, limit)), Clock::manual(Timestamp(0)))
}

#[test]
fn the_least_recently_used_files_make_room() {
    let (store, clock) = store(2000);
    let file = |byte: u8| Bytes::from(vec![byte; 300]);
    let names = [0, 1, 2].map(|byte| store.keep(file(byte), &clock).unwrap());
    assert_eq!(store.get(&names[0], &clock), Some(file(0)));
    store.keep(file(3), &clock).unwrap();
    assert_eq!((store.get(&names[1], &clock), store.get(&names[0], &clock)), (None, Some(file(0))));
    assert_eq!(store.memory.used(), 900);
    assert_eq!(store.keep(Bytes::from(vec![0; 1001]), &clock), Err(1000));
    for byte in 0..=FILES as u8 {
        store.keep(Bytes::from(vec![byte]), &clock).unwrap();
    }
    assert_eq!(store.kept.lock().len(), FILES);
    store.keep(Bytes::from(vec![1]), &clock).unwrap();
    assert_eq!(store.kept.lock().len(), FILES, "the same file is kept once");
}

#[test]
fn a_file_is_kept_for_an_hour_after_its_last_use() {
    let (store, clock) = store(2000);
    let name = store.keep(Bytes::from_static(b"a 1"), &clock).unwrap();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(3599));
        assert!(store.get(&name, &clock).is_some());
    }
    clock.advance(KEPT);
    assert_eq!((store.get(&name, &clock), store.memory.used()), (None, 0));
}
