use std::net::Ipv4Addr;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;

fn users(names: &[&str]) -> Arc<Users> {
    let hash = bcrypt::hash("secret", 4).unwrap();
    let hashes = names.iter().map(|name| ((*name).to_owned(), Secret(hash.clone()))).collect();
    Arc::new(Users::new(&hashes).unwrap())
}

fn peer(number: u32) -> Peer {
    Peer::of(Ipv4Addr::from(0x0a00_0000 + number).into())
}

fn basic(user: &str, password: &[u8]) -> HeaderValue {
    let plain = [user.as_bytes(), b":", password].concat();
    HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(plain))).unwrap()
}

fn login(users: &Arc<Users>, header: &HeaderValue, peer: Peer, clock: &Clock) -> Login {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(users.check(Some(header), peer, clock, &RequestCpu::default()))
}

#[test]
fn a_peer_has_five_guesses_and_then_one_each_twelve_seconds() {
    let (users, clock) = (users(&["anna"]), Clock::manual(Timestamp(0)));
    let guess = || login(&users, &basic("anna", b"guess"), peer(1), &clock);
    assert_eq!([(); 5].map(|()| guess()), [const { Login::Wrong }; 5]);
    assert_eq!(guess(), Login::Limited(13));
    // The right password is not even tried, or the limit would tell when it is found.
    assert_eq!(login(&users, &basic("anna", b"secret"), peer(1), &clock), Login::Limited(13));
    clock.advance(Duration::from_secs(12));
    assert_eq!(guess(), Login::Wrong);
    assert_eq!(guess(), Login::Limited(13));
    assert_eq!(login(&users, &basic("anna", b"secret"), peer(2), &clock), Login::Of("anna".into()), "others");
}

#[test]
fn a_scraper_at_the_address_of_somebody_who_guesses_is_not_locked_out() {
    let (users, clock) = (users(&["anna"]), Clock::manual(Timestamp(0)));
    let scrape = || login(&users, &basic("anna", b"secret"), peer(1), &clock);
    assert_eq!(scrape(), Login::Of("anna".into()));
    for _ in 0..10 {
        login(&users, &basic("anna", b"guess"), peer(1), &clock);
    }
    assert_eq!(scrape(), Login::Of("anna".into()));
}

#[test]
fn right_passwords_are_no_guesses() {
    let (users, clock) = (users(&["anna", "ben"]), Clock::manual(Timestamp(0)));
    for n in 0..20 {
        users.remembered.lock().clear();
        let user = ["anna", "ben"][n % 2];
        assert_eq!(login(&users, &basic(user, b"secret"), peer(1), &clock), Login::Of(user.into()));
    }
}

#[test]
fn more_requests_than_may_wait_are_turned_away_at_once() {
    let (users, clock) = (users(&["anna"]), Clock::manual(Timestamp(0)));
    let remembered = basic("anna", b"secret");
    login(&users, &remembered, peer(1), &clock);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let turn = users.hashing.acquire().await.unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (users, clock) = (Arc::clone(&users), clock.clone());
            waiting.spawn(async move {
                users
                    .check(Some(&basic("anna", b"guess")), peer(number), &clock, &RequestCpu::default())
                    .await
            });
        }
        for _ in 0..4 {
            assert_eq!(waiting.join_next().await.unwrap().unwrap(), Login::Busy);
        }
        let scrape = users.check(Some(&remembered), peer(1), &clock, &RequestCpu::default()).await;
        assert_eq!(scrape, Login::Of("anna".into()), "a known password does not wait");
        drop(turn);
        while let Some(login) = waiting.join_next().await {
            assert_eq!(login.unwrap(), Login::Wrong);
        }
    });
}

#[test]
fn odd_credentials_are_wrong_or_missing_and_never_right() {
    let (users, clock) = (users(&["anna"]), Clock::manual(Timestamp(0)));
    for (number, header) in [
        basic("anna", b""),
        basic("anna", b"secret\0"),
        basic("anna", b"secret\xff"),
        basic("anna", &[b's'; 4000]),
        basic("", b"secret"),
        basic("Anna", b"secret"),
        basic("anna:secret", b"secret"),
    ]
    .into_iter()
    .enumerate()
    {
        let peer = peer(u32::try_from(number).unwrap());
        assert_eq!(login(&users, &header, peer, &clock), Login::Wrong, "{header:?}");
    }
    for text in ["", "Basic", "Basic ", "Digest YTpi", "Basic YW5uYQ==", "Basic ====", "basic  "] {
        assert_eq!(
            login(&users, &HeaderValue::from_str(text).unwrap(), peer(9), &clock),
            Login::Missing,
            "{text}"
        );
    }
    assert_eq!(
        login(
            &users,
            &HeaderValue::from_str(&format!("bAsIc {}", STANDARD.encode("anna:secret"))).unwrap(),
            peer(9),
            &clock
        ),
        Login::Of("anna".into())
    );
}

proptest! {
    #[test]
    fn any_header_is_no_credentials_or_those_that_were_encoded(
        bytes in prop::collection::vec(any::<u8>(), 0..60), user in "[^:\\PC]{0,9}", password in prop::collection::vec(any::<u8>(), 0..80)
    ) {
        if let Ok(header) = HeaderValue::from_bytes(&bytes) {
            credentials(&header);
        }
        prop_assert_eq!(credentials(&basic(&user, &password)), Some((user, password)));
    }
}
