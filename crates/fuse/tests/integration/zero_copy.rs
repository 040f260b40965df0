//! Tests of zero copy over io_uring, where the kernel offers it (Linux 7.3, as root).

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::thread::{CpuSet, sched_setaffinity};
use shunt_fuse::{NodeId, Opcode, RingBuffers, Transport};
use shunt_test_support::rings;

use crate::common::fixture::{TestMountDir, unmount};
use crate::common::sys::{Mapping, memfd};
use crate::common::{
    Behaviour, Content, Fixture, Gate, OpenAs, Plan, TestFs, assert_same, eventually, pattern, run_with,
};

const SIZE: usize = (3 << 20) + 777;

/// Makes a file system with one file "x" that is served from a descriptor.
fn one(open: OpenAs) -> (TestFs, NodeId) {
    let fs = TestFs::new();
    *fs.open.lock() = open;
    let node = add(&fs, "x");
    (fs, node)
}

fn add(fs: &TestFs, name: &str) -> NodeId {
    fs.add_file(name, Content::File(memfd(&pattern(SIZE, 3))))
}

/// Runs a test with zero copy; does nothing on a kernel without it.
fn zero_copied(open: OpenAs, body: impl FnOnce(&Fixture, NodeId)) {
    if !is_offered() {
        return;
    }
    let (fs, node) = one(open);
    run_with(plan(), fs, |fixture| {
        assert_eq!(fixture.handle.transport().buffers, Some(RingBuffers::ZeroCopy));
        body(fixture, node);
    });
}

fn plan() -> Plan {
    Plan::passthrough().config(|config| config.transport(Transport::Uring))
}

/// Pools and zero copy came with protocol 7.46.
fn is_offered() -> bool {
    let mount_dir = TestMountDir::new();
    if !rings::are_on() || !crate::common::fixture::can_mount() {
        eprintln!("SKIP zero copy: this kernel does not support FUSE over io_uring, or it is disabled");
        return false;
    }
    let kept = rings::keep();
    let mounted =
        shunt_fuse::mount::<TestFs>(TestFs::new(), plan().config, &mount_dir.path(), &plan().options)
            .unwrap();
    drop(kept);
    // The rings are registered when the first request is answered.
    fs::metadata(mount_dir.path()).unwrap();
    let minor = mounted.handle().negotiated().minor;
    let buffers = mounted.handle().transport().buffers;
    unmount(mounted);
    if minor < 46 {
        eprintln!("SKIP zero copy: this kernel does not support it");
        return false;
    }
    assert_eq!(buffers, Some(RingBuffers::ZeroCopy));
    true
}

fn moved(fixture: &Fixture) -> (u64, u64) {
    let statistics = fixture.handle.statistics();
    (statistics.zero_copied_bytes, statistics.read_bytes + statistics.written_bytes)
}

#[test]
fn buffered_reads_see_the_file_and_the_daemon_does_not() {
    zero_copied(OpenAs::Cached, |fixture, _| {
        let whole = pattern(SIZE, 3);
        assert_same(&fs::read(fixture.path("x")).unwrap(), &whole, "read");
        let file = File::options().read(true).write(true).open(fixture.path("x")).unwrap();
        assert_same(Mapping::new(&file, SIZE).unwrap().bytes(), &whole, "mapped");
        let (zero_copied, all) = moved(fixture);
        assert_eq!(zero_copied, all);
        assert!(all >= 2 * SIZE as u64, "{all}");
    });
}

#[test]
fn buffered_writes_reach_the_file_and_not_the_daemon() {
    zero_copied(OpenAs::KeepCache, |fixture, node| {
        let file = File::options().read(true).write(true).open(fixture.path("x")).unwrap();
        let mut model = pattern(SIZE, 3);
        for (n, (start, length)) in [(0, SIZE), (1, 5), (4095, 2), (100_000, 1 << 20)].into_iter().enumerate()
        {
            let bytes = pattern(length, 50 + n as u64);
            file.write_all_at(&bytes, start as u64).unwrap();
            model[start..][..length].copy_from_slice(&bytes);
        }
        file.sync_all().unwrap();
        assert_same(&fixture.fs.content(node), &model, "written");
        let (zero_copied, all) = moved(fixture);
        assert_eq!(zero_copied, all);
    });
}

/// The caller's own memory would change after its call has failed, if the connection is aborted.
#[test]
fn direct_io_is_copied() {
    let whole = pattern(SIZE, 3);
    let read = |fixture: &Fixture, flags| {
        let file = File::options().read(true).custom_flags(flags).open(fixture.path("x")).unwrap();
        let mut bytes = vec![0; 1 << 20];
        file.read_exact_at(&mut bytes, 8192).unwrap();
        assert_same(&bytes, &whole[8192..][..1 << 20], "read");
        assert_eq!(moved(fixture), (0, 1 << 20));
    };
    zero_copied(OpenAs::Direct, |fixture, _| read(fixture, 0));
    zero_copied(OpenAs::Cached, |fixture, _| read(fixture, libc::O_DIRECT));
}

/// Its reads have no variant for memory of the kernel, so the bytes take a detour.
#[test]
fn a_file_of_a_pseudo_file_system_is_read() {
    zero_copied(OpenAs::Cached, |fixture, node| {
        let word = *b"0123456789abcdef";
        let memory = File::open("/proc/self/mem").unwrap();
        let page = Mapping::anonymous(4096);
        (0..word.len()).for_each(|index| page.set(index, word[index]));
        let start = page.bytes().as_ptr() as u64;
        fixture.fs.set_content(node, Content::File(Arc::new(memory.into())));
        fixture.fs.tree.lock().get(node).unwrap().least_size = i64::MAX as u64;
        let file = File::open(fixture.path("x")).unwrap();
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, start).unwrap();
        assert_eq!(bytes, word);
    });
}

/// The pages belong to the ring of the receiving thread, and another thread answers.
#[test]
fn late_replies_and_late_writes_arrive() {
    zero_copied(OpenAs::Cached, |fixture, _| {
        let written = add(&fixture.fs, "y");
        let gate = Gate::new();
        let door = gate.door();
        fixture.fs.script(move |call| match call.op {
            Opcode::Read | Opcode::Write => Behaviour::Wait(door.clone()),
            _ => Behaviour::Go,
        });
        let (mut whole, bytes) = (pattern(SIZE, 3), pattern(1 << 20, 9));
        thread::scope(|scope| {
            let reader = scope.spawn(|| fs::read(fixture.path("x")));
            let writer = scope.spawn(|| {
                let file = File::options().write(true).open(fixture.path("y"))?;
                file.write_all_at(&bytes, 4096)
            });
            eventually("both wait", || gate.arrived() >= 2);
            // Others are served meanwhile.
            fs::metadata(fixture.path("x")).unwrap();
            gate.open();
            assert_same(&reader.join().unwrap().unwrap(), &whole, "read late");
            writer.join().unwrap().unwrap();
        });
        whole[4096..][..1 << 20].copy_from_slice(&bytes);
        assert_same(&fixture.fs.content(written), &whole, "written late");
        let (zero_copied, all) = moved(fixture);
        assert_eq!(zero_copied, all);
    });
}

/// Each such request keeps the thread that received it.
#[test]
fn many_requests_of_one_processor_wait_at_once() {
    const READERS: usize = 40;
    zero_copied(OpenAs::Cached, |fixture, _| {
        let paths: Vec<_> = (0..READERS).map(|n| format!("x{n}")).collect();
        for path in &paths {
            add(&fixture.fs, path);
        }
        let gate = Gate::before(&fixture.fs, Opcode::Read);
        let whole = pattern(SIZE, 3);
        thread::scope(|scope| {
            let readers: Vec<_> = paths
                .iter()
                .map(|path| {
                    scope.spawn(|| {
                        let mut cpus = CpuSet::new();
                        cpus.set(0);
                        sched_setaffinity(None, &cpus).unwrap();
                        fs::read(fixture.path(path)).unwrap()
                    })
                })
                .collect();
            eventually("all wait", || gate.arrived() >= READERS);
            fs::metadata(fixture.path("x")).unwrap();
            gate.open();
            for reader in readers {
                assert_same(&reader.join().unwrap(), &whole, "a reader");
            }
        });
    });
}

#[test]
fn a_session_ends_while_zero_copy_requests_wait() {
    zero_copied(OpenAs::Cached, |fixture, _| {
        add(&fixture.fs, "y");
        let gate = Gate::before(&fixture.fs, Opcode::Read);
        thread::scope(|scope| {
            let readers = ["x", "y"].map(|name| scope.spawn(move || fs::read(fixture.path(name))));
            eventually("both wait", || gate.arrived() >= 2);
            fixture.point.abort().unwrap();
            for reader in readers {
                assert!(reader.join().unwrap().is_err());
            }
        });
    });
}

#[test]
fn a_connection_is_aborted_while_pages_are_moved() {
    const THREADS: usize = 4;
    zero_copied(OpenAs::Cached, |fixture, written| {
        let read = add(&fixture.fs, "y");
        let bytes = pattern(1 << 20, 3);
        let served: [AtomicUsize; THREADS] = Default::default();
        let once = |n: usize| {
            // Each open drops the pages of an earlier one.
            match n % 2 {
                0 => fs::read(fixture.path("y")).map(|read| assert_same(&read[..1 << 20], &bytes, "read")),
                _ => File::options()
                    .write(true)
                    .open(fixture.path("x"))
                    .and_then(|file| file.write_all_at(&bytes, 0)),
            }
        };
        thread::scope(|scope| {
            for (n, served) in served.iter().enumerate() {
                let once = &once;
                scope.spawn(move || {
                    while once(n).is_ok() {
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let all_served = || served.iter().all(|served| served.load(Ordering::Relaxed) > 1);
            eventually("all are served", all_served);
            fixture.point.abort().unwrap();
        });
        // Whatever moved last moved what it should.
        for node in [written, read] {
            assert_same(&fixture.fs.content(node), &pattern(SIZE, 3), "a file");
        }
    });
}

#[test]
fn other_buffers_can_be_asked_for() {
    if !is_offered() {
        return;
    }
    for buffers in [RingBuffers::Pool, RingBuffers::PerEntry] {
        let (fs, _) = one(OpenAs::Cached);
        run_with(plan().config(|config| config.ring_buffers(buffers)), fs, |fixture| {
            assert_eq!(fixture.handle.transport().buffers, Some(buffers));
            assert_same(&fs::read(fixture.path("x")).unwrap(), &pattern(SIZE, 3), "read");
            assert_eq!(moved(fixture).0, 0);
        });
    }
}
