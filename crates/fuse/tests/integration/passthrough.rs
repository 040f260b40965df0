//! Tests of files whose data the kernel passes through to backing files.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use shunt_fuse::{Capabilities, Config, Device, FileType, NodeId, Opcode, Profile, Session};

use crate::common::sys::{Mapping, memfd};
use crate::common::{
    Content, Fixture, OpenAs, Plan, Rng, TestFs, assert_same, eventually, fixture, pattern, run, sys,
};

const USER: u32 = 1000;
const SIZE: usize = 256 << 10;

/// Adds a file that is passed through to `backing`.
fn add(fixture: &Fixture, name: &str, backing: Arc<OwnedFd>) -> NodeId {
    let node = fixture.fs.add_file(name, Content::File(backing));
    fixture.fs.set_open(node, OpenAs::Passthrough);
    node
}

fn open(fixture: &Fixture, name: &str) -> File {
    File::options().read(true).write(true).open(fixture.path(name)).unwrap()
}

/// Makes a file on disk next to the mount.
fn on_disk(fixture: &Fixture, name: &str, bytes: &[u8]) -> Arc<OwnedFd> {
    fs::write(fixture.outside(name), bytes).unwrap();
    Arc::new(File::options().read(true).write(true).open(fixture.outside(name)).unwrap().into())
}

/// Asserts that no READ and no WRITE reached the server.
#[track_caller]
fn assert_no_requests(fixture: &Fixture) {
    assert_eq!(fixture.count(Opcode::Read), 0);
    assert_eq!(fixture.count(Opcode::Write), 0);
    assert!(fixture.handle.statistics().passthrough_opens > 0);
    assert_eq!(*fixture.fs.refusals.lock(), []);
}

#[test]
fn reads_and_writes_reach_the_backing_file_alone() {
    run(Plan::passthrough(), |fixture| {
        for (name, backing) in
            [("memory", memfd(&pattern(SIZE, 1))), ("disk", on_disk(fixture, "b", &pattern(SIZE, 1)))]
        {
            let node = add(fixture, name, backing);
            let file = open(fixture, name);
            let mut bytes = vec![0; SIZE];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_same(&bytes, &pattern(SIZE, 1), "read");
            file.write_all_at(&pattern(10_000, 2), 5000).unwrap();
            assert_same(&fixture.fs.content(node)[5000..15_000], &pattern(10_000, 2), "written");
            file.write_all_at(b"end", SIZE as u64).unwrap();
            assert_eq!(file.metadata().unwrap().len(), SIZE as u64 + 3);
        }
        assert_no_requests(fixture);
    });
}

#[test]
fn mappings_reach_the_backing_file_alone() {
    run(Plan::passthrough(), |fixture| {
        let node = add(fixture, "x", memfd(&pattern(SIZE, 1)));
        let map = Mapping::new(&open(fixture, "x"), SIZE).unwrap();
        assert!((0..SIZE).step_by(4096).all(|n| map.get(n) == pattern(SIZE, 1)[n]));
        map.set(70_000, 42);
        assert_eq!(
            fixture.fs.content(node)[70_000],
            42,
            "the mapping and the backing file share the page cache"
        );
        assert_no_requests(fixture);
    });
}

/// The server sees the I/O of one open, while another open of the same file is passed through.
#[test]
fn an_open_can_be_watched_beside_those_that_are_passed_through() {
    run(Plan::passthrough(), |fixture| {
        let node = add(fixture, "x", memfd(&pattern(SIZE, 1)));
        let through = open(fixture, "x");
        fixture.fs.set_open(node, OpenAs::Watched);
        let watched = open(fixture, "x");
        watched.write_all_at(b"seen", 0).unwrap();
        assert_eq!(fixture.count(Opcode::Write), 1);
        let mut bytes = [0; 4];
        watched.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, fixture.count(Opcode::Read)), (b"seen", 1));
        through.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, fixture.count(Opcode::Read)), (b"seen", 1));
    });
}

#[test]
fn both_sides_see_each_other_at_once() {
    run(Plan::passthrough(), |fixture| {
        let backing = memfd(&pattern(SIZE, 1));
        add(fixture, "x", backing.clone());
        let file = open(fixture, "x");
        let map = Mapping::new(&file, SIZE).unwrap();
        for n in 0..50_u8 {
            rustix::io::pwrite(&*backing, &[n], 12_345).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, 12_345).unwrap();
            assert_eq!((byte[0], map.get(12_345)), (n, n));
        }
        assert_no_requests(fixture);
    });
}

/// The kernel's asynchronous I/O, by raw system calls.
mod aio {
    #[repr(C)]
    #[derive(Default)]
    pub struct Block {
        pub data: u64,
        pub key: u32,
        pub rw_flags: u32,
        /// 0 for a read, 1 for a write.
        pub opcode: u16,
        pub priority: i16,
        pub fd: u32,
        pub buffer: u64,
        pub bytes: u64,
        pub offset: i64,
        pub reserved: u64,
        pub flags: u32,
        pub event_fd: u32,
    }

    #[repr(C)]
    #[derive(Default, Clone, Copy)]
    pub struct Event {
        pub data: u64,
        pub block: u64,
        pub result: i64,
        pub result2: i64,
    }

    /// Submits all at once, waits for all, and returns their results by `data`.
    pub fn perform(blocks: &mut [Block]) -> Vec<i64> {
        let mut pointers: Vec<*mut Block> = blocks.iter_mut().map(|block| &raw mut *block).collect();
        let mut events = vec![Event::default(); pointers.len()];
        let mut context: u64 = 0;
        let count = pointers.len() as libc::c_long;
        // SAFETY: every pointer is to memory that lives until the events are received; the caller is responsible for the buffers.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_io_setup, count, &raw mut context), 0);
            assert_eq!(libc::syscall(libc::SYS_io_submit, context, count, pointers.as_mut_ptr()), count);
            let nothing = std::ptr::null::<libc::timespec>();
            let got =
                libc::syscall(libc::SYS_io_getevents, context, count, count, events.as_mut_ptr(), nothing);
            assert_eq!(got, count);
            libc::syscall(libc::SYS_io_destroy, context);
        }
        let mut results = vec![0; events.len()];
        events.iter().for_each(|event| results[event.data as usize] = event.result);
        results
    }
}

#[test]
fn asynchronous_io_reaches_the_backing_file_alone() {
    const DEPTH: usize = 32;
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    // By default an open with O_DIRECT is not passed through: the flag may be cleared later.
    run(Plan::of(Config::new(Profile::Passthrough).trust_open_flags()), |fixture| {
        let node = add(fixture, "x", on_disk(fixture, "b", &vec![0; DEPTH * 4096]));
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(fixture.path("x"))
            .unwrap();
        let mut pages: Vec<Page> =
            (0..DEPTH).map(|n| Page(pattern(4096, n as u64 + 1).try_into().unwrap())).collect();
        let mut all = |opcode| {
            let mut blocks: Vec<aio::Block> = pages
                .iter_mut()
                .enumerate()
                .map(|(n, page)| aio::Block {
                    data: n as u64,
                    opcode,
                    fd: file.as_raw_fd() as u32,
                    buffer: page.0.as_mut_ptr() as u64,
                    bytes: 4096,
                    offset: n as i64 * 4096,
                    ..aio::Block::default()
                })
                .collect();
            assert_eq!(aio::perform(&mut blocks), [4096; DEPTH]);
        };
        all(1);
        let content = fixture.fs.content(node);
        for n in 0..DEPTH {
            assert_same(&content[n * 4096..][..4096], &pattern(4096, n as u64 + 1), "written");
        }
        all(0);
        drop(file);
        for (n, page) in pages.iter().enumerate() {
            assert_same(&page.0, &pattern(4096, n as u64 + 1), "read");
        }
        assert_no_requests(fixture);
    });
}

#[test]
fn one_inode_is_opened_in_every_order_of_modes() {
    let modes = [OpenAs::Cached, OpenAs::KeepCache, OpenAs::Direct, OpenAs::Passthrough];
    run(Plan::passthrough(), |fixture| {
        let node = add(fixture, "x", memfd(&pattern(8192, 1)));
        for a in modes {
            for b in modes {
                for c in modes {
                    let files = [a, b, c].map(|mode| {
                        fixture.fs.set_open(node, mode);
                        let file = open(fixture, "x");
                        let mut bytes = vec![0; 8192];
                        file.read_exact_at(&mut bytes, 0)
                            .unwrap_or_else(|e| panic!("{a:?} {b:?} {c:?}: {e}"));
                        assert_same(&bytes, &pattern(8192, 1), "read");
                        file
                    });
                    for file in &files {
                        file.write_all_at(&pattern(8192, 1), 0).unwrap();
                    }
                }
            }
        }
        fixture.all_released();
        eventually("the registration ends", || fixture.passthrough().is_empty());
    });
}

#[test]
fn opens_of_all_modes_at_once_never_fail() {
    run(Plan::passthrough().timeout(120), |fixture| {
        let node = add(fixture, "x", memfd(&pattern(8192, 1)));
        std::thread::scope(|scope| {
            for seed in 1..5_u64 {
                scope.spawn(move || {
                    let mut rng = Rng(seed * 7919);
                    let mut held = Vec::new();
                    for _ in 0..400 {
                        let mode =
                            [OpenAs::Cached, OpenAs::Direct, OpenAs::Passthrough][rng.below(3) as usize];
                        fixture.fs.set_open(node, mode);
                        held.push(open(fixture, "x"));
                        let mut bytes = [0; 100];
                        held[rng.below(held.len() as u64) as usize].read_exact_at(&mut bytes, 50).unwrap();
                        assert_same(&bytes, &pattern(8192, 1)[50..150], "read");
                        if rng.below(3) == 0 {
                            held.clear();
                        }
                    }
                });
            }
        });
        fixture.all_released();
        eventually("the registration ends", || fixture.passthrough().is_empty());
        assert_eq!(*fixture.fs.refusals.lock(), []);
    });
}

#[test]
fn a_file_is_registered_once_and_released_with_its_last_close() {
    run(Plan::passthrough(), |fixture| {
        add(fixture, "x", memfd(b"bytes"));
        let before = sys::open_fds();
        for _ in 0..200 {
            let files = [open(fixture, "x"), open(fixture, "x"), open(fixture, "x")];
            assert_eq!(fixture.passthrough().len(), 1);
            drop(files);
        }
        fixture.all_released();
        eventually("the registration ends", || fixture.passthrough().is_empty());
        let after = sys::open_fds();
        assert!(after < before + 50, "{before} descriptors became {after}");
    });
}

#[test]
fn sharing_twice_gives_the_same_registration() {
    run(Plan::passthrough(), |fixture| {
        let (file, other) = (memfd(b"bytes"), memfd(b"other"));
        sys::without(CapabilitySet::FSETID, || {
            let node = NodeId(77);
            let first = fixture.passthrough().share(node, file.as_fd()).unwrap();
            let second = fixture.passthrough().share(node, file.as_fd()).unwrap();
            assert_eq!(format!("{first:?}"), format!("{second:?}"));
            assert_eq!(fixture.passthrough().len(), 1);
            drop(first);
            assert_eq!(fixture.passthrough().len(), 1);
            // The kernel would use the first backing file for it.
            assert_eq!(fixture.passthrough().share(node, other.as_fd()).unwrap_err(), Errno::BUSY);
            drop(second);
            assert!(fixture.passthrough().is_empty());
            fixture.passthrough().share(node, other.as_fd()).unwrap();
        });
    });
}

#[test]
fn sharing_with_cap_fsetid_is_refused() {
    run(Plan::passthrough(), |fixture| {
        let shared = fixture.passthrough().share(NodeId(77), memfd(b"").as_fd());
        assert_eq!(shared.unwrap_err(), Errno::PERM);
        assert!(fixture.passthrough().is_empty());
    });
}

#[test]
fn only_regular_files_are_taken() {
    run(Plan::passthrough(), |fixture| {
        let directory: OwnedFd = File::open(fixture.outside(".")).unwrap().into();
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        let device: OwnedFd = File::open("/dev/null").unwrap().into();
        for (what, fd) in [("a directory", directory), ("a pipe", pipe), ("a device", device)] {
            let shared = sys::without(CapabilitySet::FSETID, || {
                fixture.passthrough().share(NodeId(77), fd.as_fd()).map(drop)
            });
            assert!(shared.is_err(), "{what}");
        }
        if let Some(block) = block_device() {
            let shared = sys::without(CapabilitySet::FSETID, || {
                fixture.passthrough().share(NodeId(77), block.as_fd()).map(drop)
            });
            assert!(shared.is_err(), "a block device");
        }
        assert!(fixture.passthrough().is_empty());
    });
}

/// Opens some block device, where the machine has one.
fn block_device() -> Option<OwnedFd> {
    let mut names = fs::read_dir("/sys/class/block").ok()?.filter_map(|entry| Some(entry.ok()?.file_name()));
    names.find_map(|name| Some(File::open(std::path::Path::new("/dev").join(name)).ok()?.into()))
}

#[test]
fn an_unprivileged_write_clears_the_bits_of_the_backing_file() {
    let plan = Plan::passthrough().config(|config| config.require(Capabilities::HANDLE_KILLPRIV_V2));
    run(plan, |fixture| {
        for (name, backing) in [("memory", memfd(b"bytes")), ("disk", on_disk(fixture, "b", b"bytes"))] {
            let mode = || rustix::fs::fstat(&*backing).unwrap().st_mode & 0o7777;
            let node = add(fixture, name, backing.clone());
            fixture.fs.tree.lock().get(node).unwrap().attributes.mode = FileType::Regular.mode() | 0o6777;
            rustix::fs::fchmod(&*backing, rustix::fs::Mode::from_raw_mode(0o6777)).unwrap();
            assert_eq!(mode(), 0o6777);
            sys::as_user(USER, USER, &[], || {
                open(fixture, name).write_all_at(b"x", 0).unwrap();
            });
            assert_eq!(mode(), 0o777, "{name}");
        }
        assert_no_requests(fixture);
    });
}

#[test]
fn the_write_back_profile_refuses_passthrough_with_a_reason() {
    let plan = Plan::writeback().config(|config| config.request(Capabilities::PASSTHROUGH));
    run(plan, |fixture| {
        assert!(fixture.handle.passthrough().is_none());
        let refusal = fixture.handle.negotiated().refusal(Capabilities::PASSTHROUGH).unwrap();
        assert!(refusal.reason.contains("exclude each other"), "{refusal}");
        let node = add(fixture, "x", memfd(b"bytes"));
        assert_eq!(fs::read(fixture.path("x")).unwrap(), b"bytes", "the server serves the read");
        assert!(fixture.count(Opcode::Read) > 0);
        assert_eq!(fixture.fs.content(node), b"bytes");
    });
}

#[test]
fn a_server_without_cap_sys_admin_is_refused_with_a_reason() {
    if !fixture::can_mount() {
        return;
    }
    let Plan { config, options, .. } = Plan::passthrough();
    let detached = shunt_fuse::mount::prepare(&options).unwrap();
    let Some(device) = detached.device() else { return fixture::skip("this kernel has no fsopen") };
    let device = Device::new(device.try_clone_to_owned().unwrap()).unwrap();
    let session = sys::without(CapabilitySet::SYS_ADMIN, || {
        Session::<TestFs>::negotiate(TestFs::new(), config, device).unwrap()
    });
    let handle = session.handle();
    assert!(handle.passthrough().is_none());
    let refusal = handle.negotiated().refusal(Capabilities::PASSTHROUGH).unwrap();
    assert!(refusal.reason.contains("CAP_SYS_ADMIN"), "{refusal}");
}

#[test]
fn size_times_and_seeks_of_a_file_passed_through() {
    run(Plan::passthrough(), |fixture| {
        add(fixture, "x", memfd(&pattern(8192, 1)));
        let file = open(fixture, "x");
        file.set_len(100).unwrap();
        assert_eq!(file.metadata().unwrap().size(), 100);
        let mut bytes = vec![0; 200];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 100);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o644);
        // Operations that the kernel does not pass through still reach the server.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 5000).unwrap();
        assert_eq!(fixture.count(Opcode::Fallocate), 1);
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(5)).unwrap(), 105);
        assert_eq!(fixture.count(Opcode::Lseek), 1);
        assert_no_requests(fixture);
    });
}
