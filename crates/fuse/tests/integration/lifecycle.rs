//! Tests of the lifecycle of a mount, and that nothing is left behind.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use shunt_fuse::mount::{MountError, MountMethod, MountPoint, Unmount};
use shunt_fuse::{Config, Opcode, Profile, RequestId};

use crate::common;
use crate::common::fixture::{TestMountDir, unmount};
use crate::common::{Behaviour, Gate, OpenAs, Plan, TestFs, eventually, fixture, run, sys};

/// The tests count descriptors and threads, so they run one at a time.
static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

fn is_mounted(path: &Path) -> bool {
    MountPoint::find(path).is_ok()
}

#[test]
fn unmounting_waits_for_the_request_being_served() {
    let _alone = ALONE.lock();
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"");
        let gate = Gate::new();
        let door = gate.door();
        fixture.fs.script(move |call| match call.op {
            Opcode::Release => Behaviour::BlockUntil(door.clone()),
            _ => Behaviour::Go,
        });
        drop(File::open(fixture.path("x")).unwrap());
        eventually("RELEASE is being served", || gate.arrived() == 1);
        let opened = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                opened.store(true, Ordering::SeqCst);
                gate.open();
            });
            unmount(fixture.take().unwrap());
            assert!(opened.load(Ordering::SeqCst), "the unmount did not wait for RELEASE");
        });
        assert_eq!(fixture.count(Opcode::Release), 1);
        assert!(fixture.fs.destroyed.load(Ordering::SeqCst));
        assert!(!is_mounted(&fixture.root()));
    });
}

#[test]
fn a_busy_mount_stays_and_is_given_back() {
    let _alone = ALONE.lock();
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"bytes");
        let file = File::open(fixture.path("x")).unwrap();
        let mounted = match fixture.take().unwrap().unmount(Unmount::Normal).map_err(|refused| *refused) {
            Err((mounted, MountError::Busy(path))) => {
                assert_eq!(path, fs::canonicalize(fixture.root()).unwrap());
                mounted
            }
            other => panic!("{other:?}"),
        };
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"bytes", "the session continues");
        drop(file);
        unmount(mounted);
        assert!(!is_mounted(&fixture.root()));
    });
}

#[test]
fn a_lazy_unmount_ends_with_the_last_user() {
    let _alone = ALONE.lock();
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"bytes");
        let file = File::open(fixture.path("x")).unwrap();
        let mounted = fixture.take().unwrap();
        std::thread::scope(|scope| {
            let ending = scope.spawn(|| mounted.unmount(Unmount::Lazy).unwrap().unwrap());
            eventually("the mount is detached", || !is_mounted(&fixture.root()));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!ending.is_finished());
            let mut bytes = [0; 5];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes, b"bytes");
            drop(file);
            ending.join().unwrap();
        });
        assert!(fixture.fs.destroyed.load(Ordering::SeqCst));
    });
}

#[test]
fn a_forced_unmount_ends_requests_that_wait() {
    let _alone = ALONE.lock();
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", b"bytes");
        fixture.fs.set_open(node, OpenAs::Direct);
        let file = File::open(fixture.path("x")).unwrap();
        std::thread::scope(|scope| {
            let gate = Gate::before(&fixture.fs, Opcode::Read);
            let reader = scope.spawn(|| {
                let result = file.read_at(&mut [0; 5], 0);
                drop(file);
                result
            });
            eventually("the read waits", || gate.arrived() == 1);
            // The open file keeps the mount busy for now, but the connection is aborted.
            match fixture.take().unwrap().unmount(Unmount::Force).map_err(|refused| *refused) {
                Ok(served) => served.unwrap(),
                Err((mounted, _)) => {
                    mounted.unmount(Unmount::Lazy).unwrap().unwrap();
                }
            }
            let error = reader.join().unwrap().unwrap_err();
            assert!(
                matches!(Errno::from_io_error(&error), Some(Errno::CONNABORTED | Errno::NOTCONN)),
                "{error}"
            );
        });
    });
}

#[test]
fn an_abort_ends_the_session() {
    let _alone = ALONE.lock();
    run(Plan::passthrough(), |fixture| {
        fixture.fs.add_file("x", b"bytes");
        let mounted = fixture.take().unwrap();
        fixture.point.abort().unwrap();
        mounted.wait().unwrap();
        assert!(fixture.fs.destroyed.load(Ordering::SeqCst));
        let error = fs::read(fixture.path("x")).unwrap_err();
        assert!(matches!(Errno::from_io_error(&error), Some(Errno::CONNABORTED | Errno::NOTCONN)), "{error}");
        fixture.point.unmount(Unmount::Normal).unwrap();
    });
}

#[test]
fn an_unmount_by_somebody_else_ends_the_session() {
    let _alone = ALONE.lock();
    run(Plan::passthrough(), |fixture| {
        let mounted = fixture.take().unwrap();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| mounted.wait().unwrap());
            eventually("unmounted", || fixture.point.unmount(Unmount::Normal).is_ok());
            serving.join().unwrap();
        });
        assert!(fixture.fs.destroyed.load(Ordering::SeqCst));
    });
}

#[test]
fn each_method_makes_a_working_mount() {
    let _alone = ALONE.lock();
    for method in [MountMethod::Fsopen, MountMethod::Classic] {
        run(Plan::passthrough().options(|options| options.method(method)), |fixture| {
            fixture.fs.add_file("x", b"bytes");
            assert_eq!(fs::read(fixture.path("x")).unwrap(), b"bytes");
            let mounted = fixture.take().unwrap();
            assert_eq!(mounted.method(), Some(method));
            assert_eq!(mounted.mount_point().id(), MountPoint::find(&fixture.root()).unwrap().id());
            unmount(mounted);
        });
    }
}

#[test]
fn a_file_system_that_cannot_start_leaves_nothing_mounted() {
    struct Broken;
    impl shunt_fuse::FileSystem for Broken {
        fn start(&self, _: &shunt_fuse::Handle) -> std::io::Result<()> {
            Err(std::io::Error::other("out of order"))
        }
    }
    let _alone = ALONE.lock();
    if !fixture::can_mount() {
        return;
    }
    for method in [MountMethod::Fsopen, MountMethod::Classic] {
        let mount_dir = TestMountDir::new();
        let options = Plan::passthrough().options.method(method);
        let config = Config::new(Profile::Passthrough);
        let error = shunt_fuse::mount(Broken, config, &mount_dir.path(), &options).unwrap_err();
        assert!(error.to_string().contains("out of order"), "{error}");
        assert!(!is_mounted(&mount_dir.path()));
    }
}

#[test]
fn mounting_on_nothing_leaves_nothing() {
    let _alone = ALONE.lock();
    if !fixture::can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let (before, fds) = (sys::threads(), sys::open_fds());
    let plan = Plan::passthrough();
    let nowhere = mount_dir.outer().join("missing");
    shunt_fuse::mount(TestFs::new(), plan.config, &nowhere, &plan.options).unwrap_err();
    eventually("threads and descriptors are back", || sys::threads() <= before && sys::open_fds() <= fds);
}

#[test]
fn three_hundred_mounts_leave_nothing_behind() {
    let _alone = ALONE.lock();
    if !fixture::can_mount() {
        return;
    }
    let watchdog = common::watchdog::Watchdog::start(Duration::from_secs(150));
    let mount_dir = TestMountDir::new();
    let cycle = || {
        let plan = Plan::passthrough();
        let fs = Arc::new(TestFs::new());
        fs.add_file("x", b"bytes");
        let mounted =
            shunt_fuse::mount::<TestFs>(fs.clone(), plan.config, &mount_dir.path(), &plan.options).unwrap();
        assert_eq!(fs::read(mount_dir.path().join("x")).unwrap(), b"bytes");
        let caches = mounted.handle().caches().clone();
        caches.invalidate_node_whole(shunt_fuse::NodeId::ROOT).wait().unwrap();
        drop(caches);
        unmount(mounted);
        assert_eq!(Arc::strong_count(&fs), 1, "the ended session releases the file system");
    };
    (0..30).for_each(|_| cycle());
    let state = || (sys::open_fds(), sys::threads());
    std::thread::sleep(Duration::from_millis(100));
    let (fds, threads) = state();
    let memory = sys::resident_kib();
    (0..300).for_each(|_| cycle());
    eventually("descriptors and threads are back", || {
        let (now_fds, now_threads) = state();
        now_fds <= fds + 2 && now_threads <= threads + 2
    });
    let grown = sys::resident_kib().saturating_sub(memory);
    assert!(grown < 8 << 10, "memory grew by {grown} KiB");
    assert!(!watchdog.end());
}

#[test]
fn statistics_count_every_request() {
    let _alone = ALONE.lock();
    run(Plan::passthrough(), |fixture| {
        let node = fixture.fs.add_file("x", b"bytes");
        fixture.fs.set_open(node, OpenAs::Direct);
        let file = File::open(fixture.path("x")).unwrap();
        for _ in 0..100 {
            file.read_exact_at(&mut [0; 5], 0).unwrap();
        }
        let _ = fs::metadata(fixture.path("missing"));
        fixture.fs.fail(&[Opcode::Getxattr], Errno::IO);
        rustix::fs::getxattr(fixture.path("x"), c"user.x", &mut [0_u8; 8][..]).unwrap_err();
        let snapshot = fixture.handle.statistics();
        let of = |op| snapshot.operations.iter().find(|o| o.opcode == op).unwrap().clone();
        assert_eq!((of(Opcode::Read).count, of(Opcode::Read).errors), (100, 0));
        assert_eq!((of(Opcode::Getxattr).count, of(Opcode::Getxattr).errors), (1, 1));
        assert_eq!(of(Opcode::Lookup).count, 2);
        assert_eq!(of(Opcode::Open).count, 1);
        let read = of(Opcode::Read);
        assert!(read.p50 <= read.p99 && read.p99 <= read.slowest && read.slowest > Duration::ZERO);
        assert_eq!(snapshot.total(), snapshot.operations.iter().map(|o| o.count).sum::<u64>());
        assert_eq!((snapshot.cancelled, snapshot.malformed), (0, 0));
        assert_eq!(snapshot.passthrough_opens, 0);
    });
}

#[test]
fn request_ids_are_the_kernels() {
    let _alone = ALONE.lock();
    run(Plan::passthrough(), |fixture| {
        let ids = Arc::new(parking_lot::Mutex::new(Vec::<RequestId>::new()));
        let seen = ids.clone();
        fixture.fs.before_answer(move |request, _| seen.lock().push(request.id()));
        fs::create_dir(fixture.path("a")).unwrap();
        fs::create_dir(fixture.path("b")).unwrap();
        let ids = ids.lock();
        assert!(ids.len() == 2 && ids[0] != ids[1] && ids.iter().all(|id| id.0 != 0));
    });
}
