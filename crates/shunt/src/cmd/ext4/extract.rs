//! `shunt ext4 extract`.
//!
//! An image may be hostile. Everything is made relative to an open directory that was itself just made, and never
//! through a name that exists: no link of the image leads a later file out of the target.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use shunt_ext4::{Corruption, Entry, Error, Filesystem, Inode, Kind, Place, Time};

use super::{at, walk};
use crate::error::{Result, failed};
use crate::progress::Progress;
use crate::text::bytes;

/// Bytes copied at once.
const PIECE: u64 = 1 << 20;

/// Directories one inside the other, each with a descriptor.
const DEEPEST: usize = 500;

/// The directory in which something is to be made.
pub fn place(target: Option<&Path>) -> Result<OwnedFd> {
    let parent = target.and_then(Path::parent).filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(parent, flags, Mode::empty()).map_err(|errno| {
        failed(format_args!("cannot make anything in {}: {}", parent.display(), std::io::Error::from(errno)))
    })
}

pub fn run(filesystem: &Filesystem, path: &OsStr, target: Option<&Path>) -> Result<()> {
    let inode = walk(filesystem, path)?;
    let last = || path.as_bytes().split(|&byte| byte == b'/').rfind(|name| !name.is_empty());
    let target = match (target, last()) {
        (Some(target), _) => target.as_os_str().to_owned(),
        (None, Some(name)) => OsString::from_vec(name.to_vec()),
        (None, None) => return Err(failed("say what to make: the root of the image has no name of its own")),
    };
    let name = c_name(target.as_bytes())?;
    let top = Wanted { name, inode, path: path.as_bytes().to_vec(), made: target.into() };
    Extraction::new(filesystem).run(top)
}

fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| failed("a name holds a zero byte"))
}

/// Something to be made.
struct Wanted {
    name: CString,
    inode: Inode,
    /// Its path in the image, for messages.
    path: Vec<u8>,
    /// Its path from the working directory.
    made: PathBuf,
}

/// A directory that was made, with what is still to be made in it.
struct Directory {
    fd: OwnedFd,
    inode: Inode,
    left: Vec<Wanted>,
}

struct Extraction<'a> {
    filesystem: &'a Filesystem,
    /// From the outermost to the one being filled.
    open: Vec<Directory>,
    /// Files with several names, and the first that was made.
    linked: HashMap<u32, PathBuf>,
    /// Directories seen.
    directories: HashSet<u32>,
    files: u64,
    bytes: u64,
    progress: Progress,
}

impl<'a> Extraction<'a> {
    fn new(filesystem: &'a Filesystem) -> Self {
        let (open, linked, directories) = Default::default();
        Self { filesystem, open, linked, directories, files: 0, bytes: 0, progress: Progress::new() }
    }

    fn run(mut self, top: Wanted) -> Result<()> {
        self.make(top)?;
        while let Some(directory) = self.open.last_mut() {
            if let Some(wanted) = directory.left.pop() {
                self.make(wanted)?;
            } else if let Some(directory) = self.open.pop() {
                // Only now: what is made in a directory moves its times.
                self.xattrs(&directory.fd, &directory.inode);
                finish(&directory.fd, &directory.inode);
            }
        }
        self.progress.end(self.so_far());
        Ok(())
    }

    fn make(&mut self, wanted: Wanted) -> Result<()> {
        let cannot = |errno: Errno| {
            let error = std::io::Error::from(errno);
            failed(format_args!("cannot make {}: {error}", wanted.made.display()))
        };
        self.files += 1;
        self.show();
        let parent = self.open.last().map_or(CWD, |directory| directory.fd.as_fd());
        let Wanted { name, inode, .. } = &wanted;
        let path = OsStr::from_bytes(&wanted.path);
        if let Some(first) = self.linked.get(&inode.number) {
            return rustix::fs::linkat(CWD, first, parent, name, AtFlags::empty()).map_err(cannot);
        }
        let private = Mode::RUSR | Mode::WUSR;
        match inode.kind {
            Kind::Directory => {
                rustix::fs::mkdirat(parent, name, Mode::RWXU).map_err(cannot)?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(cannot)?;
                let left = self.content(&wanted)?;
                self.open.push(Directory { fd, inode: wanted.inode, left });
                return Ok(());
            }
            Kind::Regular => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(parent, name, flags, private).map_err(cannot)?;
                self.copy(&file, inode, path)?;
                self.xattrs(&file, inode);
                finish(&file, inode);
            }
            Kind::Symlink => {
                let target = self.filesystem.read_link(inode).map_err(|error| at(path, &error))?;
                rustix::fs::symlinkat(c_name(&target)?, parent, name).map_err(cannot)?;
                let (uid, gid) = owner(inode);
                let _ = rustix::fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
                let _ = rustix::fs::utimensat(parent, name, &times(inode), AtFlags::SYMLINK_NOFOLLOW);
            }
            kind => {
                let (kind, (major, minor)) = match kind {
                    Kind::Fifo => (FileType::Fifo, (0, 0)),
                    Kind::CharDevice => (FileType::CharacterDevice, inode.device().unwrap_or_default()),
                    Kind::BlockDevice => (FileType::BlockDevice, inode.device().unwrap_or_default()),
                    _ => (FileType::Socket, (0, 0)),
                };
                match rustix::fs::mknodat(parent, name, kind, private, rustix::fs::makedev(major, minor)) {
                    // Devices are root's to make.
                    Err(Errno::PERM) => {
                        let _ = writeln!(
                            std::io::stderr(),
                            "shunt: {}: only root may make devices",
                            wanted.made.display()
                        );
                    }
                    result => result.map_err(cannot)?,
                }
            }
        }
        if inode.links > 1 {
            self.linked.insert(inode.number, wanted.made);
        }
        Ok(())
    }

    /// What is to be made in a directory.
    fn content(&mut self, directory: &Wanted) -> Result<Vec<Wanted>> {
        let path = OsStr::from_bytes(&directory.path);
        // A directory with two names would be made twice, and what is below it four times.
        if !self.directories.insert(directory.inode.number) {
            return Err(at(path, &Corruption::new("the directory has a second name").into()));
        }
        if self.open.len() >= DEEPEST {
            return Err(failed(format_args!("{}: more than {DEEPEST} directories deep", path.display())));
        }
        let mut entries = Vec::new();
        let listed = self.filesystem.list(&directory.inode, 0, |entry| {
            entries.push(entry);
            true
        });
        listed.map_err(|error| at(path, &error))?;
        entries.retain(|entry| !matches!(&*entry.name, b"." | b".."));
        let wanted = |entry: Entry| {
            let inner = [&directory.path, &b"/"[..], &entry.name].concat();
            let inode = self.filesystem.follow(&directory.inode, &entry);
            Ok(Wanted {
                inode: inode.map_err(|error| at(OsStr::from_bytes(&inner), &error))?,
                made: directory.made.join(OsStr::from_bytes(&entry.name)),
                name: c_name(&entry.name)?,
                path: inner,
            })
        };
        entries.into_iter().map(wanted).collect()
    }

    fn copy(&mut self, file: &OwnedFd, inode: &Inode, path: &OsStr) -> Result<()> {
        let cannot = |errno: Errno| {
            failed(format_args!("cannot write {}: {}", path.display(), std::io::Error::from(errno)))
        };
        rustix::fs::ftruncate(file, inode.size).map_err(cannot)?;
        let bits = self.filesystem.geometry().block_bits;
        let mut piece = vec![0; PIECE as usize];
        let mut offset = 0;
        while offset < inode.size {
            let run = u32::try_from(offset >> bits)
                .map_err(|_| Error::Invalid)
                .and_then(|logical| self.filesystem.map(inode, logical, u32::MAX));
            let (length, empty) = match run {
                Ok(run) => (u64::from(run.length) << bits, !matches!(run.place, Place::Written(_))),
                // Content that lies in the inode has no blocks.
                Err(Error::Invalid) => (inode.size, false),
                Err(error) => return Err(at(path, &error)),
            };
            let end = (offset + length).min(inode.size);
            if empty {
                offset = end;
                continue;
            }
            while offset < end {
                let wanted = (end - offset).min(PIECE) as usize;
                let count = self
                    .filesystem
                    .read(inode, offset, &mut piece[..wanted])
                    .map_err(|error| at(path, &error))?;
                let mut rest = &piece[..count];
                while !rest.is_empty() {
                    let written = rustix::io::pwrite(file, rest, offset).map_err(cannot)?;
                    rest = &rest[written..];
                    offset += written as u64;
                }
                self.bytes += count as u64;
                self.show();
            }
        }
        Ok(())
    }

    /// Those that the user may set.
    fn xattrs(&self, file: impl AsFd, inode: &Inode) {
        for name in self.filesystem.xattr_names(inode).unwrap_or_default() {
            if let Ok(Some(value)) = self.filesystem.xattr(inode, &name)
                && let Ok(name) = CString::new(name)
            {
                let _ = rustix::fs::fsetxattr(&file, &name, &value, XattrFlags::empty());
            }
        }
    }

    fn show(&self) {
        self.progress.show(self.so_far());
    }

    fn so_far(&self) -> impl std::fmt::Display {
        let (files, length) = (self.files, self.bytes);
        std::fmt::from_fn(move |f| write!(f, "{files} files, {}", bytes(length)))
    }
}

fn owner(inode: &Inode) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(inode.uid)), Some(Gid::from_raw(inode.gid)))
}

fn times(inode: &Inode) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(inode.atime), last_modification: time(inode.mtime) }
}

/// Owner, mode and times, in this order: a change of owner clears bits of the mode.
///
/// setuid and setgid come along only with the owner they were meant for.
fn finish(fd: impl AsFd, inode: &Inode) {
    let (uid, gid) = owner(inode);
    let owned = rustix::fs::fchown(&fd, uid, gid).is_ok();
    let bits = if owned { 0o7777 } else { 0o1777 };
    let _ = rustix::fs::fchmod(&fd, Mode::from_raw_mode(u32::from(inode.permissions) & bits));
    let _ = rustix::fs::futimens(&fd, &times(inode));
}
