//! What changes while the kernel is about to hear of it.

mod common;

use std::thread;
use std::time::Duration;

use common::{Plan, eventually, run, timed};
use shunt_fuse::FileType;

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
