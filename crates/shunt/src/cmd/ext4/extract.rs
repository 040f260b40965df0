//! `shunt ext4 extract`: copies a file or a tree out of an image.
//!
//! An image may be hostile. Everything is created relative to an open directory that was itself just created, and never through
//! an existing name: no symbolic link of the image can redirect a later file outside the target.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, OsStr};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Timespec, Timestamps};
use rustix::io::Errno;
use shunt_ext4::{Corruption, Entry, Error, Filesystem, Inode, Kind, Mapping as Block, Time};

use super::{at, resolve};
use crate::error::{Result, failed};
use crate::files::{self, Attributes, Stage};
use crate::progress::Progress;
use crate::text::bytes;

/// Bytes per read.
const READ_BYTES: u64 = 1 << 20;

/// Limit of the nesting of directories, each of which takes a descriptor.
const MAX_DEPTH: usize = 500;

/// The target directory and the name to create in it.
pub struct ExtractTarget {
    parent: OwnedFd,
    name: CString,
    /// The path of the parent, for messages.
    parent_path: PathBuf,
}

impl ExtractTarget {
    /// The given target, or else the last component of the path in the image.
    pub fn new(target: Option<&Path>, path: &OsStr) -> Result<Self> {
        let last = path.as_bytes().split(|&byte| byte == b'/').rfind(|name| !name.is_empty());
        let target = match (target, last) {
            (Some(target), _) => target,
            (None, Some(name)) => Path::new(OsStr::from_bytes(name)),
            (None, None) => {
                return Err(failed(
                    "no target given, and the root of the image has no name; add a target path",
                ));
            }
        };
        let shown = target.parent().unwrap_or(Path::new("")).to_owned();
        match files::open_parent(target) {
            Ok((parent, name)) => Ok(Self { parent, name, parent_path: shown }),
            Err(error) => Err(failed(format_args!("cannot create {}: {error}", target.display()))),
        }
    }

    /// The directory that the target is created in.
    pub fn parent(&self) -> BorrowedFd<'_> {
        self.parent.as_fd()
    }
}

/// Extracts `path` to `place`; `limit` limits the bytes of content of all files.
pub fn run(filesystem: &Filesystem, path: &OsStr, place: &ExtractTarget, limit: Option<u64>) -> Result<()> {
    let inode = resolve(filesystem, path, false)?;
    let name = place.name.clone();
    let made = PathBuf::from(OsStr::from_bytes(name.as_bytes()));
    Extraction::new(filesystem, place, limit).run(PendingObject {
        name,
        inode,
        path: path.as_bytes().to_vec(),
        target_path: made,
    })
}

fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| failed("a name in the image contains a NUL byte; run e2fsck"))
}

/// An object to create.
struct PendingObject {
    name: CString,
    inode: Inode,
    /// Its path in the image, for messages.
    path: Vec<u8>,
    /// Its path relative to the directory that everything is created in.
    target_path: PathBuf,
}

/// A directory that was created, with the entries still to create in it.
struct Directory {
    fd: OwnedFd,
    inode: Inode,
    pending: Vec<PendingObject>,
}

struct Extraction<'a> {
    filesystem: &'a Filesystem,
    target: &'a ExtractTarget,
    /// Directories from the outermost to the one being filled.
    open: Vec<Directory>,
    /// Inodes with several links, and the first path created for each.
    linked: HashMap<u32, PathBuf>,
    /// Directories already extracted.
    directories: HashSet<u32>,
    files: u64,
    bytes: u64,
    /// Limit of the bytes written.
    max_bytes: u64,
    progress: Progress,
}

impl<'a> Extraction<'a> {
    fn new(filesystem: &'a Filesystem, place: &'a ExtractTarget, limit: Option<u64>) -> Self {
        let (open, linked, directories) = Default::default();
        // Unless files share blocks, there is no more content than blocks.
        let geometry = filesystem.geometry();
        let limit = limit.unwrap_or(geometry.blocks.saturating_mul(geometry.block_size.into()));
        let (files, bytes) = (0, 0);
        Self {
            filesystem,
            target: place,
            open,
            linked,
            directories,
            files,
            bytes,
            max_bytes: limit,
            progress: Progress::new(),
        }
    }

    fn run(mut self, top: PendingObject) -> Result<()> {
        self.make(top)?;
        while let Some(directory) = self.open.last_mut() {
            if let Some(wanted) = directory.pending.pop() {
                self.make(wanted)?;
            } else if let Some(directory) = self.open.pop() {
                // Set last: creating entries in a directory changes its times.
                let _ = attributes(&directory.inode).set(&directory.fd, self.xattrs(&directory.inode));
            }
        }
        self.progress.end(self.so_far());
        Ok(())
    }

    fn make(&mut self, wanted: PendingObject) -> Result<()> {
        let shown = self.target.parent_path.join(&wanted.target_path);
        let cannot = |error: io::Error| failed(format_args!("cannot create {}: {error}", shown.display()));
        self.files += 1;
        self.report_progress();
        let parent = self.open.last().map_or(self.target.parent(), |directory| directory.fd.as_fd());
        let PendingObject { name, inode, .. } = &wanted;
        let path = OsStr::from_bytes(&wanted.path);
        if let Some(first) = self.linked.get(&inode.number) {
            let linked = rustix::fs::linkat(self.target.parent(), first, parent, name, AtFlags::empty());
            return linked.map_err(|errno| cannot(errno.into()));
        }
        match inode.kind {
            Kind::Directory => {
                let fd = files::make_directory(parent, name).map_err(cannot)?;
                let left = self.content(&wanted)?;
                self.open.push(Directory { fd, inode: wanted.inode, pending: left });
                return Ok(());
            }
            Kind::Regular => {
                let file = files::make_file(parent, name).map_err(|errno| cannot(errno.into()))?;
                self.copy(&file, inode, path)?;
                let _ = attributes(inode).set(&file, self.xattrs(inode));
            }
            Kind::Symlink => {
                let target = self.filesystem.read_link(inode).map_err(|error| at(path, &error))?;
                let target = c_name(&target)?;
                let make = |at: BorrowedFd<'_>, name: &CStr| files::make_symlink(at, name, &target);
                self.special(&wanted, make).map_err(cannot)?;
            }
            kind => {
                let (kind, (major, minor)) = match kind {
                    Kind::Fifo => (FileType::Fifo, (0, 0)),
                    Kind::CharDevice => (FileType::CharacterDevice, inode.device().unwrap_or_default()),
                    Kind::BlockDevice => (FileType::BlockDevice, inode.device().unwrap_or_default()),
                    _ => (FileType::Socket, (0, 0)),
                };
                let device = rustix::fs::makedev(major, minor);
                let make = |at: BorrowedFd<'_>, name: &CStr| files::make_node(at, name, kind, device);
                match self.special(&wanted, make) {
                    // Only root can create device nodes.
                    Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
                        let shown = shown.display();
                        let _ = writeln!(
                            io::stderr(),
                            "shunt: skipped the device {shown}: creating it requires root"
                        );
                        return Ok(());
                    }
                    result => result.map_err(cannot)?,
                }
            }
        }
        if inode.links > 1 {
            self.linked.insert(inode.number, wanted.target_path);
        }
        Ok(())
    }

    /// The entries to create in a directory.
    fn content(&mut self, directory: &PendingObject) -> Result<Vec<PendingObject>> {
        let path = OsStr::from_bytes(&directory.path);
        // A directory with two names would be extracted twice, and the tree below it four times.
        if !self.directories.insert(directory.inode.number) {
            return Err(at(path, &Corruption::new("the directory has more than one name").into()));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(failed(format_args!(
                "{} in the image is nested deeper than {MAX_DEPTH} directories; extract an inner directory by itself",
                path.display()
            )));
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
            Ok(PendingObject {
                inode: inode.map_err(|error| at(OsStr::from_bytes(&inner), &error))?,
                target_path: directory.target_path.join(OsStr::from_bytes(&entry.name)),
                name: c_name(&entry.name)?,
                path: inner,
            })
        };
        entries.into_iter().map(wanted).collect()
    }

    fn copy(&mut self, file: &OwnedFd, inode: &Inode, path: &OsStr) -> Result<()> {
        let cannot = |errno: Errno| {
            failed(format_args!("cannot write {}: {}", path.display(), io::Error::from(errno)))
        };
        rustix::fs::ftruncate(file, inode.size).map_err(cannot)?;
        let bits = self.filesystem.geometry().block_bits;
        let mut piece = vec![0; READ_BYTES as usize];
        let mut offset = 0;
        while offset < inode.size {
            let run = u32::try_from(offset >> bits)
                .map_err(|_| Error::Invalid)
                .and_then(|logical| self.filesystem.map(inode, logical, u32::MAX));
            let (length, empty) = match run {
                Ok(run) => (u64::from(run.length) << bits, !matches!(run.mapping, Block::Written(_))),
                // Inline data has no blocks.
                Err(Error::Invalid) => (inode.size, false),
                Err(error) => return Err(at(path, &error)),
            };
            let end = (offset + length).min(inode.size);
            if empty {
                offset = end;
                continue;
            }
            while offset < end {
                let wanted = (end - offset).min(READ_BYTES) as usize;
                let count = self
                    .filesystem
                    .read(inode, offset, &mut piece[..wanted])
                    .map_err(|error| at(path, &error))?;
                if self.bytes + count as u64 > self.max_bytes {
                    return Err(failed(format_args!(
                        "extraction stopped at {} in the image: more than {} of content, because files share blocks; raise --max-size \
                         if the image is trusted",
                        path.display(),
                        bytes(self.max_bytes)
                    )));
                }
                let mut rest = &piece[..count];
                while !rest.is_empty() {
                    let written = rustix::io::pwrite(file, rest, offset).map_err(cannot)?;
                    rest = &rest[written..];
                    offset += written as u64;
                }
                self.bytes += count as u64;
                self.report_progress();
            }
        }
        Ok(())
    }

    /// Creates an object other than a file or directory, with its attributes.
    fn special(
        &self,
        wanted: &PendingObject,
        make: impl FnOnce(BorrowedFd<'_>, &CStr) -> rustix::io::Result<OwnedFd>,
    ) -> io::Result<()> {
        let set = |made| attributes(&wanted.inode).set(made, self.xattrs(&wanted.inode));
        // The directories being filled are private, but others may be able to write to the one around the target.
        if let Some(directory) = self.open.last() {
            let _ = set(make(directory.fd.as_fd(), &wanted.name)?);
            return Ok(());
        }
        let stage = Stage::new(self.target.parent())?;
        let _ = set(make(stage.directory(), Stage::NEW)?);
        Ok(stage.publish(&wanted.name)?)
    }

    /// The extended attributes that are readable.
    fn xattrs(&self, inode: &Inode) -> Vec<(CString, Vec<u8>)> {
        let names = self.filesystem.xattr_names(inode).unwrap_or_default();
        let value = |name: Vec<u8>| {
            let value = self.filesystem.xattr(inode, &name).ok()??;
            Some((CString::new(name).ok()?, value))
        };
        names.into_iter().filter_map(value).collect()
    }

    fn report_progress(&self) {
        self.progress.update(self.so_far());
    }

    fn so_far(&self) -> impl std::fmt::Display {
        let (files, length) = (self.files, self.bytes);
        std::fmt::from_fn(move |f| write!(f, "{files} files, {}", bytes(length)))
    }
}

fn attributes(inode: &Inode) -> Attributes {
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Attributes {
        uid: inode.uid,
        gid: inode.gid,
        mode: inode.permissions.into(),
        times: Timestamps { last_access: time(inode.atime), last_modification: time(inode.mtime) },
    }
}
