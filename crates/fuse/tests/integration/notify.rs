//! Tests of the effect of each notification on a real mount.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{Uid, set_thread_res_uid};
use shunt_fuse::{Caching, Capabilities, Config, FileType, NodeId, Opcode, Profile};

use crate::common;
use crate::common::sys::Mapping;
use crate::common::{
    Fixture, Gate, OpenAs, Plan, TestFs, assert_same, eventually, pattern, run, run_with, slowness, sys,
};

const ROOT: NodeId = NodeId::ROOT;

/// Replaces a file by a directory without the kernel's knowledge.
fn flip(fixture: &Fixture, name: &str) {
    fixture.fs.remove(ROOT, name);
    fixture.fs.add_dir(ROOT, name);
}

#[test]
fn invalidate_entry_flips_a_name_from_file_to_directory() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"file");
        assert!(fs::metadata(fixture.path("x")).unwrap().is_file());
        flip(fixture, "x");
        assert!(fs::metadata(fixture.path("x")).unwrap().is_file(), "the cached attributes do not expire");
        fixture.caches().invalidate_entry(ROOT, b"x").wait().unwrap();
        assert!(fs::metadata(fixture.path("x")).unwrap().is_dir());
    });
}

#[test]
fn invalidate_entry_flips_a_name_whose_object_is_held_open() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"file");
        let held = File::open(fixture.path("x")).unwrap();
        flip(fixture, "x");
        fixture.caches().invalidate_entry(ROOT, b"x").wait().unwrap();
        assert!(fs::metadata(fixture.path("x")).unwrap().is_dir());
        let mut bytes = [0; 4];
        held.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"file", "the open file is still the old one");
    });
}

#[test]
fn a_cached_absence_ends_with_its_entry() {
    run(Plan::passthrough(), |fixture| {
        assert!(!fixture.path("x").exists());
        fixture.fs.add_file("x", b"");
        assert!(!fixture.path("x").exists(), "the negative entry does not expire");
        fixture.caches().invalidate_entry(ROOT, b"x").wait().unwrap();
        assert!(fixture.path("x").exists());
    });
}

#[test]
fn expire_entry_flips_a_name_as_well() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"file");
        let _held = File::open(fixture.path("x")).unwrap();
        flip(fixture, "x");
        fixture.caches().expire_entry(ROOT, b"x").wait().unwrap();
        assert!(fs::metadata(fixture.path("x")).unwrap().is_dir());
    });
}

/// Mounts a tmpfs on a directory of the fixture; returns a function that reports whether it is still mounted.
fn submount(fixture: &Fixture, name: &str) -> impl Fn() -> bool {
    let at = fixture.path(name);
    rustix::mount::mount("none", &at, "tmpfs", rustix::mount::MountFlags::empty(), c"size=64k").unwrap();
    let line = format!(" {} ", at.display());
    move || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&line)
}

#[test]
fn expire_entry_keeps_a_mount_below_it_and_invalidate_entry_detaches_it() {
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_dir(ROOT, "graft");
        let there = submount(fixture, "graft");
        fixture.caches().expire_entry(ROOT, b"graft").wait().unwrap();
        assert!(there(), "the mount survives expiry");
        assert_eq!(fixture.during(Opcode::Lookup, || fs::metadata(fixture.path("graft")).unwrap()).0, 1);
        assert!(there(), "the mount survives the lookup after expiry");
        fixture.caches().invalidate_entry(ROOT, b"graft").wait().unwrap();
        assert!(!there(), "invalidation detaches the mount");
    });
}

/// Returns the events of a watch.
fn events(watch: &rustix::fd::OwnedFd) -> rustix::fs::inotify::ReadFlags {
    use rustix::fs::inotify;
    let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    let mut seen = inotify::ReadFlags::empty();
    while let Ok(event) = reader.next() {
        seen |= event.events();
    }
    seen
}

#[test]
fn delete_entry_tells_watchers_of_the_object_and_drops_the_name() {
    use rustix::fs::inotify;
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", b"file");
        fs::metadata(fixture.path("x")).unwrap();
        let watch = || inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        let (object, directory) = (watch(), watch());
        inotify::add_watch(&object, fixture.path("x"), inotify::WatchFlags::ALL_EVENTS).unwrap();
        inotify::add_watch(&directory, fixture.root(), inotify::WatchFlags::DELETE).unwrap();
        fixture.fs.remove(ROOT, "x");
        // A name that refers to another child is not deleted.
        fixture.caches().delete_entry(ROOT, ROOT, b"x").wait().unwrap();
        assert!(!events(&object).contains(inotify::ReadFlags::DELETE_SELF));
        fixture.fs.tree.lock().get(ROOT).unwrap().names.insert(b"x".to_vec(), node);
        fs::metadata(fixture.path("x")).unwrap();
        fixture.fs.remove(ROOT, "x");
        fixture.caches().delete_entry(ROOT, node, b"x").wait().unwrap();
        assert!(events(&object).contains(inotify::ReadFlags::DELETE_SELF));
        // Since Linux 5.3 the kernel does not notify watchers of the directory here.
        assert!(!events(&directory).contains(inotify::ReadFlags::DELETE));
        assert!(!fixture.path("x").exists());
    });
}

#[test]
fn invalidate_node_without_a_range_drops_attributes_only() {
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", pattern(16384, 1));
        let file = File::open(fixture.path("x")).unwrap();
        let mut bytes = vec![0; 16384];
        file.read_exact_at(&mut bytes, 0).unwrap();
        // Reading invalidated the access time.
        fs::metadata(fixture.path("x")).unwrap();
        fixture.fs.tree.lock().get(node).unwrap().attributes.mode = FileType::Regular.mode() | 0o600;
        assert_eq!(fs::metadata(fixture.path("x")).unwrap().mode() & 0o777, 0o644, "cached");
        fixture.caches().invalidate_node(node, None).wait().unwrap();
        assert_eq!(fs::metadata(fixture.path("x")).unwrap().mode() & 0o777, 0o600);
        let (reads, result) = fixture.during(Opcode::Read, || file.read_exact_at(&mut bytes, 0));
        result.unwrap();
        assert_eq!(reads, 0, "the pages stay cached");
        assert_eq!(sys::cached_pages(&file), 4);
    });
}

#[test]
fn invalidate_node_with_a_range_drops_its_pages() {
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", pattern(65536, 1));
        let file = File::open(fixture.path("x")).unwrap();
        let mut bytes = vec![0; 65536];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let map = Mapping::new(
            &fs::OpenOptions::new().read(true).write(true).open(fixture.path("x")).unwrap(),
            65536,
        );
        let map = map.unwrap();
        assert_eq!(map.cached_pages(), 16);
        let fresh = pattern(65536, 2);
        fixture.fs.set_content(node, fresh.clone());
        fixture.caches().invalidate_node(node, Some(4096..12288)).wait().unwrap();
        assert_eq!(map.cached_pages(), 14);
        file.read_exact_at(&mut bytes[..8192], 4096).unwrap();
        assert_same(&bytes[..8192], &fresh[4096..12288], "the range");
        file.read_exact_at(&mut bytes[..4096], 0).unwrap();
        assert_ne!(bytes[..4096], fresh[..4096], "the page before the range stays cached");
        fixture.caches().invalidate_node(node, Some(16384..u64::MAX)).wait().unwrap();
        assert_eq!(map.cached_pages(), 4, "an open end reaches to the end of the file");
        fixture.caches().invalidate_node_whole(node).wait().unwrap();
        assert_eq!(map.cached_pages(), 0);
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_same(&bytes, &fresh, "the whole");
    });
}

#[test]
fn invalidate_node_writes_pages_dirtied_through_a_mapping_first() {
    for plan in [Plan::passthrough(), Plan::writeback()] {
        run(plan, |fixture| {
            let node = fixture.fs.add_file("x", pattern(8192, 1));
            let file = fs::OpenOptions::new().read(true).write(true).open(fixture.path("x")).unwrap();
            let map = Mapping::new(&file, 8192).unwrap();
            map.set(5000, map.get(5000).wrapping_add(1));
            let changed = map.get(5000);
            assert_ne!(fixture.fs.content(node)[5000], changed, "still dirty");
            fixture.caches().invalidate_node_whole(node).wait().unwrap();
            // Before 6.16 the notification does not wait for a write-back that had already begun: readers wait for it instead.
            eventually("written back", || fixture.fs.content(node)[5000] == changed);
            assert_eq!(map.get(5000), changed, "and read again");
        });
    }
}

#[test]
fn invalidate_all_expires_every_name() {
    run(Plan::passthrough(), |fixture| {
        for n in 0..50 {
            fixture.fs.add_file(&format!("f{n}"), b"");
        }
        let all = |kind: fn(&fs::Metadata) -> bool| {
            (0..50).filter(|n| kind(&fs::metadata(fixture.path(&format!("f{n}"))).unwrap())).count()
        };
        assert_eq!(all(fs::Metadata::is_file), 50);
        (0..50).for_each(|n| flip(fixture, &format!("f{n}")));
        let result = fixture.caches().invalidate_all().wait();
        if fixture.handle.negotiated().minor >= 44 {
            result.unwrap();
            assert_eq!(all(fs::Metadata::is_dir), 50);
        } else {
            assert_eq!(result, Err(Errno::NOSYS));
            assert_eq!(all(fs::Metadata::is_file), 50);
        }
    });
}

#[test]
fn stored_bytes_are_read_without_a_request() {
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", vec![0; 8192]);
        let file = File::open(fixture.path("x")).unwrap();
        let bytes = pattern(8192, 3);
        fixture.caches().store(node, 0, bytes.clone()).wait().unwrap();
        let mut read = vec![0; 8192];
        let (reads, result) = fixture.during(Opcode::Read, || file.read_exact_at(&mut read, 0));
        result.unwrap();
        assert_eq!(reads, 0);
        assert_same(&read, &bytes, "what was read");
    });
}

#[test]
fn storing_beyond_the_end_extends_the_file() {
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", b"");
        let file = File::open(fixture.path("x")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        fixture.fs.set_content(node, vec![0; 4096]);
        let bytes = pattern(4096, 3);
        fixture.caches().store(node, 0, bytes.clone()).wait().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4096);
        let mut read = vec![0; 4096];
        let (reads, result) = fixture.during(Opcode::Read, || file.read_exact_at(&mut read, 0));
        result.unwrap();
        assert_eq!(reads, 0);
        assert_same(&read, &bytes, "what was read");
    });
}

#[test]
fn notifications_about_unknown_nodes_are_done_or_enoent() {
    run(Plan::passthrough(), |fixture| {
        let unknown_node = NodeId(987_654);
        fixture.caches().invalidate_node_whole(unknown_node).wait().unwrap();
        fixture.caches().invalidate_entry(unknown_node, b"x").wait().unwrap();
        fixture.caches().expire_entry(ROOT, b"never seen").wait().unwrap();
        fixture.caches().delete_entry(ROOT, unknown_node, b"never seen").wait().unwrap();
        assert_eq!(fixture.caches().store(unknown_node, 0, vec![1]).wait(), Err(Errno::NOENT));
        assert_eq!(fixture.caches().retrieve(unknown_node, 0, 4096).wait(), Err(Errno::NOENT));
    });
}

#[test]
fn retrieve_gives_what_is_cached() {
    run(Plan::passthrough(), |fixture| {
        let bytes = pattern(20_000, 4);
        let node = fixture.fs.add_file("x", bytes.clone());
        let file = File::open(fixture.path("x")).unwrap();
        assert_eq!(fixture.caches().retrieve(node, 0, 20_000).wait().unwrap(), b"", "nothing cached yet");
        file.read_exact_at(&mut vec![0; 20_000], 0).unwrap();
        assert_same(&fixture.caches().retrieve(node, 0, 20_000).wait().unwrap(), &bytes, "retrieved");
        assert_same(&fixture.caches().retrieve(node, 100, 50).wait().unwrap(), &bytes[100..150], "a part");
    });
}

#[test]
fn retrieve_gives_dirty_bytes_of_the_write_back_cache() {
    run(Plan::writeback(), |fixture| {
        let node = fixture.fs.add_file("x", vec![0; 4096]);
        let file = fs::OpenOptions::new().write(true).open(fixture.path("x")).unwrap();
        let bytes = pattern(4096, 5);
        file.write_all_at(&bytes, 0).unwrap();
        assert_same(&fixture.caches().retrieve(node, 0, 4096).wait().unwrap(), &bytes, "retrieved");
        assert_eq!(fixture.fs.content(node), vec![0; 4096], "not written back yet");
    });
}

#[test]
fn prune_makes_the_kernel_forget_unused_inodes() {
    run(Plan::passthrough(), |fixture| {
        let nodes: Vec<NodeId> = (0..300).map(|n| fixture.fs.add_file(&format!("f{n}"), b"")).collect();
        (0..300).for_each(|n| assert!(fixture.path(&format!("f{n}")).exists()));
        let used = File::open(fixture.path("f7")).unwrap();
        assert!(nodes.iter().all(|node| fixture.fs.lookups(*node) == 1));
        let result = fixture.caches().prune(&nodes).wait();
        if fixture.handle.negotiated().minor >= 45 {
            result.unwrap();
            let held = || nodes.iter().filter(|node| fixture.fs.lookups(**node) > 0).count();
            eventually("FORGET of all but the open file", || held() == 1);
            assert_eq!(fixture.fs.lookups(nodes[7]), 1);
        } else {
            assert_eq!(result, Err(Errno::INVAL));
        }
        drop(used);
    });
}

#[test]
fn poll_ready_wakes_those_who_poll() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"");
        let file = File::open(fixture.path("x")).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                eventually("a poll with notification", || !fixture.fs.polled.lock().is_empty());
                std::thread::sleep(Duration::from_millis(50));
                *fixture.fs.poll_events.lock() = PollFlags::IN.bits().into();
                let waiting = fixture.fs.polled.lock()[0];
                fixture.caches().poll_ready(waiting).wait().unwrap();
            });
            let mut fds = [PollFd::new(&file, PollFlags::IN)];
            let long = Timespec { tv_sec: 30, tv_nsec: 0 };
            let (time, ready) = common::timed(|| poll(&mut fds, Some(&long)).unwrap());
            assert_eq!(ready, 1);
            assert!(fds[0].revents().contains(PollFlags::IN));
            assert!(time >= Duration::from_millis(40) && time < Duration::from_secs(29), "{time:?}");
        });
    });
}

#[test]
fn resend_brings_unanswered_requests_again() {
    if common::over_rings() {
        // The kernel resends only requests that were read from /dev/fuse.
        return;
    }
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"bytes");
        let file = File::open(fixture.path("x")).unwrap();
        let gate = Gate::before(&fixture.fs, Opcode::Read);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut bytes = [0; 5];
                file.read_exact_at(&mut bytes, 0).unwrap();
                bytes
            });
            eventually("the read waits", || gate.arrived() == 1);
            fixture.caches().resend().wait().unwrap();
            eventually("the read was resent", || gate.arrived() == 2);
            gate.open();
            assert_eq!(&reader.join().unwrap(), b"bytes");
        });
    });
}

#[test]
fn write_out_sends_dirty_pages_and_keeps_them() {
    run(Plan::writeback(), |fixture| {
        let node = fixture.fs.add_file("x", vec![0; 65536]);
        let file = fs::OpenOptions::new().read(true).write(true).open(fixture.path("x")).unwrap();
        let bytes = pattern(65536, 6);
        file.write_all_at(&bytes, 0).unwrap();
        // In the lab, which is slow and short of memory, the kernel may start write-back by itself.
        assert!(fixture.count(Opcode::Write) == 0 || slowness() > 1, "the kernel delays writes");
        fixture.caches().write_out(node, 0..u64::MAX).wait().unwrap();
        assert!(fixture.count(Opcode::Write) > 0);
        assert_same(&fixture.fs.content(node), &bytes, "the server has the data");
        assert_eq!(sys::cached_pages(&file), 16);
        let mut read = vec![0; 65536];
        let (reads, result) = fixture.during(Opcode::Read, || file.read_exact_at(&mut read, 0));
        result.unwrap();
        assert_eq!(reads, 0);
        assert_same(&read, &bytes, "what was read");
    });
}

#[test]
fn write_out_reaches_pages_dirtied_through_a_mapping() {
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", vec![0; 8192]);
        let file = fs::OpenOptions::new().read(true).write(true).open(fixture.path("x")).unwrap();
        let map = Mapping::new(&file, 8192).unwrap();
        map.set(4100, 77);
        fixture.caches().write_out(node, 4096..8192).wait().unwrap();
        assert_eq!(fixture.fs.content(node)[4100], 77);
        assert!(map.cached_pages() > 0);
    });
}

#[test]
fn write_out_leaves_the_mount_free_to_unmount_and_knows_an_unknown_node() {
    run(Plan::writeback(), |fixture| {
        assert_eq!(fixture.caches().write_out(NodeId(987_654), 0..1).wait(), Err(Errno::STALE));
        let node = fixture.fs.add_file("x", b"");
        let mut file = File::create(fixture.path("x")).unwrap();
        file.write_all(b"bytes").unwrap();
        fixture.caches().write_out(node, 0..u64::MAX).wait().unwrap();
        drop(file);
        // An ordinary unmount would fail if the session kept a descriptor of the mount; `run` tests that.
    });
}

#[test]
fn an_uncached_file_is_read_from_the_server_each_time_and_cached_again_after() {
    let fs = TestFs::new();
    let node = fs.add_file("x", pattern(8192, 1));
    fs.set_open(node, OpenAs::KeepCache);
    run_with(Plan::passthrough(), fs, |fixture| {
        let read = |file: &File| {
            let mut bytes = vec![0; 8192];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let old = File::open(fixture.path("x")).unwrap();
        read(&old);
        assert_eq!(fixture.during(Opcode::Read, || read(&old)).0, 0, "the first reads are cached");

        fixture.caches().set_caching(node, Caching::Uncached).wait().unwrap();
        for seed in 2..5 {
            fixture.fs.set_content(node, pattern(8192, seed));
            let new = File::open(fixture.path("x")).unwrap();
            assert_same(&read(&new), &pattern(8192, seed), "a new open is direct");
            assert_same(&read(&old), &pattern(8192, seed), "the old descriptor reads no stale data");
            // The pages read through the old descriptor are dropped after the reply.
            eventually("pages of the old descriptor are dropped", || sys::cached_pages(&old) == 0);
        }

        fixture.caches().set_caching(node, Caching::Cached).wait().unwrap();
        let new = File::open(fixture.path("x")).unwrap();
        read(&new);
        assert_eq!(fixture.during(Opcode::Read, || read(&new)).0, 0, "reads are cached again");
        assert_eq!(fixture.during(Opcode::Read, || read(&old)).0, 0);
    });
}

#[test]
fn set_caching_writes_dirty_pages_first() {
    run(Plan::writeback(), |fixture| {
        let node = fixture.fs.add_file("x", vec![0; 4096]);
        let file = fs::OpenOptions::new().read(true).write(true).open(fixture.path("x")).unwrap();
        file.write_all_at(&pattern(4096, 9), 0).unwrap();
        fixture.caches().set_caching(node, Caching::Uncached).wait().unwrap();
        assert_same(&fixture.fs.content(node), &pattern(4096, 9), "written");
        assert_eq!(sys::cached_pages(&file), 0);
    });
}

#[test]
fn the_write_back_cache_owns_size_and_times_meanwhile() {
    // The trap: an invalidation does not make the kernel use the server's size.
    run(Plan::writeback(), |fixture| {
        let node = fixture.fs.add_file("x", vec![7; 100]);
        assert_eq!(fs::metadata(fixture.path("x")).unwrap().len(), 100);
        fixture.fs.set_content(node, vec![7; 200]);
        fixture.caches().invalidate_node_whole(node).wait().unwrap();
        assert_eq!(fs::metadata(fixture.path("x")).unwrap().len(), 100);
    });
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", vec![7; 100]);
        assert_eq!(fs::metadata(fixture.path("x")).unwrap().len(), 100);
        fixture.fs.set_content(node, vec![7; 200]);
        fixture.caches().invalidate_node_whole(node).wait().unwrap();
        assert_eq!(fs::metadata(fixture.path("x")).unwrap().len(), 200);
    });
}

#[test]
fn without_expire_only_names_are_invalidated_all_the_same() {
    let config = Config::new(Profile::Passthrough).without(Capabilities::HAS_EXPIRE_ONLY);
    run(Plan::of(config), |fixture| {
        fixture.fs.add_file("x", b"");
        fs::metadata(fixture.path("x")).unwrap();
        flip(fixture, "x");
        fixture.caches().expire_entry(ROOT, b"x").wait().unwrap();
        assert!(fs::metadata(fixture.path("x")).unwrap().is_dir());
    });
}

#[test]
fn waiting_for_a_notification_inside_a_handler_is_an_error_and_no_hang() {
    run(Plan::passthrough(), |fixture| {
        let seen = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let results = seen.clone();
        fixture.fs.before_answer(move |request, call| {
            let completion = request.session().caches().invalidate_entry(call.node, &call.name);
            results.lock().push(completion.wait());
        });
        fs::create_dir(fixture.path("d")).unwrap();
        assert_eq!(*seen.lock(), [Err(Errno::DEADLK)]);
        eventually("the name is dropped after the reply", || {
            let (lookups, found) =
                fixture.during(Opcode::Lookup, || fs::metadata(fixture.path("d")).unwrap());
            assert!(found.is_dir());
            lookups == 1
        });
    });
}

#[test]
fn expiring_every_name_detaches_what_is_mounted_below_at_the_next_lookup() {
    // A trap: the kernel treats a name of an older epoch as invalid, not as expired.
    run(Plan::passthrough(), |fixture| {
        if fixture.handle.negotiated().minor < 44 {
            return;
        }
        fixture.fs.add_dir(ROOT, "graft");
        let there = submount(fixture, "graft");
        fixture.caches().invalidate_all().wait().unwrap();
        assert!(there());
        fs::metadata(fixture.path("graft")).unwrap();
        assert!(!there());
    });
}

#[test]
fn a_notification_that_is_stuck_holds_up_no_other_node() {
    run(Plan::writeback(), |fixture| {
        let (stuck, free) = (fixture.fs.add_file("stuck", vec![0; 4096]), fixture.fs.add_file("free", b""));
        let file = fs::OpenOptions::new().write(true).open(fixture.path("stuck")).unwrap();
        fs::metadata(fixture.path("free")).unwrap();
        // Now there is exactly one thread, which waits for work.
        fixture.caches().invalidate_node(free, None).wait().unwrap();
        file.write_all_at(&pattern(4096, 1), 0).unwrap();
        let gate = Gate::before(&fixture.fs, Opcode::Write);
        let first = fixture.caches().invalidate_node_whole(stuck);
        // Most likely requested before that thread runs.
        let second = fixture.caches().invalidate_node(free, None);
        eventually("the write-back waits", || gate.arrived() == 1);
        eventually("the other node is notified", || second.is_done());
        assert!(!first.is_done());
        gate.open();
        first.wait().unwrap();
    });
}

#[test]
fn notifications_of_one_node_keep_their_order() {
    // A queued notification must not absorb an equal one that was requested after a store.
    run(Plan::writeback(), |fixture| {
        let node = fixture.fs.add_file("x", pattern(4096, 1));
        let file = fs::OpenOptions::new().read(true).write(true).open(fixture.path("x")).unwrap();
        // Blocks the queue of this node: the first invalidation waits for the WRITE that it causes.
        let gate = Gate::before(&fixture.fs, Opcode::Write);
        file.write_all_at(&pattern(4096, 2), 0).unwrap();
        let first = fixture.caches().invalidate_node_whole(node);
        eventually("the write-back waits", || gate.arrived() == 1);
        fixture.caches().invalidate_node(node, Some(0..4096));
        fixture.caches().store(node, 0, pattern(4096, 3));
        let last = fixture.caches().invalidate_node(node, Some(0..4096));
        gate.open();
        first.wait().unwrap();
        last.wait().unwrap();
        eventually("all are sent", || fixture.caches().queued() == 0);
        fixture.caches().invalidate_node(node, None).wait().unwrap();
        let mut read = vec![0; 4096];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_same(&read, &pattern(4096, 2), "stored data is dropped again");
    });
}

/// The kernel then drops the root's attributes in the reply: without the permission bits of the mount only root would have
/// access.
#[test]
fn an_answer_that_is_overtaken_keeps_no_user_out_of_the_root() {
    let plan =
        Plan::passthrough().options(|options| options.default_permissions(true).root_permissions(0o755));
    run(plan, |fixture| {
        let gate = Gate::before(&fixture.fs, Opcode::Getattr);
        thread::scope(|scope| {
            let user = scope.spawn(|| {
                let user = Uid::from_raw(65_534);
                set_thread_res_uid(user, user, user).unwrap();
                fs::metadata(fixture.path("x")).unwrap_err().kind()
            });
            eventually("the user's look at the root is asked for", || gate.arrived() == 1);
            fixture.caches().invalidate_node(ROOT, None).wait().unwrap();
            gate.open();
            assert_eq!(user.join().unwrap(), ErrorKind::NotFound);
        });
    });
}
