//! Dispatch: calls the handler of a parsed request, and turns its result into a reply. Sending the reply encodes it, counts
//! opens, and undoes its effects (lookups and opens) where the kernel no longer accepts it.

use std::sync::Arc;

use rustix::io::Errno;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{Opcode, Operation, SetattrValid, Wire};

use super::{FileSystem, Handle, Request};
use crate::api::*;
use crate::id::*;
use crate::takeover::{OpenKind, OpenRecord};
use crate::transport::Channel;
use crate::transport::payload::*;

/// A reply that has not been encoded yet.
pub(crate) enum Reply<'a> {
    Empty,
    Entry(abi::EntryOut),
    Attributes(abi::AttrOut),
    Statx(abi::StatxOut),
    Opened {
        node: NodeId,
        flags: u32,
        opened: Opened,
    },
    OpenedDirectory {
        node: NodeId,
        flags: u32,
        opened: Opened,
    },
    Created {
        entry: abi::EntryOut,
        flags: u32,
        opened: Opened,
    },
    /// The reply of an earlier server, repeated.
    Reopened(OpenKind, OpenRecord),
    Recreated {
        entry: abi::EntryOut,
        record: OpenRecord,
    },
    Written(usize),
    CopiedWide(usize),
    Bytes(Vec<u8>),
    Data(Data<'a>),
    Size(u32),
    Statfs(abi::StatfsOut),
    Lock(abi::LkOut),
    Block(u64),
    Ioctl(IoctlReply),
    Events(u32),
    Offset(u64),
    Listing(abi::DirBuilder),
    ListingPlus(abi::DirBuilder),
}

/// Reports whether a waiting request changes nothing, so that it may be dropped when its caller is interrupted.
pub(crate) fn is_cancellable(opcode: u32) -> bool {
    Opcode::from_raw(opcode).is_some_and(|opcode| {
        matches!(
            opcode,
            Opcode::Lookup
                | Opcode::Getattr
                | Opcode::Statx
                | Opcode::Readlink
                | Opcode::Read
                | Opcode::Readdir
                | Opcode::Readdirplus
                | Opcode::Getxattr
                | Opcode::Listxattr
                | Opcode::Getlk
                | Opcode::Setlkw
                | Opcode::Lseek
                | Opcode::Poll
                | Opcode::Statfs
                | Opcode::Access
                | Opcode::Bmap
                | Opcode::Fsync
                | Opcode::Fsyncdir
        )
    })
}

fn attributes((attributes, expiry): (Attributes, Expiry)) -> Reply<'static> {
    let (attr_valid, attr_valid_nsec) = expiry.wire();
    Reply::Attributes(abi::AttrOut {
        attr_valid,
        attr_valid_nsec,
        attr: attributes.wire(),
        ..Default::default()
    })
}

/// Fits the reply to the requested size: the kernel turns unrequested bytes into EIO.
fn xattr(reply: XattrReply, requested: u32) -> Result<Reply<'static>, Errno> {
    Ok(match reply {
        XattrReply::Size(size) => Reply::Size(size),
        XattrReply::Bytes(bytes) => match XattrReply::fit(bytes, requested)? {
            XattrReply::Size(size) => Reply::Size(size),
            XattrReply::Bytes(bytes) => Reply::Bytes(bytes),
        },
    })
}

fn created(created: Created, flags: u32) -> Reply<'static> {
    Reply::Created { entry: created.entry.wire(), flags, opened: created.opened }
}

fn lock(arg: &abi::LkIn, wait: bool) -> Result<LockArgs, Errno> {
    let kind = match arg.lk.r#type as i32 {
        libc::F_RDLCK => LockType::Read,
        libc::F_WRLCK => LockType::Write,
        libc::F_UNLCK => LockType::Unlock,
        _ => return Err(Errno::INVAL),
    };
    let flags = abi::LkFlags::from_bits_retain(arg.lk_flags);
    Ok(LockArgs {
        handle: FileHandle(arg.fh),
        owner: LockOwner(arg.owner),
        range: LockRange { start: arg.lk.start, end: arg.lk.end, kind, pid: arg.lk.pid },
        kind: if flags.contains(abi::LkFlags::FLOCK) { LockKind::Flock } else { LockKind::Posix },
        wait,
    })
}

fn set_attributes(arg: &abi::SetattrIn) -> SetAttributes {
    let valid = SetattrValid::from_bits_retain(arg.valid);
    let time = |explicit, now, seconds: u64, nanoseconds| match () {
        () if valid.contains(now) => Some(SetTime::Now),
        () if valid.contains(explicit) => Some(SetTime::At(Timestamp::new(seconds as i64, nanoseconds))),
        () => None,
    };
    let when = |flag| valid.contains(flag);
    // An empty SETATTR: a write that bypasses the daemon found a setuid or setgid bit, and the request has no other content.
    let empty = (valid - SetattrValid::FH).is_empty();
    SetAttributes {
        mode: when(SetattrValid::MODE).then_some(arg.mode),
        uid: when(SetattrValid::UID).then_some(arg.uid),
        gid: when(SetattrValid::GID).then_some(arg.gid),
        size: when(SetattrValid::SIZE).then_some(arg.size),
        atime: time(SetattrValid::ATIME, SetattrValid::ATIME_NOW, arg.atime, arg.atimensec),
        mtime: time(SetattrValid::MTIME, SetattrValid::MTIME_NOW, arg.mtime, arg.mtimensec),
        ctime: when(SetattrValid::CTIME).then(|| Timestamp::new(arg.ctime as i64, arg.ctimensec)),
        handle: when(SetattrValid::FH).then_some(FileHandle(arg.fh)),
        lock_owner: when(SetattrValid::LOCKOWNER).then_some(LockOwner(arg.lock_owner)),
        kill_suidgid: empty || when(SetattrValid::KILL_SUIDGID),
    }
}

fn open_args(arg: &abi::OpenIn) -> OpenArgs {
    let flags = abi::OpenFlags::from_bits_retain(arg.open_flags);
    OpenArgs { flags: arg.flags, kill_suidgid: flags.contains(abi::OpenFlags::KILL_SUIDGID) }
}

fn create_args(arg: &abi::CreateIn) -> CreateArgs {
    let flags = abi::OpenFlags::from_bits_retain(arg.open_flags);
    CreateArgs {
        flags: arg.flags,
        mode: arg.mode,
        umask: arg.umask,
        kill_suidgid: flags.contains(abi::OpenFlags::KILL_SUIDGID),
    }
}

fn release_args(arg: &abi::ReleaseIn) -> ReleaseArgs {
    let flags = abi::ReleaseFlags::from_bits_retain(arg.release_flags);
    let flock_owner = flags.contains(abi::ReleaseFlags::FLOCK_UNLOCK).then_some(LockOwner(arg.lock_owner));
    ReleaseArgs { handle: FileHandle(arg.fh), flags: arg.flags, flock_owner }
}

fn read_args(arg: &abi::ReadIn) -> ReadArgs {
    let flags = abi::ReadFlags::from_bits_retain(arg.read_flags);
    ReadArgs {
        handle: FileHandle(arg.fh),
        offset: arg.offset,
        size: arg.size,
        flags: arg.flags,
        lock_owner: flags.contains(abi::ReadFlags::LOCKOWNER).then_some(LockOwner(arg.lock_owner)),
    }
}

pub(crate) fn write_args(arg: &abi::WriteIn) -> WriteArgs {
    let flags = abi::WriteFlags::from_bits_retain(arg.write_flags);
    WriteArgs {
        handle: FileHandle(arg.fh),
        offset: arg.offset,
        flags: arg.flags,
        from_cache: flags.contains(abi::WriteFlags::CACHE),
        kill_suidgid: flags.contains(abi::WriteFlags::KILL_SUIDGID),
        lock_owner: flags.contains(abi::WriteFlags::LOCKOWNER).then_some(LockOwner(arg.lock_owner)),
    }
}

fn copy_range(arg: &abi::CopyFileRangeIn) -> CopyRange {
    CopyRange {
        handle_in: FileHandle(arg.fh_in),
        offset_in: arg.off_in,
        handle_out: FileHandle(arg.fh_out),
        offset_out: arg.off_out,
        length: arg.len,
        flags: arg.flags,
    }
}

/// Maximum size of a listing: the kernel asks for the rest.
const MAX_LISTING_BYTES: u32 = 1 << 20;

/// Reports whether the kernel honours a count that is smaller than what it wrote. It ignores the count of a write-back, so that
/// data would be lost without an error; and it returns EIO where a direct write may continue in the background.
fn may_be_short(request: &Request<'_>, args: &WriteArgs) -> bool {
    let negotiated = request.session().negotiated();
    let back = args.from_cache && negotiated.has(abi::InitFlags::WRITEBACK_CACHE);
    let direct = args.flags & libc::O_DIRECT as u32 != 0 && negotiated.has(abi::InitFlags::ASYNC_DIO);
    !(back || direct)
}

/// Calls the handler of one operation.
pub(crate) async fn dispatch<'a, F: FileSystem>(
    fs: &'a F,
    request: &Request<'_>,
    operation: Operation<'_>,
    payload: Option<&Payload>,
) -> Result<Reply<'a>, Errno> {
    let node = request.node();
    let fsync_data_only =
        |flags| abi::FsyncFlags::from_bits_retain(flags).contains(abi::FsyncFlags::FDATASYNC);
    Ok(match operation {
        Operation::Lookup { name } => {
            // Recorded before the lookup, and once more after it, since it may have waited.
            let notifier = &request.session.shared.notifier;
            notifier.record_lookup_reply(node, name.as_bytes());
            let entry = fs.lookup(request, node, name).await?;
            notifier.record_lookup_reply(node, name.as_bytes());
            Reply::Entry(entry.wire())
        }
        Operation::Getattr { arg } => {
            let flags = abi::GetattrFlags::from_bits_retain(arg.getattr_flags);
            let handle = flags.contains(abi::GetattrFlags::FH).then_some(FileHandle(arg.fh));
            attributes(fs.getattr(request, node, handle).await?)
        }
        Operation::Statx { arg } => {
            let flags = abi::GetattrFlags::from_bits_retain(arg.getattr_flags);
            let handle = flags.contains(abi::GetattrFlags::FH).then_some(FileHandle(arg.fh));
            let answer = fs.statx(request, node, handle, arg.sx_mask).await?;
            let (attr_valid, attr_valid_nsec) = answer.expiry.wire();
            let stat = answer.attributes.statx_wire();
            Reply::Statx(abi::StatxOut { attr_valid, attr_valid_nsec, stat, ..Default::default() })
        }
        Operation::Setattr { arg } => attributes(fs.setattr(request, node, &set_attributes(&arg)).await?),
        Operation::Readlink => Reply::Bytes(fs.readlink(request, node).await?),
        Operation::Symlink { name, target } => {
            Reply::Entry(fs.symlink(request, node, name, target).await?.wire())
        }
        Operation::Mknod { arg, name } => {
            let new = NewNode { mode: arg.mode, umask: arg.umask, rdev: arg.rdev };
            Reply::Entry(fs.mknod(request, node, name, new).await?.wire())
        }
        Operation::Mkdir { arg, name } => {
            let mode = arg.mode & 0o7777 | libc::S_IFDIR;
            let new = NewNode { mode, umask: arg.umask, rdev: 0 };
            Reply::Entry(fs.mkdir(request, node, name, new).await?.wire())
        }
        Operation::Unlink { name } => {
            fs.unlink(request, node, name).await?;
            Reply::Empty
        }
        Operation::Rmdir { name } => {
            fs.rmdir(request, node, name).await?;
            Reply::Empty
        }
        Operation::Rename { newdir, flags, name, newname }
        | Operation::Rename2 { newdir, flags, name, newname } => {
            let flags = RenameFlags::from_bits_retain(flags);
            fs.rename(request, node, name, NodeId(newdir), newname, flags).await?;
            Reply::Empty
        }
        Operation::Link { oldnodeid, newname } => {
            Reply::Entry(fs.link(request, NodeId(oldnodeid), node, newname).await?.wire())
        }
        Operation::Open { arg } => {
            let opened = fs.open(request, node, open_args(&arg)).await?;
            Reply::Opened { node, flags: arg.flags, opened }
        }
        Operation::Create { arg, name } => {
            created(fs.create(request, node, name, create_args(&arg)).await?, arg.flags)
        }
        Operation::Tmpfile { arg } => created(fs.tmpfile(request, node, create_args(&arg)).await?, arg.flags),
        Operation::Read { arg } => Reply::Data(fs.read(request, node, read_args(&arg)).await?.cut(arg.size)),
        Operation::Write { arg, data } => {
            let data = match payload {
                Some(payload) => WriteData::left(payload),
                None => WriteData::slice(data),
            };
            let length = data.len();
            let args = write_args(&arg);
            let written = fs.write(request, node, args, data).await?;
            if written < length && !may_be_short(request, &args) {
                return Err(Errno::NOSPC);
            }
            Reply::Written(written.min(length))
        }
        Operation::Flush { arg } => {
            fs.flush(request, node, FileHandle(arg.fh), LockOwner(arg.lock_owner)).await?;
            Reply::Empty
        }
        Operation::Release { arg } => {
            let shared = &request.session.shared;
            // Released before the file system is called: what it opens from then on must not inherit this mode.
            let backing = shared.modes.release(node);
            let released = fs.release(request, node, release_args(&arg)).await;
            shared.closed(FileHandle(arg.fh), backing);
            released?;
            Reply::Empty
        }
        Operation::Fsync { arg } => {
            fs.fsync(request, node, FileHandle(arg.fh), fsync_data_only(arg.fsync_flags)).await?;
            Reply::Empty
        }
        Operation::Opendir { arg } => {
            let opened = fs.opendir(request, node, open_args(&arg)).await?;
            Reply::OpenedDirectory { node, flags: arg.flags, opened }
        }
        Operation::Readdir { arg } => {
            let mut out = DirectoryBuffer::new(arg.size.min(MAX_LISTING_BYTES));
            fs.readdir(request, node, FileHandle(arg.fh), arg.offset, &mut out).await?;
            Reply::Listing(out.0)
        }
        Operation::Readdirplus { arg } => {
            let mut out = DirectoryPlusBuffer::new(arg.size.min(MAX_LISTING_BYTES));
            let listed = fs.readdirplus(request, node, FileHandle(arg.fh), arg.offset, &mut out).await;
            if let Err(errno) = listed {
                forget_listing(fs, &out.0);
                return Err(errno);
            }
            Reply::ListingPlus(out.0)
        }
        Operation::Releasedir { arg } => {
            let released = fs.releasedir(request, node, release_args(&arg)).await;
            request.session.shared.closed_directory(FileHandle(arg.fh));
            released?;
            Reply::Empty
        }
        Operation::Fsyncdir { arg } => {
            fs.fsyncdir(request, node, FileHandle(arg.fh), fsync_data_only(arg.fsync_flags)).await?;
            Reply::Empty
        }
        Operation::Statfs => {
            let answer = fs.statfs(request, node).await?;
            let st = abi::Kstatfs {
                blocks: answer.blocks,
                bfree: answer.bfree,
                bavail: answer.bavail,
                files: answer.files,
                ffree: answer.ffree,
                bsize: answer.bsize,
                namelen: answer.namelen,
                frsize: answer.frsize,
                ..Default::default()
            };
            Reply::Statfs(abi::StatfsOut { st })
        }
        Operation::Setxattr { arg, name, value } => {
            let flags = abi::SetxattrFlags::from_bits_retain(arg.setxattr_flags);
            let acl_kill_sgid = flags.contains(abi::SetxattrFlags::ACL_KILL_SGID);
            fs.setxattr(request, node, name, value, XattrSet { flags: arg.flags, acl_kill_sgid }).await?;
            Reply::Empty
        }
        Operation::Getxattr { arg, name } => {
            xattr(fs.getxattr(request, node, name, arg.size).await?, arg.size)?
        }
        Operation::Listxattr { arg } => xattr(fs.listxattr(request, node, arg.size).await?, arg.size)?,
        Operation::Removexattr { name } => {
            fs.removexattr(request, node, name).await?;
            Reply::Empty
        }
        Operation::Access { arg } => {
            fs.access(request, node, arg.mask).await?;
            Reply::Empty
        }
        Operation::Getlk { arg } => {
            let found = fs.getlk(request, node, lock(&arg, false)?).await?;
            let kind = match found.kind {
                LockType::Read => libc::F_RDLCK,
                LockType::Write => libc::F_WRLCK,
                LockType::Unlock => libc::F_UNLCK,
            };
            let lk =
                abi::FileLock { start: found.start, end: found.end, r#type: kind as u32, pid: found.pid };
            Reply::Lock(abi::LkOut { lk })
        }
        Operation::Setlk { arg } => {
            fs.setlk(request, node, lock(&arg, false)?).await?;
            Reply::Empty
        }
        Operation::Setlkw { arg } => {
            fs.setlk(request, node, lock(&arg, true)?).await?;
            Reply::Empty
        }
        Operation::Bmap { arg } => Reply::Block(fs.bmap(request, node, arg.block, arg.blocksize).await?),
        Operation::Ioctl { arg, data } => {
            let flags = abi::IoctlFlags::from_bits_retain(arg.flags);
            if flags.contains(abi::IoctlFlags::UNRESTRICTED) {
                return Err(Errno::NOTTY);
            }
            let args = IoctlArgs {
                handle: FileHandle(arg.fh),
                command: arg.cmd,
                argument: arg.arg,
                data,
                out_size: arg.out_size,
                directory: flags.contains(abi::IoctlFlags::DIR),
                compat: flags.contains(abi::IoctlFlags::COMPAT),
            };
            let mut answer = fs.ioctl(request, node, args).await?;
            answer.data.truncate(arg.out_size as usize);
            Reply::Ioctl(answer)
        }
        Operation::Poll { arg } => {
            let flags = abi::PollFlags::from_bits_retain(arg.flags);
            let notify = flags.contains(abi::PollFlags::SCHEDULE_NOTIFY).then_some(PollHandle(arg.kh));
            let args = PollArgs { handle: FileHandle(arg.fh), events: arg.events, notify };
            Reply::Events(fs.poll(request, node, args).await?)
        }
        Operation::Fallocate { arg } => {
            let args = Fallocate {
                handle: FileHandle(arg.fh),
                offset: arg.offset,
                length: arg.length,
                mode: arg.mode,
            };
            fs.fallocate(request, node, args).await?;
            Reply::Empty
        }
        Operation::Lseek { arg } => {
            let whence = match arg.whence as i32 {
                libc::SEEK_DATA => Whence::Data,
                libc::SEEK_HOLE => Whence::Hole,
                _ => return Err(Errno::INVAL),
            };
            Reply::Offset(fs.lseek(request, node, FileHandle(arg.fh), arg.offset, whence).await?)
        }
        Operation::CopyFileRange { arg } => {
            // The reply's 32-bit count must be able to represent the result.
            let range = CopyRange { length: arg.len.min(u64::from(u32::MAX) & !0xfff), ..copy_range(&arg) };
            Reply::Written(fs.copy_file_range(request, node, NodeId(arg.nodeid_out), range).await?)
        }
        Operation::CopyFileRange64 { arg } => {
            let range = copy_range(&arg);
            Reply::CopiedWide(fs.copy_file_range(request, node, NodeId(arg.nodeid_out), range).await?)
        }
        Operation::Syncfs => {
            fs.syncfs(request).await?;
            Reply::Empty
        }
        Operation::Destroy => {
            request.session.shared.destroy(|| fs.destroy());
            Reply::Empty
        }
        Operation::Init { .. } | Operation::Setupmapping { .. } | Operation::Removemapping { .. } => {
            return Err(Errno::NOSYS);
        }
        Operation::Forget { .. }
        | Operation::BatchForget { .. }
        | Operation::Interrupt { .. }
        | Operation::NotifyReply { .. } => return Err(Errno::INVAL),
    })
}

/// Sends a reply. Where the kernel no longer accepts it, its effects are undone: lookups are forgotten, opens released.
pub(crate) async fn send<F: FileSystem>(
    fs: &F,
    request: &Request<'_>,
    channel: &Arc<dyn Channel>,
    reply: Reply<'_>,
) {
    let (unique, opener) = (request.header.unique, request.header.original_id());
    let session: &Handle = request.session;
    let answer = |parts: &[&[u8]]| channel.reply(unique, Ok(()), parts);
    let sent = match &reply {
        Reply::Empty => answer(&[]),
        Reply::Entry(entry) => answer(&[entry.as_bytes()]),
        Reply::Attributes(out) => answer(&[out.as_bytes()]),
        Reply::Statx(out) => answer(&[out.as_bytes()]),
        Reply::Opened { node, flags, opened } => {
            let out = session.shared.open_reply(opener, *node, *flags, opened);
            answer(&[out.as_bytes()])
        }
        Reply::OpenedDirectory { node, flags, opened } => {
            let out = abi::OpenOut { fh: opened.handle.0, open_flags: opened.flags.bits(), backing_id: 0 };
            session.shared.write_down(OpenKind::Directory, opener, *node, *flags, &out);
            answer(&[out.as_bytes()])
        }
        Reply::Created { entry, flags, opened } => {
            let out = session.shared.open_reply(opener, NodeId(entry.nodeid), *flags, opened);
            answer(&[entry.as_bytes(), out.as_bytes()])
        }
        Reply::Reopened(_, record) => answer(&[record.reply().as_bytes()]),
        Reply::Recreated { entry, record } => answer(&[entry.as_bytes(), record.reply().as_bytes()]),
        Reply::Written(n) => {
            let out = abi::WriteOut { size: (*n).min(u32::MAX as usize) as u32, ..Default::default() };
            answer(&[out.as_bytes()])
        }
        Reply::CopiedWide(n) => answer(&[abi::CopyFileRangeOut { bytes_copied: *n as u64 }.as_bytes()]),
        Reply::Bytes(bytes) => answer(&[bytes]),
        Reply::Data(Data::Slice(bytes)) => answer(&[bytes]),
        Reply::Data(Data::Owned(bytes)) => answer(&[bytes]),
        Reply::Data(Data::File(range)) => channel.reply_file(unique, range),
        Reply::Size(size) => answer(&[abi::GetxattrOut { size: *size, ..Default::default() }.as_bytes()]),
        Reply::Statfs(out) => answer(&[out.as_bytes()]),
        Reply::Lock(out) => answer(&[out.as_bytes()]),
        Reply::Block(block) => answer(&[abi::BmapOut { block: *block }.as_bytes()]),
        Reply::Ioctl(out) => {
            let head = abi::IoctlOut { result: out.result, ..Default::default() };
            answer(&[head.as_bytes(), &out.data])
        }
        Reply::Events(events) => {
            answer(&[abi::PollOut { revents: *events, ..Default::default() }.as_bytes()])
        }
        Reply::Offset(offset) => answer(&[abi::LseekOut { offset: *offset }.as_bytes()]),
        Reply::Listing(listing) | Reply::ListingPlus(listing) => answer(&[listing.as_bytes()]),
    };
    if let Err(error) = sent {
        tracing::debug!(unique, %error, "cannot send a reply to the kernel");
        Box::pin(undo(fs, request, reply)).await;
    }
}

pub(crate) async fn undo<F: FileSystem>(fs: &F, request: &Request<'_>, reply: Reply<'_>) {
    let shared = &request.session.shared;
    let close = async |node, handle: FileHandle| {
        shared.closed(handle, shared.modes.release(node));
        let args = ReleaseArgs { handle, flags: 0, flock_owner: None };
        fs.release(request, node, args).await.ok();
    };
    let close_directory = async |node, handle: FileHandle| {
        shared.closed_directory(handle);
        let args = ReleaseArgs { handle, flags: 0, flock_owner: None };
        fs.releasedir(request, node, args).await.ok();
    };
    match reply {
        Reply::Entry(entry) if entry.nodeid != 0 => fs.forget(NodeId(entry.nodeid), 1),
        Reply::Opened { node, opened, .. } => close(node, opened.handle).await,
        Reply::OpenedDirectory { node, opened, .. } => close_directory(node, opened.handle).await,
        Reply::Created { entry, opened, .. } => {
            close(NodeId(entry.nodeid), opened.handle).await;
            fs.forget(NodeId(entry.nodeid), 1);
        }
        Reply::Reopened(OpenKind::File, record) => close(record.node, record.handle).await,
        Reply::Reopened(OpenKind::Directory, record) => close_directory(record.node, record.handle).await,
        Reply::Recreated { entry, record } => {
            close(record.node, record.handle).await;
            fs.forget(NodeId(entry.nodeid), 1);
        }
        Reply::ListingPlus(listing) => forget_listing(fs, &listing),
        _ => {}
    }
}

/// Drops the lookups that a listing would have counted.
fn forget_listing<F: FileSystem>(fs: &F, listing: &abi::DirBuilder) {
    for record in abi::dirent::Records::new(listing.as_bytes(), true) {
        let counts = |entry: &abi::EntryOut| entry.nodeid != 0 && !matches!(record.name, b"." | b"..");
        if let Some(entry) = record.entry.filter(counts) {
            fs.forget(NodeId(entry.nodeid), 1);
        }
    }
}
