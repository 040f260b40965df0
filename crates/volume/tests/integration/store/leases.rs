//! Requirements on leases for every engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_volume::id::Seq;
use shunt_volume::object::{Kind, Time};
use shunt_volume::store::admin::StoreAdmin;
use shunt_volume::store::lease_table::LeaseTable;
use shunt_volume::store::{LeaseEvent, LeaseRequest, LeaseResponse};

use crate::store::builders::*;

type Store = Arc<dyn StoreAdmin>;

/// Session TTL, long enough for a test.
const TTL_MS: u32 = 30_000;

fn ask(session: u128, seen: u64) -> LeaseRequest {
    LeaseRequest { session, ttl_ms: TTL_MS, acked: seen, ..LeaseRequest::default() }
}

fn say(store: &Store, ask: &LeaseRequest) -> LeaseResponse {
    store.lease(&node(&format!("n{}", ask.session)), ask).unwrap()
}

/// Starts two sessions that know of each other. Returns the position up to which both have seen everything.
fn two(store: &Store) -> u64 {
    let one = say(store, &ask(1, 0));
    assert_eq!((one.is_new_session, one.peers, one.all_seen), (true, 0, u64::MAX));
    let other = say(store, &ask(2, 0));
    assert_eq!((other.is_new_session, other.peers), (true, 1));
    assert!(other.all_seen < other.at, "the first has not heard of the second");
    let one = say(store, &ask(1, one.at));
    assert_eq!((one.is_new_session, one.peers), (false, 1));
    assert!(one.newest > 0);
    let one = say(store, &ask(1, one.at));
    assert_eq!(say(store, &ask(2, other.at)).all_seen, one.at);
    one.at
}

pub fn tells_of_leases_until_all_have_seen_them(store: &Store) {
    let at = two(store);
    done(&**store, make(5, Kind::Regular, ROOT, "f"));
    let taken = say(store, &LeaseRequest { acquire: vec![(7, id(5)), (8, ROOT)], ..ask(1, at) });
    assert!(taken.at > at && taken.events.is_empty(), "{taken:?}");
    assert!(taken.all_seen < taken.at);
    // A repeated request is accepted, since a reply can be lost.
    assert_eq!(say(store, &LeaseRequest { acquire: vec![(7, id(5))], ..ask(1, at) }).at, taken.at);

    let response = say(store, &ask(2, at));
    let mut events = response.events.clone();
    events.sort_by_key(|event| event.lease);
    let who = events[0].session;
    let lease = |lease, object, freed| LeaseEvent { lease, object, session: who, released_at: freed };
    assert_eq!(events, [lease(7, id(5), None), lease(8, ROOT, None)]);
    // Events are sent again until they are acknowledged.
    assert_eq!(say(store, &ask(2, at)).events.len(), 2);
    assert!(say(store, &ask(1, taken.at)).all_seen < taken.at);
    let acks = say(store, &ask(1, taken.at)).acks;
    assert_eq!(say(store, &ask(2, response.at)).events, []);
    let seen = say(store, &ask(1, taken.at));
    assert_eq!(seen.all_seen, taken.at);
    assert!(seen.acks > acks);

    // A third session gets the existing leases.
    assert_eq!(say(store, &ask(3, 0)).events.len(), 2);
    say(store, &LeaseRequest { release: vec![(7, Seq(1))], ..ask(1, taken.at) });
    assert_eq!(say(store, &ask(2, response.at)).events, [lease(7, id(5), Some(Seq(1)))]);
    // Somebody else's are left alone.
    let free = LeaseRequest { release: vec![(8, Seq(1))], ..ask(2, response.at) };
    assert!(!say(store, &free).events.iter().any(|event| event.lease == 8));
}

pub fn ends_leases_with_their_session(store: &Store) {
    let at = two(store);
    let short = LeaseRequest { ttl_ms: 50, acquire: vec![(7, id(5))], ..ask(1, at) };
    say(store, &short);
    let response = say(store, &ask(2, at));
    assert_eq!(response.events.len(), 1);
    let until = Instant::now() + Duration::from_secs(30);
    let freed = loop {
        let now = say(store, &ask(2, response.at));
        if now.peers == 0 {
            break now;
        }
        assert!(Instant::now() < until, "it lives for ever");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(freed.events[0].released_at, Some(Seq(0)));
    assert_eq!(freed.all_seen, u64::MAX, "who is gone is waited for by nobody");
    // It returns as a new session without leases.
    assert!(say(store, &ask(1, response.at)).is_new_session);
    // A session that ends explicitly is removed at once.
    say(store, &LeaseRequest { ends_session: true, ..ask(1, 0) });
    assert_eq!(say(store, &ask(2, response.at)).peers, 0);
}

pub fn wakes_who_waits_for_leases(store: &Store) {
    let at = two(store);
    assert!(!store.wait_lease(at, None, Duration::from_millis(20)).unwrap());
    let (other, begun) = (store.clone(), Instant::now());
    let waits = std::thread::spawn(move || other.wait_lease(at, None, Duration::from_secs(30)).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    let response = say(store, &LeaseRequest { acquire: vec![(7, id(5))], ..ask(1, at) });
    assert!(waits.join().unwrap());
    let (other, acks) = (store.clone(), response.acks);
    let waits = std::thread::spawn(move || {
        other.wait_lease(response.at, Some(acks), Duration::from_secs(30)).unwrap()
    });
    std::thread::sleep(Duration::from_millis(100));
    say(store, &ask(2, response.at));
    assert!(waits.join().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// Sends a request to a lease table at a time in seconds.
fn at_time(board: &mut LeaseTable, node: &str, ask: &LeaseRequest, seconds: i64) -> Option<LeaseResponse> {
    board.exchange(&crate::store::builders::node(node), ask, Time(seconds * 1_000_000_000), Seq(0))
}

#[test]
fn unresponsive_session_expires() {
    let mut board = LeaseTable::default();
    let one = at_time(&mut board, "one", &ask(1, 0), 0).unwrap();
    let idle = at_time(&mut board, "idle", &ask(2, 0), 0).unwrap();
    let slow = at_time(&mut board, "slow", &ask(3, 0), 0).unwrap();
    at_time(&mut board, "idle", &ask(2, slow.at), 1).unwrap();
    let (mut seen, mut slow_seen, mut ended) = (one.at, slow.at, None);
    assert!(idle.is_new_session && slow.is_new_session);
    for second in 2..60 {
        let take = vec![(second as u64, id(5))];
        let response =
            at_time(&mut board, "one", &LeaseRequest { acquire: take, ..ask(1, seen) }, second).unwrap();
        assert!(!response.is_new_session, "it sees all");
        seen = response.at;
        let idle = at_time(&mut board, "idle", &ask(2, slow.at), second);
        // The first time it may start a new session at once.
        ended = ended.or(idle.is_none_or(|idle| idle.is_new_session).then_some(second));
        if second % 5 == 0 {
            // It acknowledges the events of five seconds before: it is slow.
            let response = at_time(&mut board, "slow", &ask(3, slow_seen), second).unwrap();
            assert!(!response.is_new_session, "after {second} s");
            slow_seen = response.at;
        }
    }
    assert!(ended.is_some_and(|ended| (12..20).contains(&ended)), "{ended:?}");
    // Without events no session falls behind.
    let mut board = LeaseTable::default();
    let alone = at_time(&mut board, "one", &ask(1, 0), 0).unwrap();
    for second in 1..60 {
        assert!(!at_time(&mut board, "one", &ask(1, alone.at), second).unwrap().is_new_session);
    }
}

/// A node that never acknowledges, and starts a new session whenever one ended, as any read-only node could.
#[test]
fn repeatedly_unresponsive_node_is_locked_out() {
    // One that sends a request each second, and one that sends one request for each session and is silent then.
    for (life, silent) in [(5000, 1), (30_000, 31)] {
        let mut board = LeaseTable::default();
        let (mut seen, mut session, mut stalled) = (0, 100, 0);
        for second in 0..3600_i64 {
            if second % silent == 0 {
                session += u128::from(silent > 1);
                let idle = LeaseRequest { ttl_ms: life, ..ask(session, 0) };
                drop(at_time(&mut board, "idle", &idle, second));
            }
            let take = vec![(second.cast_unsigned() + 1, id(5))];
            let response =
                at_time(&mut board, "one", &LeaseRequest { acquire: take, ..ask(1, seen) }, second).unwrap();
            seen = response.at;
            stalled += u32::from(response.all_seen < seen);
        }
        assert!(stalled < 150, "of an hour {stalled} s were spent waiting");
    }
}

#[test]
fn a_node_has_few_sessions_and_none_lives_long_in_silence() {
    let mut board = LeaseTable::default();
    let long = |session| LeaseRequest { ttl_ms: u32::MAX, ..ask(session, 0) };
    for session in 0..8 {
        at_time(&mut board, "one", &long(session), 0).unwrap();
    }
    assert_eq!(at_time(&mut board, "one", &long(8), 1), None);
    assert_eq!(at_time(&mut board, "other", &long(9), 1).unwrap().peers, 8);
    let response = at_time(&mut board, "one", &long(8), 31).unwrap();
    assert!(response.is_new_session && response.peers <= 1, "{response:?}");
    let many: Vec<_> = (0..2049).map(|lease| (lease, id(5))).collect();
    assert_eq!(at_time(&mut board, "one", &LeaseRequest { acquire: many, ..ask(8, 0) }, 31), None);
    let many = (0..2049).map(|lease| (lease, Seq(0))).collect();
    assert_eq!(at_time(&mut board, "one", &LeaseRequest { release: many, ..ask(8, 0) }, 31), None);
}
