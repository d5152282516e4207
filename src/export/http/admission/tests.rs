use prometheus::Registry;

use super::*;
use crate::clock::Timestamp;

fn admission(connections: usize) -> (Arc<Admission>, Clock) {
    let clock = Clock::manual(Timestamp(0));
    let traffic = Traffic::new(&Registry::new()).unwrap();
    (Admission::new(SlotLimits::of(connections), clock.clone(), traffic), clock)
}

fn peer(number: u8) -> Peer {
    Peer::of([192, 0, 2, number].into())
}

/// Returns the indexes of the connections that were evicted.
fn evicted(connections: &[Arc<ConnectionEntry>]) -> Vec<usize> {
    let state = |held: &ConnectionEntry| held.admission.table.lock().entries[&held.number].state;
    let all = connections.iter().enumerate();
    all.filter(|(_, held)| matches!(state(held), State::Evicted(_))).map(|(at, _)| at).collect()
}

#[test]
fn a_network_of_ipv6_is_one_peer() {
    let of = |text: &str| Peer::of(text.parse().unwrap());
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    assert_eq!(of("::ffff:192.0.2.7"), peer(7));
    assert!(of("::1").share() == PER_LOOPBACK && of("127.0.0.9").share() == PER_LOOPBACK);
    assert_eq!(peer(1).share(), PER_PEER);
}

#[test]
fn a_peer_over_its_share_closes_its_own_oldest_connection() {
    let (admission, clock) = admission(32);
    let other = [admission.enter(peer(2))];
    let mut own = Vec::new();
    for _ in 0..PER_PEER + 2 {
        clock.advance(Duration::from_millis(1));
        own.push(admission.enter(peer(1)));
    }
    assert_eq!((evicted(&own), evicted(&other)), (vec![0, 1], vec![]));
}

#[test]
fn without_sockets_the_peer_that_waits_with_most_makes_room() {
    let (admission, clock) = admission(4);
    let total = SlotLimits::of(4).sockets();
    let modest = [admission.enter(peer(200))];
    clock.advance(Duration::from_millis(1));
    // Two connections of each peer, up to the last socket.
    let many: Vec<_> = (1..total as u8).map(|n| admission.enter(peer(n / 2))).collect();
    let _last = admission.enter(peer(201));
    assert_eq!((evicted(&many).len(), evicted(&modest)), (1, vec![]));
}

#[test]
fn scrapes_have_places_whatever_else_is_answered() {
    let (admission, _) = admission(4);
    let connect = |number| admission.enter(peer(number));
    let mut kept = Vec::new();
    let mut admit = |held: Arc<ConnectionEntry>, class| {
        let (place, refused) = held.admit(class);
        kept.push((held, place));
        refused
    };
    for class in [Class::Page, Class::Profile] {
        let (places, _) = SlotLimits::of(4).of_class(class, peer(1)).unwrap();
        for n in 0..places {
            assert_eq!(admit(connect(n as u8), class), None, "{class:?}");
        }
        assert_eq!(admit(connect(99), class), Some(Refused::All(places)), "{class:?}");
    }
    for _ in 0..SCRAPES {
        assert_eq!(admit(connect(1), Class::Scrape), None);
    }
    // The first peer holds all slots. Another peer gets one of them; the first peer gets none while its scrapes are recent.
    assert_eq!(admit(connect(1), Class::Scrape), Some(Refused::Peer(SCRAPES)));
    assert_eq!(admit(connect(2), Class::Scrape), None);
}

#[test]
fn a_scrape_that_is_not_read_gives_way_to_one_of_its_own_peer() {
    let (admission, clock) = admission(4);
    let old: Vec<_> = (0..SCRAPES).map(|_| admission.enter(peer(1))).collect();
    let _places: Vec<_> = old.iter().map(|held| held.admit(Class::Scrape)).collect();
    clock.advance(SCRAPE_HOLD);
    let (_place, refused) = admission.enter(peer(1)).admit(Class::Scrape);
    assert_eq!((refused, evicted(&old)), (None, vec![0]));
}

#[test]
fn a_place_is_free_when_its_answer_is_sent_and_the_connection_waits_again() {
    let (admission, _) = admission(4);
    let first = admission.enter(peer(1));
    let (place, refused) = first.admit(Class::Page);
    assert_eq!((refused, first.waiting()), (None, None));
    let second = admission.enter(peer(2));
    assert_eq!(second.admit(Class::Page).1, Some(Refused::All(1)));
    drop(place);
    assert!(first.flushed());
    assert!(matches!(first.waiting(), Some(Waiting::Idle(_))));
    assert!(!first.flushed(), "it is idle already");
    first.bytes_came(true);
    assert!(matches!(first.waiting(), Some(Waiting::Headers(_))));
    assert_eq!(second.admit(Class::Page).1, None);
}

#[test]
fn a_connection_that_ends_leaves_nothing_behind() {
    let (admission, _) = admission(4);
    drop(admission.enter(peer(1)));
    assert!(admission.table.lock().entries.is_empty());
}
