//! Tests of properties specific to FUSE over io_uring. All other tests run over it with `SHUNT_TRANSPORT=uring`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use shunt_fuse::{Capabilities, Expiry, Opcode, Transport};
use shunt_test_support::rings::{SWITCH, SwitchedOff, keep};

use crate::common::fixture::{TestMountDir, unmount};
use crate::common::script::GateHandle;
use crate::common::{Behaviour, Gate, OpenAs, Plan, TestFs, eventually, run, run_with, skip};

/// Maximum number of entries of a queue on a machine with few CPUs.
const MAX_ENTRIES: usize = 64;

/// Returns a configuration for a mount over rings, where this kernel supports them. The tests count the threads of the whole
/// process, so they run one at a time.
fn rings() -> Option<(Plan, MutexGuard<'static, ()>)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _kept = keep();
    let switch = fs::read_to_string(SWITCH);
    if switch.is_err() {
        // The kernel does not support rings.
        eprintln!("SKIP rings: this kernel does not support FUSE over io_uring");
        return None;
    }
    if !switch.is_ok_and(|switch| switch.trim() == "Y") {
        skip("FUSE over io_uring is disabled");
        return None;
    }
    Some((Plan::passthrough().config(|config| config.transport(Transport::Uring)), alone))
}

/// Returns the number of rings of this process.
fn rings_made() -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten().map(|fd| fs::read_link(fd.path()));
    links.flatten().filter(|link| link.as_os_str() == "anon_inode:[io_uring]").count()
}

/// Makes a file with these bytes under direct I/O, so that every read and write is a request.
fn direct_file(bytes: &[u8]) -> TestFs {
    let fs = TestFs::new();
    let node = fs.add_file("x", bytes);
    fs.set_open(node, OpenAs::Direct);
    fs
}

/// Binds this thread to the first CPU, whose queue then gets its requests.
fn on_first_processor() {
    let mut cpus = CpuSet::new();
    cpus.set(0);
    sched_setaffinity(None, &cpus).unwrap();
}

fn ring_threads() -> usize {
    threads().iter().filter(|(name, _)| name.starts_with("shunt-ring")).count()
}

/// Returns the name and `nice` value of every thread of this process.
fn threads() -> Vec<(String, i32)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let thread = |stat: String| {
        let (head, fields) = stat.rsplit_once(") ")?;
        Some((head.split_once('(')?.1.to_owned(), fields.split(' ').nth(16)?.parse().ok()?))
    };
    stats.filter_map(thread).collect()
}

#[test]
fn threads_of_rings_come_first_and_no_others() {
    let Some((plan, _alone)) = rings() else { return };
    let usual = rustix::process::getpriority_process(None).unwrap();
    run_with(plan, direct_file(b"bytes"), |fixture| {
        // A handler that waits and a notification: ring threads may start threads for both.
        let node = fixture.node("x");
        let gate = Gate::before(&fixture.fs, Opcode::Read);
        thread::scope(|scope| {
            let reader = scope.spawn(|| fs::read(fixture.path("x")).unwrap());
            eventually("it waits", || gate.arrived() == 1);
            gate.open();
            assert_eq!(reader.join().unwrap(), b"bytes");
        });
        fixture.caches().invalidate_node(node, None);
        eventually("a thread for each", || {
            let has = |name: &str| threads().iter().any(|(thread, _)| thread.starts_with(name));
            has("shunt-task") && has("shunt-notif")
        });
        for (name, nice) in threads() {
            let expected = if name.starts_with("shunt-ring") { (usual - 10).max(-20) } else { usual };
            assert_eq!(nice, expected, "{name}");
        }
    });
}

#[test]
fn the_transport_is_told() {
    let Some((plan, _alone)) = rings() else { return };
    run(plan, |fixture| {
        let in_use = fixture.handle.transport();
        assert_eq!((in_use.transport, in_use.reason), (Transport::Uring, None));
        assert!(fixture.handle.negotiated().has(Capabilities::OVER_IO_URING));
    });
}

#[test]
fn switched_off_the_device_serves_and_the_reason_says_what_to_do() {
    let Some((plan, _alone)) = rings() else { return };
    let mount_dir = TestMountDir::new();
    let mounted = {
        let _off = SwitchedOff::now();
        shunt_fuse::mount::<TestFs>(TestFs::new(), plan.config, &mount_dir.path(), &plan.options).unwrap()
    };
    let in_use = mounted.handle().transport();
    let answered = fs::metadata(mount_dir.path()).is_ok();
    unmount(mounted);
    assert!(answered);
    assert_eq!(in_use.transport, Transport::Dev);
    let reason = in_use.reason.unwrap_or_default();
    assert!(reason.contains("switched off") && reason.contains(&format!("echo Y > {SWITCH}")), "{reason}");
}

#[test]
fn locks_that_are_waited_for_leave_room_for_the_unlock() {
    let Some((plan, _alone)) = rings() else { return };
    const WAITERS: usize = 100;
    run(plan.config(|config| config.request(Capabilities::FLOCK_LOCKS)), |fixture| {
        fixture.fs.add_file("x", b"");
        fixture.fs.add_file("other", b"");
        *fixture.fs.expiry.lock() = Expiry::NEVER_CACHED;
        let open = || File::open(fixture.path("x")).unwrap();
        let holder = open();
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let (refused, granted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(|| {
                    on_first_processor();
                    let file = open();
                    match flock(&file, FlockOperation::LockExclusive) {
                        Ok(()) => granted.fetch_add(1, Ordering::SeqCst),
                        Err(Errno::NOLCK) => refused.fetch_add(1, Ordering::SeqCst),
                        Err(errno) => panic!("{errno}"),
                    };
                    // Closing the file passes the lock on to the next waiter.
                });
            }
            eventually("each waits or is refused", || {
                fixture.handle.waiting_requests() + refused.load(Ordering::SeqCst) == WAITERS
            });
            assert_eq!(granted.load(Ordering::SeqCst), 0);
            let waiting = fixture.handle.waiting_requests();
            assert!((MAX_ENTRIES / 2..MAX_ENTRIES).contains(&waiting), "{waiting} wait");
            scope.spawn(|| {
                on_first_processor();
                fs::metadata(fixture.path("other")).unwrap();
                flock(&holder, FlockOperation::Unlock).unwrap();
            });
        });
        assert_eq!(granted.load(Ordering::SeqCst) + refused.load(Ordering::SeqCst), WAITERS);
        assert_eq!(fixture.handle.waiting_requests(), 0);
    });
}

#[test]
fn more_requests_than_entries_are_served_in_turn() {
    fill_and_drain(Behaviour::Wait, false);
}

#[test]
fn more_blocked_handlers_than_entries_are_served_in_turn() {
    fill_and_drain(Behaviour::BlockUntil, false);
}

/// No further ring is made, however full a queue gets: the system call may be forbidden.
#[test]
fn rings_made_ahead_are_enough() {
    if let Some(made) = fill_and_drain(Behaviour::BlockUntil, false) {
        assert!(made > MAX_ENTRIES / 2, "{made} rings: a queue was not full");
        assert_eq!(fill_and_drain(Behaviour::BlockUntil, true), Some(0));
    }
}

/// Sends more reads than a queue has entries, none of which ends before all entries are in use. Returns how many rings were made
/// meanwhile.
fn fill_and_drain(held: fn(GateHandle) -> Behaviour, ahead: bool) -> Option<usize> {
    let (plan, _alone) = rings()?;
    let grown = AtomicUsize::new(0);
    run_with(plan.config(|config| config.rings_ahead(ahead)), direct_file(b"bytes"), |fixture| {
        let files = 3 * MAX_ENTRIES;
        let made = rings_made();
        // Opened beforehand: an open queued behind reads that wait would wait too.
        let open: Vec<_> = (0..files).map(|_| File::open(fixture.path("x")).unwrap()).collect();
        let gate = Gate::new();
        let door = gate.door();
        fixture.fs.script(move |call| match call.op == Opcode::Read {
            true => held(door.clone()),
            false => Behaviour::Go,
        });
        thread::scope(|scope| {
            let readers: Vec<_> = open
                .iter()
                .map(|file| {
                    scope.spawn(move || {
                        on_first_processor();
                        let mut bytes = [0; 5];
                        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
                    })
                })
                .collect();
            eventually("no free entry remains", || gate.arrived() >= MAX_ENTRIES);
            thread::sleep(Duration::from_millis(50));
            assert!(gate.arrived() < files, "the queue is bounded");
            grown.store(rings_made() - made, Ordering::SeqCst);
            gate.open();
            for reader in readers {
                assert_eq!(&reader.join().unwrap().unwrap(), b"bytes");
            }
        });
        assert_eq!(fixture.count(Opcode::Read), files as u64);
    });
    assert_eq!(ring_threads(), 0);
    Some(grown.into_inner())
}

#[test]
fn a_connection_aborted_under_load_leaves_no_thread() {
    let Some((plan, _alone)) = rings() else { return };
    let fs = direct_file(b"bytes");
    *fs.expiry.lock() = Expiry::NEVER_CACHED;
    run_with(plan, fs, |fixture| {
        let (stop, served) = (AtomicBool::new(false), [const { AtomicBool::new(false) }; 8]);
        thread::scope(|scope| {
            for (n, served) in served.iter().enumerate() {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let result = if n % 2 == 0 {
                            fs::metadata(fixture.path("x")).map(drop)
                        } else {
                            fs::read(fixture.path("x")).map(drop)
                        };
                        if result.is_err() {
                            break;
                        }
                        served.store(true, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(Duration::from_millis(200));
            let all_served = || served.iter().all(|served| served.load(Ordering::Relaxed));
            eventually("each thread is served", all_served);
            assert!(ring_threads() >= 1);
            fixture.point.abort().unwrap();
            stop.store(true, Ordering::Relaxed);
        });
        let mounted = fixture.take().unwrap();
        fixture.point.unmount(shunt_fuse::mount::Unmount::Lazy).unwrap();
        mounted.wait().unwrap();
        assert_eq!(ring_threads(), 0);
    });
}

#[test]
fn data_of_every_size_arrives_whole() {
    let Some((plan, _alone)) = rings() else { return };
    run_with(plan, direct_file(b""), |fixture| {
        let file = File::options().read(true).write(true).open(fixture.path("x")).unwrap();
        let limit = 1 << 20;
        for size in [1, 2, 79, 80, 511, 4095, 4096, 4097, 65_536, 131_073, limit - 1, limit, limit + 1] {
            let bytes: Vec<u8> = (0..size).map(|n| (n * 31 + size) as u8).collect();
            file.write_all_at(&bytes, 7).unwrap();
            let mut read = vec![0; size];
            file.read_exact_at(&mut read, 7).unwrap();
            assert!(read == bytes, "{size} bytes differ");
        }
    });
}

#[test]
fn small_writes_leave_room_for_large_attributes() {
    let Some((plan, _alone)) = rings() else { return };
    run(plan.config(|config| config.max_write(4096)), |fixture| {
        fixture.fs.add_file("x", b"");
        let value = vec![b'v'; 65_536];
        rustix::fs::setxattr(fixture.path("x"), "user.large", &value, rustix::fs::XattrFlags::empty())
            .unwrap();
        let mut read = vec![0; 65_536];
        let length = rustix::fs::getxattr(fixture.path("x"), "user.large", &mut read).unwrap();
        assert!(read[..length] == value);
    });
}
