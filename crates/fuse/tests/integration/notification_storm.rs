//! Tests with hundreds of thousands of notifications while the directories concerned change.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::io::Errno;
use shunt_fuse::{Caches, NodeId, Opcode};

use crate::common;
use crate::common::{
    Gate, OpenAs, Plan, TestFs, assert_same, drained, eventually, pattern, run, run_with, sys,
};

const ROOT: NodeId = NodeId::ROOT;
const NOTIFICATIONS: usize = 100_000;
/// Memory tests run one at a time.
static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// Creates and renames files until stopped; returns the remaining names.
fn churn(dir: &std::path::Path, id: usize, stop: &AtomicBool) -> Vec<String> {
    let mut names = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (old, new) = (format!("t{id}-{n}"), format!("r{id}-{n}"));
        fs::write(dir.join(&old), b"").unwrap();
        fs::rename(dir.join(&old), dir.join(&new)).unwrap();
        names.push(new);
        if names.len() > 200 {
            fs::remove_file(dir.join(names.remove(0))).unwrap();
        }
    }
    names
}

#[test]
fn a_hundred_thousand_notifications_during_creates_and_renames() {
    let _alone = ALONE.lock();
    run(Plan::passthrough().timeout(180), |fixture| {
        let dirs: Vec<NodeId> = (0..2).map(|n| fixture.fs.add_dir(ROOT, &format!("d{n}"))).collect();
        let stop = AtomicBool::new(false);
        let before = sys::resident_kib();
        let largest = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|id| {
                    let dir = fixture.path(&format!("d{}", id % 2));
                    let stop = &stop;
                    scope.spawn(move || churn(&dir, id, stop))
                })
                .collect();
            let senders: Vec<_> = (0..2)
                .map(|sender| {
                    let (dirs, largest) = (&dirs, &largest);
                    scope.spawn(move || {
                        for n in 0..NOTIFICATIONS / 2 {
                            let (dir, id) = (dirs[n % 2], n % 4);
                            let name = format!("{}{id}-{}", ["t", "r"][n / 2 % 2], n / 40);
                            match (n + sender) % 3 {
                                0 => fixture.caches().invalidate_entry(dir, name.as_bytes()),
                                1 => fixture.caches().expire_entry(dir, name.as_bytes()),
                                _ => fixture.caches().invalidate_node(dir, None),
                            };
                            largest.fetch_max(fixture.caches().queued(), Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for sender in senders {
                sender.join().unwrap();
            }
            // The changes continue meanwhile, and are stopped even where this fails.
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drained(fixture)));
            stop.store(true, Ordering::Relaxed);
            ended.unwrap();
            for (id, worker) in workers.into_iter().enumerate() {
                let dir = fixture.path(&format!("d{}", id % 2));
                for name in worker.join().unwrap() {
                    assert!(dir.join(&name).exists(), "{name}");
                    assert!(
                        !dir.join(name.replacen('r', "t", 1)).exists(),
                        "{name} still exists under its old name"
                    );
                }
            }
        });
        assert!(largest.load(Ordering::Relaxed) <= Caches::MAX_QUEUED_NOTIFICATIONS);
        let grown = sys::resident_kib().saturating_sub(before);
        assert!(grown < 64 << 10, "memory grew by {grown} KiB");
        assert!(fixture.count(Opcode::Create) > 0 && fixture.count(Opcode::Rename) > 0);
        for (n, dir) in dirs.iter().enumerate() {
            let mut here: Vec<_> = fs::read_dir(fixture.path(&format!("d{n}")))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_encoded_bytes())
                .collect();
            here.sort();
            let names: Vec<_> = fixture.fs.tree.lock().get(*dir).unwrap().names.keys().cloned().collect();
            assert_eq!(here, names);
        }
    });
}

#[test]
fn a_handler_that_notifies_about_the_directory_it_is_changing() {
    run(Plan::passthrough().timeout(120), |fixture| {
        fixture.fs.before_answer(|request, call| {
            let caches = request.session().caches();
            drop(caches.invalidate_entry(call.node, &call.name));
            drop(caches.expire_entry(call.node, b"other"));
            drop(caches.invalidate_node_whole(call.node));
        });
        std::thread::scope(|scope| {
            for id in 0..4 {
                scope.spawn(move || {
                    for n in 0..500 / common::slowness() {
                        let (dir, new) =
                            (fixture.path(&format!("d{id}-{n}")), fixture.path(&format!("e{id}-{n}")));
                        fs::create_dir(&dir).unwrap();
                        fs::rename(&dir, &new).unwrap();
                        fs::write(&dir, b"").unwrap();
                        fs::remove_file(&dir).unwrap();
                        fs::remove_dir(&new).unwrap();
                    }
                });
            }
        });
        drained(fixture);
        assert_eq!(fs::read_dir(fixture.root()).unwrap().count(), 0);
    });
}

#[test]
fn one_stuck_directory_holds_up_no_other() {
    run(Plan::passthrough(), |fixture| {
        let (stuck, free) = (fixture.fs.add_dir(ROOT, "stuck"), fixture.fs.add_dir(ROOT, "free"));
        fs::metadata(fixture.path("stuck")).unwrap();
        fs::metadata(fixture.path("free")).unwrap();
        // The kernel holds the lock of the directory meanwhile.
        let gate = Gate::before(&fixture.fs, Opcode::Mkdir);
        std::thread::scope(|scope| {
            scope.spawn(|| fs::create_dir(fixture.path("stuck/new")).unwrap());
            eventually("mkdir waits", || gate.arrived() == 1);
            let held = fixture.caches().invalidate_entry(stuck, b"new");
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!held.is_done(), "the kernel holds the directory's lock");
            let name = fixture.path("free/x");
            assert!(!name.exists());
            let (time, result) = common::timed(|| fixture.caches().invalidate_entry(free, b"x").wait());
            result.unwrap();
            assert!(time < shunt_test_support::pace::seconds(1), "{time:?}");
            gate.open();
            held.wait().unwrap();
        });
    });
}

#[test]
fn an_overflow_of_names_loses_none() {
    let _alone = ALONE.lock();
    run(Plan::passthrough().timeout(120), |fixture| {
        let dir = fixture.fs.add_dir(ROOT, "d");
        let names: Vec<String> = (0..20).map(|n| format!("n{n}")).collect();
        for name in &names {
            fixture.fs.add(dir, name, 0o100_644);
            assert!(fs::metadata(fixture.path("d").join(name)).unwrap().is_file());
        }
        // The kernel holds the lock of the directory meanwhile.
        let gate = Gate::before(&fixture.fs, Opcode::Mkdir);
        let before = sys::resident_kib();
        std::thread::scope(|scope| {
            scope.spawn(|| fs::create_dir(fixture.path("d/new")).unwrap());
            eventually("mkdir waits", || gate.arrived() == 1);
            for name in &names {
                fixture.fs.remove(dir, name);
                fixture.fs.add_dir(dir, name);
                fixture.caches().invalidate_entry(dir, name.as_bytes());
            }
            for n in 0..3 * Caches::MAX_QUEUED_NOTIFICATIONS {
                fixture.caches().invalidate_entry(dir, format!("never-seen-{n}").as_bytes());
                if fixture.handle.negotiated().minor >= 44 {
                    assert!(fixture.caches().queued() <= Caches::MAX_QUEUED_NOTIFICATIONS);
                }
            }
            gate.open();
        });
        let grown = sys::resident_kib().saturating_sub(before);
        assert!(grown < 128 << 10, "memory grew by {grown} KiB");
        if fixture.handle.negotiated().minor >= 44 {
            assert!(fixture.handle.notification_overflows() > 0);
        }
        drained(fixture);
        fixture.caches().invalidate_node(dir, None).wait().unwrap();
        for name in &names {
            assert!(fs::metadata(fixture.path("d").join(name)).unwrap().is_dir(), "{name}");
        }
    });
}

#[test]
fn an_overflow_of_ranges_becomes_one_invalidation_of_the_file() {
    let _alone = ALONE.lock();
    let fs = TestFs::new();
    let node = fs.add_file("x", pattern(1 << 20, 1));
    fs.set_open(node, OpenAs::KeepCache);
    run_with(Plan::writeback().timeout(120), fs, |fixture| {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().read(true).write(true).open(fixture.path("x")).unwrap();
        let mut bytes = vec![0; 1 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let gate = Gate::before(&fixture.fs, Opcode::Write);
        file.write_all_at(b"dirty", 0).unwrap();
        // The notifier waits for the write-back of page 0.
        fixture.caches().invalidate_node(node, Some(0..4096));
        eventually("the write-back waits", || gate.arrived() == 1);
        let mut last = None;
        for n in 0..2 * Caches::MAX_QUEUED_NOTIFICATIONS as u64 {
            last = Some(fixture.caches().invalidate_node(node, Some(n..n + 1)));
            assert!(fixture.caches().queued() <= Caches::MAX_QUEUED_NOTIFICATIONS);
        }
        gate.open();
        assert_eq!(last.unwrap().wait(), Ok(()));
        drained(fixture);
        // The ranges covered the first 32 pages; the merged invalidation may cover more, but not less.
        fixture.fs.set_content(node, pattern(1 << 20, 2));
        file.read_exact_at(&mut bytes[..131_072], 0).unwrap();
        assert_same(&bytes[..131_072], &pattern(1 << 20, 2)[..131_072], "read again");
    });
}

#[test]
fn stores_beyond_the_queue_are_refused_not_kept() {
    let _alone = ALONE.lock();
    run(Plan::writeback().timeout(120), |fixture| {
        use std::os::unix::fs::FileExt;
        let node = fixture.fs.add_file("x", vec![0; 4096]);
        let file = fs::OpenOptions::new().read(true).write(true).open(fixture.path("x")).unwrap();
        let gate = Gate::before(&fixture.fs, Opcode::Write);
        file.write_all_at(b"dirty", 0).unwrap();
        fixture.caches().invalidate_node_whole(node);
        eventually("the write-back waits", || gate.arrived() == 1);
        let refused = (0..Caches::MAX_QUEUED_NOTIFICATIONS + 10)
            .map(|n| fixture.caches().store(node, 0, vec![n as u8]))
            .filter(|completion| completion.is_done() && completion.wait() == Err(Errno::NOBUFS))
            .count();
        assert!(refused >= 9, "{refused}");
        assert!(fixture.caches().queued() <= Caches::MAX_QUEUED_NOTIFICATIONS);
        gate.open();
        drained(fixture);
    });
}

#[test]
fn the_end_of_the_mount_ends_every_wait() {
    run(Plan::passthrough(), |fixture| {
        let dir = fixture.fs.add_dir(ROOT, "d");
        fs::metadata(fixture.path("d")).unwrap();
        // The kernel holds the lock of the directory meanwhile.
        let gate = Gate::before(&fixture.fs, Opcode::Mkdir);
        std::thread::scope(|scope| {
            scope.spawn(|| fs::create_dir(fixture.path("d/new")));
            eventually("mkdir waits", || gate.arrived() == 1);
            let waiting: Vec<_> = (0..100)
                .map(|n| fixture.caches().invalidate_entry(dir, format!("n{n}").as_bytes()))
                .collect();
            let retrieve = fixture.caches().retrieve(dir, 0, 10);
            fixture.point.abort().unwrap();
            for completion in waiting {
                let _ = completion.wait();
            }
            drop(retrieve.wait());
        });
        let mounted = fixture.take().unwrap();
        mounted.unmount(shunt_fuse::mount::Unmount::Lazy).unwrap().unwrap();
        assert_eq!(fixture.caches().invalidate_all().wait(), Err(Errno::NOTCONN));
    });
}
