//! What changes while the kernel is about to hear of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{Plan, Stage, eventually, run, timed};
use shunt_fuse::{Caches, Completion, FileType, NodeId, Opcode};

/// The kernel is told that it changed before it knows it: what it hears then is old, and good for ever.
#[test]
fn what_changes_while_it_is_told_of_is_not_believed() {
    run(Plan::passthrough(), |stage| {
        stage.fs.add_file("x", b"");
        let fs = stage.fs.clone();
        stage.caches().told(move |node| fs.lookups(node) > 0);
        let caches = stage.caches().clone();
        stage.fs.after_lookup(move |fs, node| {
            fs.tree.lock().get(node).unwrap().attributes.mode = FileType::Regular.mode() | 0o600;
            // Not asked for by this handler: those wait until it has answered.
            let caches = caches.clone();
            thread::spawn(move || caches.invalidate_node(node, None));
            thread::sleep(Duration::from_millis(50));
        });
        // Not by statx, for which this server would be asked once more.
        let mode = || rustix::fs::stat(stage.path("x")).unwrap().st_mode & 0o777;
        mode();
        eventually("the change is seen", || mode() == 0o600);
    });
}

const ROOT: NodeId = NodeId::ROOT;

/// A name that the kernel doubts becomes another file's while it is confirmed: `tell` is asked for, and the kernel told, between
/// what the server read and its answer. Gives the inode that the name leads to from then on.
fn flipped_while_confirmed(stage: &Stage, tell: fn(&Caches) -> Completion) -> u64 {
    stage.fs.add_file("x", b"");
    stage.path("x").metadata().unwrap();
    stage.caches().expire_entry(ROOT, b"x").wait().unwrap();
    let (caches, flipped) = (stage.caches().clone(), AtomicBool::new(false));
    stage.fs.after_lookup(move |fs, _| {
        if flipped.swap(true, Ordering::Relaxed) {
            return;
        }
        fs.remove(ROOT, "x");
        fs.add_file("x", b"new");
        // Not asked for by this handler: those wait until it has answered.
        let caches = caches.clone();
        thread::spawn(move || tell(&caches).wait()).join().unwrap().unwrap();
    });
    let (asked, _) = stage.during(Opcode::Lookup, || inode(stage));
    assert_eq!(asked, 1, "the name was confirmed by the server");
    stage.fs.tree.lock().child(ROOT, b"x").unwrap().0
}

fn inode(stage: &Stage) -> u64 {
    rustix::fs::stat(stage.path("x")).unwrap().st_ino
}

/// Expired before the kernel took in that it is as it was: without another time it would be believed for ever.
#[test]
fn a_name_that_is_expired_while_it_is_confirmed_is_not_believed() {
    run(Plan::passthrough(), |stage| {
        let new = flipped_while_confirmed(stage, |caches| caches.expire_entry(ROOT, b"x"));
        eventually("the change is seen", || inode(stage) == new);
        // Which does not go on for ever: the last time is a second after the first.
        eventually("nothing is asked any more", || {
            let (asked, ()) = stage.during(Opcode::Lookup, || {
                (0..10).for_each(|_| {
                    thread::sleep(Duration::from_millis(100));
                    assert_eq!(inode(stage), new);
                });
            });
            asked == 0
        });
    });
}

/// Dropped, it is not there to be confirmed: not one lookup shows what was.
#[test]
fn a_name_that_is_dropped_while_it_is_confirmed_is_not_believed() {
    run(Plan::passthrough(), |stage| {
        let new = flipped_while_confirmed(stage, |caches| caches.invalidate_entry(ROOT, b"x"));
        assert_eq!(inode(stage), new);
    });
}

/// Of what the server itself does not know any more, the kernel will not hear.
#[test]
fn what_the_kernel_was_not_told_of_is_not_waited_for() {
    run(Plan::passthrough(), |stage| {
        let node = stage.fs.add_file("x", b"");
        let fs = stage.fs.clone();
        stage.caches().told(move |node| fs.lookups(node) > 0);
        let (took, told) = timed(|| stage.caches().invalidate_node(node, None).wait());
        assert_eq!(told, Ok(()));
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}

/// Who waits for what a node is told waits for all that was asked for before, however much more is asked for beside.
#[test]
fn what_waits_for_a_node_is_waited_for() {
    run(Plan::passthrough(), |stage| {
        let node = stage.fs.add_file("x", b"");
        stage.path("x").metadata().unwrap();
        let caches = stage.caches();
        let mut waited = 0;
        for _ in 0..50 {
            let told: Vec<_> = (0..500).map(|n| caches.invalidate_node(node, Some(n..n + 1))).collect();
            if let Some(settled) = caches.settled(node) {
                waited += usize::from(!told.iter().all(|told| told.is_done()));
                assert_eq!(settled.wait(), Ok(()));
            }
            assert!(told.iter().all(|told| told.is_done()));
        }
        assert!(waited > 0, "nothing waited, so nothing was shown");
        eventually("nothing waits", || caches.settled(node).is_none());
    });
}
