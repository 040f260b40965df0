//! A database that becomes unreachable and returns.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shunt_volume::id::Seq;
use shunt_volume::object::Kind;
use shunt_volume::store::{MetaStore, PostgresStore, StoreError};

use crate::store::builders::*;
use crate::store::engines::server;

/// Proxy between the store and its server.
#[derive(Default)]
struct Line {
    /// Forwards nothing, and closes open connections.
    is_cut: AtomicBool,
    /// Closes the next connection that commits, after the server has committed and before the reply is forwarded.
    loses_an_answer: AtomicBool,
}

impl Line {
    /// Starts the proxy. Returns its port.
    fn lay(self: &Arc<Self>, server: u16) -> u16 {
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = here.local_addr().unwrap().port();
        let line = self.clone();
        std::thread::spawn(move || {
            for near in here.incoming().flatten() {
                if line.is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let far = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let lost = Arc::new(AtomicBool::new(false));
                line.clone().carry(near.try_clone().unwrap(), far.try_clone().unwrap(), lost.clone());
                line.clone().carry_back(far, near, lost);
            }
        });
        port
    }

    fn carry_back(self: Arc<Self>, far: TcpStream, near: TcpStream, lost: Arc<AtomicBool>) {
        self.go(far, near, move |_, _| !lost.load(Ordering::SeqCst));
    }

    fn carry(self: Arc<Self>, near: TcpStream, far: TcpStream, lost: Arc<AtomicBool>) {
        self.go(near, far, move |line, bytes| {
            let commits = bytes.windows(7).any(|window| window == b"COMMIT\0");
            if commits && line.loses_an_answer.swap(false, Ordering::SeqCst) {
                lost.store(true, Ordering::SeqCst);
            }
            true
        });
    }

    /// Forwards data until one side ends, the line is cut, or `passes` returns false.
    fn go(
        self: Arc<Self>,
        mut from: TcpStream,
        mut to: TcpStream,
        passes: impl Fn(&Self, &[u8]) -> bool + Send + 'static,
    ) {
        std::thread::spawn(move || {
            from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let mut bytes = [0; 65_536];
            loop {
                let count = match from.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(_) if !self.is_cut.load(Ordering::SeqCst) => continue,
                    Err(_) => break,
                };
                let cut = self.is_cut.load(Ordering::SeqCst);
                if cut || !passes(&self, &bytes[..count]) || to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
}

fn volume() -> Option<(Arc<Line>, PostgresStore)> {
    let Some(server) = server() else {
        shunt_test_support::skip::skip("PostgreSQL is not installed (run tests/setup)");
        return None;
    };
    let name = format!("v{:016x}", rand::random::<u64>()).parse().unwrap();
    PostgresStore::create(&server.address(), &name, &object(1, Kind::Directory), b"").unwrap();
    let line = Arc::new(Line::default());
    let port = line.lay(server.port());
    let store =
        PostgresStore::open(&format!("postgres://postgres@127.0.0.1:{port}/postgres"), &name).unwrap();
    Some((line, store))
}

#[test]
fn a_database_out_of_reach_is_told_at_once_and_found_again() {
    let Some((line, store)) = volume() else { return };
    done(&store, make(2, Kind::Regular, ROOT, "a"));
    line.is_cut.store(true, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    let item = [make(3, Kind::Regular, ROOT, "b")];
    for _ in 0..3 {
        assert!(matches!(store.head(), Err(StoreError::Unreachable(_))));
        let answer = store.commit(&node("one"), 5, &item);
        assert!(matches!(answer, Err(StoreError::Unreachable(_))), "{answer:?}");
        let waits = store.wait(Seq(1), Duration::from_secs(60));
        assert!(matches!(waits, Err(StoreError::Unreachable(_))), "{waits:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    line.is_cut.store(false, Ordering::SeqCst);
    assert_eq!(store.commit(&node("one"), 5, &item).unwrap(), [Ok(Seq(2))]);
    assert_eq!(store.head().unwrap(), Seq(2));
}

#[test]
fn a_lost_answer_is_given_again_and_nothing_is_done_twice() {
    let Some((line, store)) = volume() else { return };
    for n in 0..5u128 {
        line.loses_an_answer.store(true, Ordering::SeqCst);
        let item = [make(10 + n, Kind::Regular, ROOT, &format!("f{n}"))];
        let answer = match store.commit(&node("one"), n, &item) {
            Ok(answer) => answer,
            Err(StoreError::Unreachable(_)) => store.commit(&node("one"), n, &item).unwrap(),
            Err(error) => panic!("{error}"),
        };
        assert!(!line.loses_an_answer.load(Ordering::SeqCst), "an answer was lost");
        assert_eq!(answer, [Ok(Seq(n as u64 + 1))]);
    }
    assert_eq!(store.log_since(Seq(0), 100).unwrap().len(), 5);
}

#[test]
fn waiting_caller_is_notified_of_a_commit_soon() {
    let Some((_, store)) = volume() else { return };
    let store = Arc::new(store);
    let mut waited = Vec::new();
    for n in 0..9u128 {
        let waiter = store.clone();
        let waiting = std::thread::spawn(move || {
            assert!(waiter.wait(Seq(n as u64), Duration::from_secs(20)).unwrap());
            Instant::now()
        });
        std::thread::sleep(Duration::from_millis(100));
        done(&*store, make(10 + n, Kind::Regular, ROOT, &format!("f{n}")));
        let committed = Instant::now();
        waited.push(waiting.join().unwrap().saturating_duration_since(committed));
    }
    waited.sort();
    assert!(waited[4] < Duration::from_millis(500), "not by the look once a second: {waited:?}");
}
