//! Tests that every opcode reaches its handler with the right arguments, and that the reply is encoded correctly.

use std::ffi::CStr;
use std::fmt::Write;

use parking_lot::Mutex;
use shunt_fuse::*;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{InitFlags, Operation as Op, Wire};
use shunt_fuse_mock::Served;

/// A file system that records its calls.
#[derive(Default)]
struct Recorder {
    calls: Mutex<Vec<String>>,
}

macro_rules! recorder {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty = $value:expr;)*) => {
        impl FileSystem for Recorder {
            fn forget(&self, node: NodeId, lookups: u64) {
                self.calls.lock().push(format!("forget {node} {lookups}"));
            }
            fn destroy(&self) {
                self.calls.lock().push("destroy".into());
            }
            $(async fn $name(&self, request: &Request<'_>, $($arg: $type),*) -> Result<$answer, Errno> {
                #[allow(unused_mut, reason = "syncfs has no arguments")]
                let mut call = format!("{} uid={} ", stringify!($name), request.uid());
                $(write!(call, "{}={:?} ", stringify!($arg), &$arg).unwrap();)*
                self.calls.lock().push(call);
                Ok($value)
            })*
        }
    };
}

const T: Timestamp = Timestamp { seconds: -3, nanoseconds: 999_999_999 };

fn attributes(mode: u32) -> Attributes {
    Attributes {
        ino: 77,
        size: 1 << 40,
        blocks: 8,
        atime: T,
        mtime: T,
        ctime: T,
        btime: Some(T),
        mode,
        nlink: 3,
        uid: 4,
        gid: 5,
        rdev: 0x1234_5678,
        blksize: 512,
        statx_attributes: 0x10,
        statx_attributes_mask: 0x30,
    }
}

fn entry(mode: u32) -> Entry {
    Entry {
        generation: 6,
        ..Entry::new(NodeId(77), attributes(mode), Expiry::after(std::time::Duration::new(8, 9)))
    }
}

fn created() -> Created {
    Created { entry: entry(0o100_644), opened: Opened::direct(FileHandle(70)) }
}

const STATFS: StatFs =
    StatFs { blocks: 1, bfree: 2, bavail: 3, files: 4, ffree: 5, bsize: 6, namelen: 7, frsize: 8 };
const LOCK: LockRange = LockRange { start: 1, end: 2, kind: LockType::Write, pid: 3 };

recorder! {
    lookup(parent: NodeId, name: Name<'_>) -> Entry = entry(0o100_644);
    getattr(node: NodeId, handle: Option<FileHandle>) -> (Attributes, Expiry) = (attributes(0o100_644), Expiry::NEVER_CACHED);
    statx(node: NodeId, handle: Option<FileHandle>, mask: u32) -> StatxReply
        = StatxReply { attributes: attributes(0o100_644), expiry: Expiry::NEVER_CACHED };
    setattr(node: NodeId, set: &SetAttributes) -> (Attributes, Expiry) = (attributes(0o100_644), Expiry::FOREVER);
    readlink(node: NodeId) -> Vec<u8> = b"target".to_vec();
    symlink(parent: NodeId, name: Name<'_>, target: &CStr) -> Entry = entry(0o120_777);
    mknod(parent: NodeId, name: Name<'_>, new: NewNode) -> Entry = entry(0o010_644);
    mkdir(parent: NodeId, name: Name<'_>, new: NewNode) -> Entry = entry(0o040_755);
    unlink(parent: NodeId, name: Name<'_>) -> () = ();
    rmdir(parent: NodeId, name: Name<'_>) -> () = ();
    rename(parent: NodeId, name: Name<'_>, new_parent: NodeId, new_name: Name<'_>, flags: RenameFlags) -> () = ();
    link(node: NodeId, new_parent: NodeId, new_name: Name<'_>) -> Entry = entry(0o100_644);
    open(node: NodeId, args: OpenArgs) -> Opened = Opened::cached(FileHandle(70)).keep_cache().nonseekable();
    create(parent: NodeId, name: Name<'_>, args: CreateArgs) -> Created = created();
    tmpfile(parent: NodeId, args: CreateArgs) -> Created = created();
    read(node: NodeId, args: ReadArgs) -> Data<'_> = Data::Slice(b"bytes");
    write(node: NodeId, args: WriteArgs, data: WriteData<'_>) -> usize = 3;
    flush(node: NodeId, handle: FileHandle, owner: LockOwner) -> () = ();
    release(node: NodeId, args: ReleaseArgs) -> () = ();
    fsync(node: NodeId, handle: FileHandle, data_only: bool) -> () = ();
    opendir(node: NodeId, args: OpenArgs) -> Opened = Opened::cached(FileHandle(71)).cache_listing();
    readdir(node: NodeId, handle: FileHandle, offset: u64, out: &mut DirectoryBuffer) -> () = {
        out.push(b"name", 77, FileType::Fifo, 9);
    };
    readdirplus(node: NodeId, handle: FileHandle, offset: u64, out: &mut DirectoryPlusBuffer) -> () = {
        out.push(b"name", &entry(0o100_644), 9);
    };
    releasedir(node: NodeId, args: ReleaseArgs) -> () = ();
    fsyncdir(node: NodeId, handle: FileHandle, data_only: bool) -> () = ();
    statfs(node: NodeId) -> StatFs = STATFS;
    setxattr(node: NodeId, name: &CStr, value: &[u8], set: XattrSet) -> () = ();
    getxattr(node: NodeId, name: &CStr, size: u32) -> XattrReply = XattrReply::fit(b"value".to_vec(), size)?;
    listxattr(node: NodeId, size: u32) -> XattrReply = XattrReply::fit(b"user.a\0".to_vec(), size)?;
    removexattr(node: NodeId, name: &CStr) -> () = ();
    access(node: NodeId, mask: u32) -> () = ();
    getlk(node: NodeId, args: LockArgs) -> LockRange = LOCK;
    setlk(node: NodeId, args: LockArgs) -> () = ();
    bmap(node: NodeId, block: u64, block_size: u32) -> u64 = 1234;
    ioctl(node: NodeId, args: IoctlArgs<'_>) -> IoctlReply = IoctlReply { result: -7, data: b"longer".to_vec() };
    poll(node: NodeId, args: PollArgs) -> u32 = 5;
    fallocate(node: NodeId, args: Fallocate) -> () = ();
    lseek(node: NodeId, handle: FileHandle, offset: u64, whence: Whence) -> u64 = 4096;
    copy_file_range(node_in: NodeId, node_out: NodeId, range: CopyRange) -> usize = 100;
    syncfs() -> () = ();
}

fn attr_out(mode: u32) -> abi::Attr {
    let [seconds, nanoseconds] = [T.seconds as u64, T.nanoseconds.into()];
    abi::Attr {
        ino: 77,
        size: 1 << 40,
        blocks: 8,
        atime: seconds,
        mtime: seconds,
        ctime: seconds,
        atimensec: nanoseconds as u32,
        mtimensec: nanoseconds as u32,
        ctimensec: nanoseconds as u32,
        mode,
        nlink: 3,
        uid: 4,
        gid: 5,
        rdev: 0x1234_5678,
        blksize: 512,
        flags: 0,
    }
}

fn entry_out(mode: u32) -> Vec<u8> {
    let out = abi::EntryOut {
        nodeid: 77,
        generation: 6,
        entry_valid: 8,
        attr_valid: 8,
        entry_valid_nsec: 9,
        attr_valid_nsec: 9,
        attr: attr_out(mode),
    };
    out.as_bytes().to_vec()
}

fn open_out(fh: u64, flags: abi::OpenOutFlags) -> Vec<u8> {
    abi::OpenOut { fh, open_flags: flags.bits(), backing_id: 0 }.as_bytes().to_vec()
}

fn attributes_out(attr_valid: u64) -> Vec<u8> {
    abi::AttrOut { attr_valid, attr: attr_out(0o100_644), ..Default::default() }.as_bytes().to_vec()
}

fn statx_out() -> Vec<u8> {
    let time = abi::StatxTimestamp { tv_sec: -3, tv_nsec: 999_999_999, ..Default::default() };
    let stat = abi::Statx {
        mask: 0xfff,
        blksize: 512,
        attributes: 0x10,
        nlink: 3,
        uid: 4,
        gid: 5,
        mode: 0o100_644,
        ino: 77,
        size: 1 << 40,
        blocks: 8,
        attributes_mask: 0x30,
        atime: time,
        btime: time,
        ctime: time,
        mtime: time,
        // The kernel's encoding: minor 0..8, major 8..20, minor 20..32.
        rdev_major: 0x456,
        rdev_minor: 0x12378,
        ..Default::default()
    };
    abi::StatxOut { stat, ..Default::default() }.as_bytes().to_vec()
}

fn listing(plus: bool) -> Vec<u8> {
    let mut out = abi::DirBuilder::new(4096);
    if plus {
        let mut entry =
            abi::EntryOut { nodeid: 77, generation: 6, attr: attr_out(0o100_644), ..Default::default() };
        (entry.entry_valid, entry.attr_valid, entry.entry_valid_nsec, entry.attr_valid_nsec) = (8, 8, 9, 9);
        out.push_plus(&entry, 77, 9, 8, b"name");
    } else {
        out.push(77, 9, 1, b"name");
    }
    out.into_bytes()
}

/// A row: the request, the call that the handler must see, the bytes that the kernel must receive.
type Row<'a> = (Op<'a>, &'a str, Vec<u8>);

fn names(newname: Name<'static>) -> Vec<Row<'static>> {
    let name = Name::new(c"file").unwrap();
    let created = [entry_out(0o100_644), open_out(70, abi::OpenOutFlags::DIRECT_IO)].concat();
    let create = abi::CreateIn { flags: 2, mode: 0o100_640, umask: 0o22, open_flags: 1 };
    let create_args = "args=CreateArgs { flags: 2, mode: 33184, umask: 18, kill_suidgid: true }";
    let node = "mode: 4516, umask: 18, rdev: 7 }";
    let mknod = abi::MknodIn { mode: 0o010_644, umask: 0o22, rdev: 7, padding: 0 };
    let mkdir = abi::MkdirIn { mode: 0o755, umask: 0o22 };
    vec![
        (Op::Lookup { name }, "lookup uid=3 parent=NodeId(9) name=\"file\"", entry_out(0o100_644)),
        (
            Op::Symlink { name, target: c"to" },
            "symlink uid=3 parent=NodeId(9) name=\"file\" target=\"to\"",
            entry_out(0o120_777),
        ),
        (Op::Mknod { arg: mknod, name }, node, entry_out(0o010_644)),
        (
            Op::Mkdir { arg: mkdir, name },
            "new=NewNode { mode: 16877, umask: 18, rdev: 0 }",
            entry_out(0o040_755),
        ),
        (Op::Unlink { name }, "unlink uid=3 parent=NodeId(9) name=\"file\"", vec![]),
        (Op::Rmdir { name }, "rmdir uid=3 parent=NodeId(9) name=\"file\"", vec![]),
        (
            Op::Rename { newdir: 8, flags: 0, name, newname },
            "parent=NodeId(9) name=\"file\" new_parent=NodeId(8) new_name=\"new\" flags=RenameFlags(0x0)",
            vec![],
        ),
        (
            Op::Rename2 { newdir: 8, flags: 2, name, newname },
            "name=\"file\" new_parent=NodeId(8) new_name=\"new\" flags=RenameFlags(EXCHANGE)",
            vec![],
        ),
        (
            Op::Link { oldnodeid: 8, newname },
            "link uid=3 node=NodeId(8) new_parent=NodeId(9) new_name=\"new\"",
            entry_out(0o100_644),
        ),
        (Op::Create { arg: create, name }, create_args, created.clone()),
        (Op::Tmpfile { arg: create }, create_args, created),
    ]
}

fn files() -> Vec<Row<'static>> {
    use abi::OpenOutFlags as Open;
    let read =
        abi::ReadIn { fh: 70, offset: 5, size: 4096, read_flags: 2, lock_owner: 6, flags: 1, padding: 0 };
    let write =
        abi::WriteIn { fh: 70, offset: 5, size: 4, write_flags: 7, lock_owner: 6, flags: 1, padding: 0 };
    let release = abi::ReleaseIn { fh: 70, flags: 1, release_flags: 2, lock_owner: 6 };
    let fsync = abi::FsyncIn { fh: 70, fsync_flags: 1, padding: 0 };
    let flush = abi::FlushIn { fh: 70, lock_owner: 6, ..Default::default() };
    let fallocate = abi::FallocateIn { fh: 70, offset: 1, length: 2, mode: 3, padding: 0 };
    let lseek = abi::LseekIn { fh: 70, offset: 1, whence: 4, padding: 0 };
    let copy = abi::CopyFileRangeIn {
        fh_in: 70,
        off_in: 1,
        nodeid_out: 8,
        fh_out: 71,
        off_out: 2,
        len: 1 << 40,
        flags: 0,
    };
    let ioctl = abi::IoctlIn { fh: 70, flags: 0, cmd: 5, arg: 6, in_size: 2, out_size: 4 };
    let ioctl_out = abi::IoctlOut { result: -7, ..Default::default() };
    let poll = abi::PollIn { fh: 70, kh: 8, flags: 1, events: 3 };
    let open = abi::OpenIn { flags: 2, open_flags: 1 };
    let read_args = "args=ReadArgs { handle: FileHandle(70), offset: 5, size: 4096, flags: 1, lock_owner: Some(LockOwner(6)) }";
    let release_args = "handle: FileHandle(70), flags: 1, flock_owner: Some(LockOwner(6)) }";
    vec![
        (
            Op::Open { arg: open },
            "open uid=3 node=NodeId(9) args=OpenArgs { flags: 2, kill_suidgid: true }",
            open_out(70, Open::KEEP_CACHE | Open::NONSEEKABLE),
        ),
        (Op::Read { arg: read }, read_args, b"bytes".to_vec()),
        (
            Op::Write { arg: write, data: b"data" },
            "from_cache: true, kill_suidgid: true, lock_owner: Some(LockOwner(6))",
            3_u64.to_ne_bytes().to_vec(),
        ),
        (Op::Flush { arg: flush }, "handle=FileHandle(70) owner=LockOwner(6)", vec![]),
        (Op::Release { arg: release }, release_args, vec![]),
        (Op::Fsync { arg: fsync }, "fsync uid=3 node=NodeId(9) handle=FileHandle(70) data_only=true", vec![]),
        (Op::Fallocate { arg: fallocate }, "offset: 1, length: 2, mode: 3", vec![]),
        (Op::Lseek { arg: lseek }, "offset=1 whence=Hole", 4096_u64.to_ne_bytes().to_vec()),
        (
            Op::CopyFileRange { arg: copy },
            "node_in=NodeId(9) node_out=NodeId(8) range=CopyRange { handle_in: FileHandle(70), offset_in: 1, handle_out: FileHandle(71), offset_out: 2, length: 4294963200",
            100_u64.to_ne_bytes().to_vec(),
        ),
        (Op::CopyFileRange64 { arg: copy }, "length: 1099511627776", 100_u64.to_ne_bytes().to_vec()),
        (
            Op::Ioctl { arg: ioctl, data: b"in" },
            "command: 5, argument: 6, data: [105, 110], out_size: 4",
            [ioctl_out.as_bytes(), b"long"].concat(),
        ),
        (Op::Poll { arg: poll }, "events: 3, notify: Some(PollHandle(8))", 5_u64.to_ne_bytes().to_vec()),
        (
            Op::Bmap { arg: abi::BmapIn { block: 1, blocksize: 512, padding: 0 } },
            "block=1 block_size=512",
            1234_u64.to_ne_bytes().to_vec(),
        ),
        (Op::Opendir { arg: open }, "opendir uid=3 node=NodeId(9)", open_out(71, Open::CACHE_DIR)),
        (
            Op::Readdir { arg: read },
            "readdir uid=3 node=NodeId(9) handle=FileHandle(70) offset=5",
            listing(false),
        ),
        (
            Op::Readdirplus { arg: read },
            "readdirplus uid=3 node=NodeId(9) handle=FileHandle(70) offset=5",
            listing(true),
        ),
        (Op::Releasedir { arg: release }, release_args, vec![]),
        (
            Op::Fsyncdir { arg: fsync },
            "fsyncdir uid=3 node=NodeId(9) handle=FileHandle(70) data_only=true",
            vec![],
        ),
    ]
}

fn inodes() -> Vec<Row<'static>> {
    let set = abi::SetattrIn {
        valid: 0xfff,
        fh: 70,
        size: 1,
        lock_owner: 2,
        ctime: 5,
        mode: 0o600,
        uid: 8,
        gid: 9,
        ..Default::default()
    };
    let statfs = abi::Kstatfs {
        blocks: 1,
        bfree: 2,
        bavail: 3,
        files: 4,
        ffree: 5,
        bsize: 6,
        namelen: 7,
        frsize: 8,
        ..Default::default()
    };
    let lk = abi::FileLock { start: 1, end: 2, r#type: 1, pid: 3 };
    let lock = abi::LkIn { fh: 70, owner: 6, lk, lk_flags: 1, padding: 0 };
    let lock_args = |wait| match wait {
        true => "kind: Write, pid: 3 }, kind: Flock, wait: true }",
        false => "kind: Write, pid: 3 }, kind: Flock, wait: false }",
    };
    let size = |size| abi::GetxattrIn { size, padding: 0 };
    let setxattr = abi::SetxattrIn { size: 3, flags: 2, setxattr_flags: 1, padding: 0 };
    vec![
        (
            Op::Getattr { arg: abi::GetattrIn { getattr_flags: 1, fh: 70, dummy: 0 } },
            "getattr uid=3 node=NodeId(9) handle=Some(FileHandle(70))",
            attributes_out(0),
        ),
        (
            Op::Statx { arg: abi::StatxIn { sx_mask: 0xfff, ..Default::default() } },
            "statx uid=3 node=NodeId(9) handle=None mask=4095",
            statx_out(),
        ),
        (
            Op::Setattr { arg: set },
            "SetAttributes { mode: Some(384), uid: Some(8), gid: Some(9), size: Some(1), atime: Some(Now), mtime: Some(Now), ctime: Some(Timestamp { seconds: 5, nanoseconds: 0 }), handle: Some(FileHandle(70)), lock_owner: Some(LockOwner(2)), kill_suidgid: true }",
            attributes_out(u32::MAX.into()),
        ),
        (Op::Readlink, "readlink uid=3 node=NodeId(9)", b"target".to_vec()),
        (Op::Statfs, "statfs uid=3 node=NodeId(9)", statfs.as_bytes().to_vec()),
        (
            Op::Setxattr { arg: setxattr, name: c"user.a", value: b"val" },
            "name=\"user.a\" value=[118, 97, 108] set=XattrSet { flags: 2, acl_kill_sgid: true }",
            vec![],
        ),
        (
            Op::Getxattr { arg: size(0), name: c"user.a" },
            "name=\"user.a\" size=0",
            5_u64.to_ne_bytes().to_vec(),
        ),
        (Op::Getxattr { arg: size(5), name: c"user.a" }, "name=\"user.a\" size=5", b"value".to_vec()),
        (
            Op::Listxattr { arg: size(0) },
            "listxattr uid=3 node=NodeId(9) size=0",
            7_u64.to_ne_bytes().to_vec(),
        ),
        (Op::Listxattr { arg: size(7) }, "listxattr uid=3 node=NodeId(9) size=7", b"user.a\0".to_vec()),
        (Op::Removexattr { name: c"user.a" }, "removexattr uid=3 node=NodeId(9) name=\"user.a\"", vec![]),
        (
            Op::Access { arg: abi::AccessIn { mask: 4, padding: 0 } },
            "access uid=3 node=NodeId(9) mask=4",
            vec![],
        ),
        (Op::Getlk { arg: lock }, lock_args(false), abi::LkOut { lk }.as_bytes().to_vec()),
        (Op::Setlk { arg: lock }, lock_args(false), vec![]),
        (Op::Setlkw { arg: lock }, lock_args(true), vec![]),
        (Op::Syncfs, "syncfs uid=3", vec![]),
        (Op::Destroy, "destroy", vec![]),
    ]
}

/// A layer that forwards every operation to the recorder.
#[derive(Default)]
struct ForwardingLayer(Recorder);

impl FileSystem for ForwardingLayer {
    fn forget(&self, node: NodeId, lookups: u64) {
        self.0.forget(node, lookups);
    }

    fn destroy(&self) {
        self.0.destroy();
    }

    forward! {
        |layer| layer.0 => lookup, getattr, statx, setattr, readlink, symlink, mknod, mkdir, unlink, rmdir, rename, link,
            open, create, tmpfile, read, write, flush, release, fsync, opendir, readdir, readdirplus, releasedir, fsyncdir,
            statfs, setxattr, getxattr, listxattr, removexattr, access, getlk, setlk, bmap, ioctl, poll, fallocate, lseek,
            copy_file_range, syncfs
    }
}

#[test]
fn every_operation_there_and_back() {
    serves_every_operation(Recorder::default(), |recorder| &recorder.calls);
}

#[test]
fn every_operation_is_forwarded() {
    serves_every_operation(ForwardingLayer::default(), |layer| &layer.0.calls);
}

fn serves_every_operation<F: FileSystem>(fs: F, calls: fn(&F) -> &Mutex<Vec<String>>) {
    let config = Config::new(Profile::Passthrough).request(InitFlags::all() - InitFlags::WRITEBACK_CACHE);
    let kernel = Served::new(fs, config);
    kernel.set_caller(shunt_fuse_mock::Caller { uid: 3, gid: 4, pid: 5 });
    let rows: Vec<_> = [names(Name::new(c"new").unwrap()), files(), inodes()].concat();
    let mut seen: Vec<_> = rows.iter().map(|row| row.0.opcode()).collect();
    for (operation, call, answer) in rows {
        let opcode = operation.opcode();
        assert_eq!(kernel.call(9, &operation).unwrap(), answer, "answer of {opcode}");
        let made = std::mem::take(&mut *calls(kernel.fs()).lock());
        assert!(
            matches!(&made[..], [one] if one.contains(call)),
            "{opcode}: {made:?} where {call} was expected"
        );
        // The entries refer to one inode with several types, which the kernel would not accept.
        kernel.forget_all();
        kernel.call(9, &Op::Readlink).unwrap();
        calls(kernel.fs()).lock().clear();
    }
    seen.sort_unstable();
    seen.dedup();
    let served = abi::Opcode::ALL.iter().filter(|opcode| opcode.has_reply());
    let left: Vec<_> = served.filter(|opcode| !seen.contains(opcode)).collect();
    assert_eq!(left, [&abi::Opcode::Init, &abi::Opcode::Setupmapping, &abi::Opcode::Removemapping]);
    let items = [abi::ForgetOne { nodeid: 5, nlookup: 6 }, abi::ForgetOne { nodeid: 7, nlookup: 8 }];
    kernel.call(9, &Op::Forget { nlookup: 4 }).unwrap();
    kernel.call(9, &Op::BatchForget { items: abi::Items::new(&items) }).unwrap();
    let fs = kernel.finish();
    assert_eq!(*calls(&fs).lock(), ["forget 9 4", "forget 5 6", "forget 7 8"]);
}
