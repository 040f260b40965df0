//! Tests of changes that race with the reply that introduces a node or name to the kernel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use shunt_fuse::{Caches, Completion, FileType, NodeId, Opcode};

use crate::common::{Fixture, Plan, eventually, run, timed};

/// The node is invalidated before the kernel knows it: the reply that arrives afterwards is outdated, with an infinite cache
/// time.
#[test]
fn node_invalidated_during_its_reply_is_not_cached() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"");
        let fs = fixture.fs.clone();
        fixture.caches().set_is_known(move |node| fs.lookups(node) > 0);
        let caches = fixture.caches().clone();
        fixture.fs.after_lookup(move |fs, node| {
            fs.tree.lock().get(node).unwrap().attributes.mode = FileType::Regular.mode() | 0o600;
            // Not requested by this handler, whose notifications are deferred until it has replied.
            let caches = caches.clone();
            thread::spawn(move || caches.invalidate_node(node, None));
            thread::sleep(Duration::from_millis(50));
        });
        // Not by statx, for which the server would get another request.
        let mode = || rustix::fs::stat(fixture.path("x")).unwrap().st_mode & 0o777;
        mode();
        eventually("the change is seen", || mode() == 0o600);
    });
}

const ROOT: NodeId = NodeId::ROOT;

/// Replaces an expired name's file while the name is being revalidated: `notify` is requested and sent between the server's lookup
/// and its reply. Returns the inode that the name refers to afterwards.
fn flipped_while_confirmed(fixture: &Fixture, notify: fn(&Caches) -> Completion) -> u64 {
    fixture.fs.add_file("x", b"");
    fixture.path("x").metadata().unwrap();
    fixture.caches().expire_entry(ROOT, b"x").wait().unwrap();
    let (caches, flipped) = (fixture.caches().clone(), AtomicBool::new(false));
    fixture.fs.after_lookup(move |fs, _| {
        if flipped.swap(true, Ordering::Relaxed) {
            return;
        }
        fs.remove(ROOT, "x");
        fs.add_file("x", b"new");
        // Not requested by this handler, whose notifications are deferred until it has replied.
        let caches = caches.clone();
        thread::spawn(move || notify(&caches).wait()).join().unwrap().unwrap();
    });
    let (asked, _) = fixture.during(Opcode::Lookup, || inode(fixture));
    assert_eq!(asked, 1, "the name was confirmed by the server");
    fixture.fs.tree.lock().child(ROOT, b"x").unwrap().0
}

fn inode(fixture: &Fixture) -> u64 {
    rustix::fs::stat(fixture.path("x")).unwrap().st_ino
}

/// Expired before the kernel processed the reply that revalidates the old name: without a repetition the name would be cached
/// forever.
#[test]
fn a_name_that_is_expired_while_it_is_confirmed_is_not_believed() {
    run(Plan::passthrough(), |fixture| {
        let new = flipped_while_confirmed(fixture, |caches| caches.expire_entry(ROOT, b"x"));
        eventually("the change is seen", || inode(fixture) == new);
        // The repetitions end: the last one is a second after the first.
        eventually("no more requests arrive", || {
            let (asked, ()) = fixture.during(Opcode::Lookup, || {
                (0..10).for_each(|_| {
                    thread::sleep(Duration::from_millis(100));
                    assert_eq!(inode(fixture), new);
                });
            });
            asked == 0
        });
    });
}

/// A dropped name cannot be revalidated: no lookup returns the old inode.
#[test]
fn a_name_that_is_dropped_while_it_is_confirmed_is_not_believed() {
    run(Plan::passthrough(), |fixture| {
        let new = flipped_while_confirmed(fixture, |caches| caches.invalidate_entry(ROOT, b"x"));
        assert_eq!(inode(fixture), new);
    });
}

/// The kernel will not receive a node that the server itself has forgotten.
#[test]
fn invalidation_of_an_unknown_node_does_not_wait() {
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", b"");
        let fs = fixture.fs.clone();
        fixture.caches().set_is_known(move |node| fs.lookups(node) > 0);
        let (took, result) = timed(|| fixture.caches().invalidate_node(node, None).wait());
        assert_eq!(result, Ok(()));
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}

/// A wait for a node's notifications ends only after everything that was requested for the node before.
#[test]
fn settled_waits_for_all_earlier_notifications() {
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", b"");
        fixture.path("x").metadata().unwrap();
        let caches = fixture.caches();
        let mut waited = 0;
        for _ in 0..50 {
            let completions: Vec<_> =
                (0..500).map(|n| caches.invalidate_node(node, Some(n..n + 1))).collect();
            if let Some(settled) = caches.settled(node) {
                waited += usize::from(!completions.iter().all(|completion| completion.is_done()));
                assert_eq!(settled.wait(), Ok(()));
            }
            assert!(completions.iter().all(|completion| completion.is_done()));
        }
        assert!(waited > 0, "no request waited, so the test proves nothing");
        eventually("nothing waits", || caches.settled(node).is_none());
    });
}
