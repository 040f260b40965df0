//! Tests of every operation, triggered by its system call, with its arguments.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, StatxFlags, XattrFlags};
use rustix::io::Errno;
use shunt_fuse::{Capabilities, FileType, NodeId, Opcode, Timestamp};
use shunt_test_support::Loop;

use crate::common;
use crate::common::{
    Content, Fixture, Plan, TestFs, assert_same, eventually, fixture, pattern, run, run_with, sys,
};

const ROOT: NodeId = NodeId::ROOT;

fn plain(body: impl FnOnce(&Fixture)) {
    run(Plan::passthrough(), body);
}

fn open(fixture: &Fixture, name: &str) -> File {
    File::options().read(true).write(true).open(fixture.path(name)).unwrap()
}

#[track_caller]
fn came(fixture: &Fixture, op: Opcode, parts: &[&str]) {
    let call = fixture.fs.log.last(op);
    for part in parts {
        assert!(call.has(part), "{}: no {part} in {}", op.name(), call.args);
    }
}

#[test]
fn statx_shows_the_time_of_birth() {
    plain(|fixture| {
        fixture.fs.add_file("x", b"bytes");
        let mask = StatxFlags::BTIME | StatxFlags::BASIC_STATS;
        let stat = rustix::fs::statx(CWD, fixture.path("x"), AtFlags::empty(), mask).unwrap();
        assert_ne!(stat.stx_mask & StatxFlags::BTIME.bits(), 0);
        assert_eq!((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec), (1_000_000_007, 123_456_789));
        assert_eq!(stat.stx_size, 5);
        assert_eq!(fixture.count(Opcode::Statx), 1);
    });
}

#[test]
fn attributes_travel_whole() {
    plain(|fixture| {
        let node = fixture.fs.add_file("x", pattern(5000, 1));
        {
            let mut tree = fixture.fs.tree.lock();
            let attributes = &mut tree.get(node).unwrap().attributes;
            attributes.mode = FileType::Regular.mode() | 0o4751;
            (attributes.uid, attributes.gid, attributes.nlink) = (11, 22, 33);
            attributes.atime = Timestamp::new(-5, 1);
            attributes.mtime = Timestamp::new(1 << 33, 999_999_999);
            attributes.ctime = Timestamp::new(7, 8);
        }
        let stat = fs::metadata(fixture.path("x")).unwrap();
        assert_eq!((stat.mode(), stat.uid(), stat.gid(), stat.nlink()), (0o104_751, 11, 22, 33));
        assert_eq!((stat.atime(), stat.atime_nsec()), (-5, 1));
        assert_eq!((stat.mtime(), stat.mtime_nsec()), (1 << 33, 999_999_999));
        assert_eq!((stat.ctime(), stat.ctime_nsec()), (7, 8));
        assert_eq!((stat.size(), stat.blocks(), stat.ino()), (5000, 10, node.0));
    });
}

#[test]
fn attributes_are_set() {
    plain(|fixture| {
        fixture.fs.add_file("x", b"bytes");
        let file = open(fixture, "x");
        rustix::fs::chmod(fixture.path("x"), Mode::from_raw_mode(0o640)).unwrap();
        came(fixture, Opcode::Setattr, &["mode: Some(33184)", "uid: None", "size: None"]);
        std::os::unix::fs::chown(fixture.path("x"), Some(5), Some(6)).unwrap();
        came(fixture, Opcode::Setattr, &["uid: Some(5)", "gid: Some(6)"]);
        file.set_len(3).unwrap();
        came(fixture, Opcode::Setattr, &["size: Some(3)", "handle: Some(FileHandle("]);
        let time = SystemTime::UNIX_EPOCH + Duration::new(1234, 5678);
        file.set_modified(time).unwrap();
        came(
            fixture,
            Opcode::Setattr,
            &["mtime: Some(At(Timestamp { seconds: 1234, nanoseconds: 5678 }))", "atime: None"],
        );
        assert_eq!(file.metadata().unwrap().modified().unwrap(), time);
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        rustix::fs::futimens(&file, &times).unwrap();
        came(fixture, Opcode::Setattr, &["mtime: Some(Now)", "atime: Some(Now)"]);
    });
}

#[test]
fn inodes_of_every_kind_are_made() {
    plain(|fixture| {
        fs::create_dir(fixture.path("d")).unwrap();
        std::os::unix::fs::symlink("target", fixture.path("l")).unwrap();
        assert_eq!(fs::read_link(fixture.path("l")).unwrap().as_os_str(), "target");
        came(fixture, Opcode::Symlink, &["target"]);
        let make = |name: &str, kind, device| {
            rustix::fs::mknodat(CWD, fixture.path(name), kind, Mode::from_raw_mode(0o600), device).unwrap();
            fs::symlink_metadata(fixture.path(name)).unwrap()
        };
        use rustix::fs::FileType as Kind;
        assert_eq!(make("p", Kind::Fifo, 0).mode(), 0o010_600);
        assert_eq!(make("s", Kind::Socket, 0).mode(), 0o140_600);
        let device = rustix::fs::makedev(0x123, 0x45678);
        let made = make("c", Kind::CharacterDevice, device);
        assert_eq!((made.mode(), made.rdev()), (0o020_600, device));
        fs::hard_link(fixture.path("p"), fixture.path("d/p2")).unwrap();
        assert_eq!(fs::symlink_metadata(fixture.path("d/p2")).unwrap().nlink(), 2);
        fs::remove_file(fixture.path("d/p2")).unwrap();
        fs::remove_dir(fixture.path("d")).unwrap();
        for op in
            [Opcode::Mkdir, Opcode::Symlink, Opcode::Readlink, Opcode::Link, Opcode::Unlink, Opcode::Rmdir]
        {
            assert_eq!(fixture.count(op), 1, "{}", op.name());
        }
        assert_eq!(fixture.count(Opcode::Mknod), 3);
    });
}

#[test]
fn a_file_without_a_name_gets_one() {
    plain(|fixture| {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file: File = rustix::fs::open(fixture.root(), flags, Mode::from_raw_mode(0o600)).unwrap().into();
        assert_eq!(fixture.count(Opcode::Tmpfile), 1);
        file.write_all_at(b"bytes", 0).unwrap();
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, link, CWD, fixture.path("x"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(fs::read(fixture.path("x")).unwrap(), b"bytes");
    });
}

#[test]
fn renames_carry_their_flags() {
    plain(|fixture| {
        fixture.fs.add_file("a", b"a");
        fixture.fs.add_file("b", b"b");
        let rename = |from: &str, to: &str, flags| {
            rustix::fs::renameat_with(CWD, fixture.path(from), CWD, fixture.path(to), flags)
        };
        rename("a", "b", RenameFlags::EXCHANGE).unwrap();
        came(fixture, Opcode::Rename2, &["EXCHANGE"]);
        assert_eq!(fs::read(fixture.path("a")).unwrap(), b"b");
        // The kernel checks for existing names itself; the flag is still sent where the new name is free.
        assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename("a", "c", RenameFlags::NOREPLACE).unwrap();
        came(fixture, Opcode::Rename2, &["NOREPLACE"]);
        rename("c", "d", RenameFlags::WHITEOUT).unwrap();
        came(fixture, Opcode::Rename2, &["WHITEOUT"]);
        assert_eq!(fs::read(fixture.path("d")).unwrap(), b"b");
        fs::rename(fixture.path("d"), fixture.path("b")).unwrap();
        assert_eq!(fs::read(fixture.path("b")).unwrap(), b"b");
    });
}

#[test]
fn ranges_are_reserved_and_sought() {
    plain(|fixture| {
        fixture.fs.add_file("x", pattern(8192, 1));
        let file = open(fixture, "x");
        rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 100)
            .unwrap();
        came(fixture, Opcode::Fallocate, &["offset: 4096", "length: 100", "mode: 3"]);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 10_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10_000);
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(5)).unwrap(), 105);
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(5)).unwrap(), 205);
        came(fixture, Opcode::Lseek, &["5 Hole"]);
    });
}

#[test]
fn a_copy_beyond_four_gibibytes_is_one_request() {
    const LENGTH: usize = 5 << 30;
    let fs = TestFs::new();
    let large = sys::memfd(b"");
    rustix::fs::ftruncate(&*large, 6 << 30).unwrap();
    let (source, target) = (fs.add_file("in", Content::File(large)), fs.add_file("out", b""));
    run_with(Plan::passthrough(), fs, |fixture| {
        let (from, to) = (open(fixture, "in"), open(fixture, "out"));
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut 4096), &to, Some(&mut 8192), LENGTH).unwrap();
        came(
            fixture,
            Opcode::CopyFileRange,
            &[&format!("{source} {target}"), "offset_in: 4096", "offset_out: 8192"],
        );
        if fixture.handle.negotiated().minor >= 45 {
            assert_eq!(fixture.count(Opcode::CopyFileRange64), 1);
            assert_eq!(copied, LENGTH);
            came(fixture, Opcode::CopyFileRange, &[&format!("length: {LENGTH}")]);
        } else {
            assert_eq!(fixture.count(Opcode::CopyFileRange), 1);
            assert!(copied > 0 && copied < 4 << 30, "{copied}");
        }
    });
}

#[test]
fn inode_flags_are_asked_for_by_ioctl() {
    plain(|fixture| {
        fixture.fs.add_file("x", b"");
        let file = open(fixture, "x");
        assert_eq!(rustix::fs::ioctl_getflags(&file).unwrap(), rustix::fs::IFlags::IMMUTABLE);
        came(fixture, Opcode::Ioctl, &["command: 2148034049", "out_size: ", "directory: false"]);
        let directory = File::open(fixture.root()).unwrap();
        assert_eq!(rustix::fs::ioctl_getflags(&directory).unwrap(), rustix::fs::IFlags::IMMUTABLE);
        came(fixture, Opcode::Ioctl, &["directory: true"]);
        // SAFETY: no pointers are passed.
        let unknown = unsafe { libc::ioctl(file.as_raw_fd(), 0x1234, 0) };
        assert_eq!((unknown, sys::last_errno()), (-1, Errno::NOTTY));
    });
}

#[test]
fn locks_of_both_families_reach_the_server() {
    let locks = Capabilities::POSIX_LOCKS | Capabilities::FLOCK_LOCKS;
    run(Plan::passthrough().config(|config| config.require(locks)), |fixture| {
        fixture.fs.add_file("x", b"");
        let (a, b) = (open(fixture, "x"), open(fixture, "x"));
        rustix::fs::flock(&a, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        came(fixture, Opcode::Setlk, &["kind: Flock", "kind: Write"]);
        let taken = rustix::fs::flock(&b, rustix::fs::FlockOperation::NonBlockingLockShared);
        assert_eq!(taken, Err(Errno::AGAIN));
        drop(a);
        eventually("RELEASE ends a flock", || fixture.fs.locks.held() == 0);
        came(fixture, Opcode::Release, &["flock_owner: Some("]);
        rustix::fs::flock(&b, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
        rustix::fs::flock(&b, rustix::fs::FlockOperation::Unlock).unwrap();
        assert_eq!(fixture.fs.locks.held(), 0);

        sys::posix_lock(&b, libc::F_SETLK, libc::F_WRLCK).unwrap();
        came(fixture, Opcode::Setlk, &["kind: Posix", "start: 0", "end: 9223372036854775807"]);
        let free = sys::posix_lock(&b, libc::F_GETLK, libc::F_WRLCK).unwrap();
        assert_eq!(free.l_type as i32, libc::F_UNLCK, "the own lock does not conflict");
        assert_eq!(fixture.count(Opcode::Getlk), 1);
        // The lock of an open file description has another owner.
        let other = open(fixture, "x");
        assert_eq!(sys::posix_lock(&other, libc::F_OFD_SETLK, libc::F_RDLCK).map(drop), Err(Errno::AGAIN));
        sys::posix_lock(&b, libc::F_SETLK, libc::F_UNLCK).unwrap();
        sys::posix_lock(&other, libc::F_OFD_SETLK, libc::F_RDLCK).unwrap();
    });
}

#[test]
fn attributes_with_names_are_set_read_listed_and_removed() {
    plain(|fixture| {
        fixture.fs.add_file("x", b"");
        let path = fixture.path("x");
        let value = pattern(3000, 1);
        rustix::fs::setxattr(&path, c"user.one", &value, XattrFlags::CREATE).unwrap();
        came(fixture, Opcode::Setxattr, &["flags: 1"]);
        let mut buffer = vec![0; 5000];
        assert_eq!(rustix::fs::getxattr(&path, c"user.one", &mut buffer[..]).unwrap(), 3000);
        assert_same(&buffer[..3000], &value, "the value");
        assert_eq!(rustix::fs::getxattr_query(&path, c"user.one").unwrap(), 3000);
        assert_eq!(rustix::fs::getxattr(&path, c"user.one", &mut buffer[..10]), Err(Errno::RANGE));
        assert_eq!(rustix::fs::getxattr(&path, c"user.two", &mut buffer[..]), Err(Errno::NODATA));
        let length = rustix::fs::listxattr(&path, &mut buffer[..]).unwrap();
        assert_eq!(&buffer[..length], b"user.one\0");
        rustix::fs::removexattr(&path, c"user.one").unwrap();
        assert_eq!(rustix::fs::listxattr(&path, &mut buffer[..]).unwrap(), 0);
    });
}

#[test]
fn access_is_asked_of_the_server_without_default_permissions() {
    plain(|fixture| {
        fixture.fs.add_file("x", b"");
        rustix::fs::access(fixture.path("x"), rustix::fs::Access::READ_OK).unwrap();
        came(fixture, Opcode::Access, &["4"]);
        assert_eq!(rustix::fs::access(fixture.path("x"), rustix::fs::Access::EXEC_OK), Err(Errno::ACCESS));
    });
    run(Plan::passthrough().options(|options| options.default_permissions(true)), |fixture| {
        fixture.fs.add_file("x", b"");
        rustix::fs::access(fixture.path("x"), rustix::fs::Access::READ_OK).unwrap();
        assert_eq!(fixture.count(Opcode::Access), 0);
    });
}

#[test]
fn free_space_is_told() {
    plain(|fixture| {
        let stat = rustix::fs::statvfs(fixture.root()).unwrap();
        assert_eq!((stat.f_blocks, stat.f_bfree, stat.f_bavail), (1000, 600, 500));
        assert_eq!((stat.f_files, stat.f_ffree), (77, 33));
        assert_eq!((stat.f_frsize, stat.f_namemax), (1024, 200));
    });
}

#[test]
fn syncs_tell_data_from_everything() {
    plain(|fixture| {
        fixture.fs.add_file("x", b"");
        let file = open(fixture, "x");
        file.sync_data().unwrap();
        came(fixture, Opcode::Fsync, &["data_only: true"]);
        file.sync_all().unwrap();
        came(fixture, Opcode::Fsync, &["data_only: false"]);
        File::open(fixture.root()).unwrap().sync_all().unwrap();
        came(fixture, Opcode::Fsyncdir, &["data_only: false"]);
    });
}

#[test]
fn the_callers_ids_travel() {
    plain(|fixture| {
        fixture.fs.add_dir(ROOT, "d");
        fixture.fs.tree.lock().get(ROOT).unwrap().attributes.mode = FileType::Directory.mode() | 0o777;
        sys::as_user(1234, 5678, &[], || fs::create_dir(fixture.path("d/x")).unwrap());
        let call = fixture.fs.log.last(Opcode::Mkdir);
        assert_eq!((call.uid, call.gid, call.pid), (1234, 5678, call.pid));
        assert_ne!(call.pid, 0);
        assert!(call.groups.is_empty());
    });
}

#[test]
fn the_supplementary_group_of_a_new_inode_travels() {
    plain(|fixture| {
        let node = fixture.fs.add_dir(ROOT, "d");
        {
            let mut tree = fixture.fs.tree.lock();
            let attributes = &mut tree.get(node).unwrap().attributes;
            attributes.mode = FileType::Directory.mode() | 0o2777;
            attributes.gid = 5000;
        }
        sys::as_user(1000, 1000, &[5000, 6000], || {
            fs::create_dir(fixture.path("d/x")).unwrap();
            File::create(fixture.path("d/f")).unwrap();
        });
        assert_eq!(fixture.fs.log.last(Opcode::Mkdir).groups, [5000]);
        assert_eq!(fixture.fs.log.last(Opcode::Create).groups, [5000]);
        sys::as_user(1000, 1000, &[6000], || fs::create_dir(fixture.path("d/y")).unwrap());
        assert!(fixture.fs.log.last(Opcode::Mkdir).groups.is_empty(), "no groups are sent for a non-member");
    });
}

/// Makes a directory and a file under the umask 027.
fn make_under_a_umask(fixture: &Fixture) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The umask belongs to the process, unless a thread takes its own.
            // SAFETY: nothing that the thread shares with others by this is used unsafely.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }.unwrap();
            rustix::process::umask(Mode::from_raw_mode(0o027));
            rustix::fs::mkdir(fixture.path("d"), Mode::from_raw_mode(0o777)).unwrap();
            File::options().create_new(true).write(true).mode(0o666).open(fixture.path("f")).unwrap();
        });
    });
}

#[test]
fn the_umask_is_applied_by_the_kernel_or_left_to_the_server() {
    plain(|fixture| {
        make_under_a_umask(fixture);
        came(fixture, Opcode::Mkdir, &[&format!("mode: {}", 0o040_750)]);
        assert_eq!(fs::metadata(fixture.path("f")).unwrap().mode() & 0o777, 0o640);
    });
    run(Plan::passthrough().config(|config| config.require(Capabilities::DONT_MASK)), |fixture| {
        make_under_a_umask(fixture);
        came(fixture, Opcode::Mkdir, &[&format!("mode: {}", 0o040_777), &format!("umask: {}", 0o027)]);
        came(fixture, Opcode::Create, &[&format!("umask: {}", 0o027)]);
        assert_eq!(fs::metadata(fixture.path("f")).unwrap().mode() & 0o777, 0o666);
    });
}

#[test]
fn directories_are_listed_whole() {
    for capabilities in [Capabilities::empty(), Capabilities::DO_READDIRPLUS] {
        run(Plan::passthrough().config(|config| config.request(capabilities)), |fixture| {
            let names: Vec<String> = (0..2500).map(|n| format!("{n:04}-{}", "x".repeat(n % 200))).collect();
            for name in &names {
                fixture.fs.add_file(name, b"");
            }
            let mut listed: Vec<_> = fs::read_dir(fixture.root())
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            listed.sort();
            assert_eq!(listed, names);
            let plus = capabilities.contains(Capabilities::DO_READDIRPLUS);
            assert_eq!(fixture.count(Opcode::Readdirplus) > 0, plus);
            let (lookups, ()) = fixture.during(Opcode::Lookup, || {
                names.iter().for_each(|name| assert!(fixture.path(name).exists()));
            });
            assert_eq!(lookups, if plus { 0 } else { 2500 }, "READDIRPLUS replaces the lookups");
        });
    }
}

#[test]
fn references_are_given_back() {
    let fs = TestFs::new();
    let nodes: Vec<NodeId> = (0..500).map(|n| fs.add_file(&format!("f{n}"), b"")).collect();
    let config = |config: shunt_fuse::Config| config.request(Capabilities::DO_READDIRPLUS);
    run_with(Plan::passthrough().config(config), fs, |fixture| {
        assert_eq!(fs::read_dir(fixture.root()).unwrap().count(), 500);
        (0..500).for_each(|n| {
            fs::metadata(fixture.path(&format!("f{n}"))).unwrap();
            fs::remove_file(fixture.path(&format!("f{n}"))).unwrap();
        });
        eventually("FORGET of every node", || nodes.iter().all(|node| fixture.fs.lookups(*node) == 0));
    });
}

#[test]
fn a_block_device_gets_syncfs_bmap_and_destroy() {
    if !fixture::can_mount() {
        return;
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let Some(device) = Loop::over(image.path()) else {
        return fixture::skip("loop devices are not available");
    };
    let fs = TestFs::new();
    fs.add_file("x", pattern(8192, 1));
    let plan = Plan::passthrough().options(|options| options.blkdev(device.path()).blksize(512));
    run_with(plan, fs, |fixture| {
        let file = open(fixture, "x");
        let mut block: libc::c_int = 3;
        const FIBMAP: libc::c_ulong = 1;
        // SAFETY: the call reads and writes one integer, which outlives it.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), FIBMAP, &raw mut block) };
        assert_eq!((result, block), (0, 3 + 4242));
        came(fixture, Opcode::Bmap, &["3 "]);
        rustix::fs::syncfs(&file).unwrap();
        let sent = fixture.count(Opcode::Syncfs);
        assert_eq!(
            sent,
            u64::from(fixture.handle.negotiated().minor >= 45),
            "SYNCFS is sent since Linux 6.18"
        );
        drop(file);
        common::fixture::unmount(fixture.take().unwrap());
        assert!(fixture.fs.destroyed.load(Ordering::SeqCst));
        assert_eq!(fixture.count(Opcode::Destroy), 1);
    });
}

#[test]
fn a_plain_mount_gets_neither_syncfs_nor_destroy() {
    plain(|fixture| {
        let directory = File::open(fixture.root()).unwrap();
        rustix::fs::syncfs(&directory).unwrap();
        drop(directory);
        common::fixture::unmount(fixture.take().unwrap());
        assert_eq!((fixture.count(Opcode::Syncfs), fixture.count(Opcode::Destroy)), (0, 0));
        assert!(
            fixture.fs.destroyed.load(Ordering::SeqCst),
            "the session ends the file system without DESTROY"
        );
    });
}
