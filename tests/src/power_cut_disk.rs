//! A disk that loses unflushed writes at a power failure.
//!
//! The disk is a file on a FUSE file system that the test itself serves. The server knows each write since the last flush, so
//! it can produce any possible state of the disk after a power cut.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shunt_fuse::mount::{MountOptions, Unmount};
use shunt_fuse::{
    Attributes, Config, Data, Entry, Errno, Expiry, FileHandle, FileSystem, FileType, Mounted, Name, NodeId,
    OpenArgs, Opened, Profile, ReadArgs, Request, WriteArgs, WriteData,
};
use tempfile::TempDir;

use crate::{Image, Rng};

/// Atomic write unit of a disk in bytes.
const SECTOR_BYTES: usize = 512;

/// Offset of the ext4 superblock, two sectors whose write the kernel also expects to be atomic.
const SUPERBLOCK: u64 = 1024;

const FILE: NodeId = NodeId(2);

/// Fate of the writes since the last flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostWrites {
    /// None of them was written.
    All,
    /// Some of them were written, partially, in any order.
    Some,
    /// All of them were written, as after a kill of the daemon.
    Nothing,
}

/// Flushed data, and the later writes by their offsets.
#[derive(Debug)]
struct Contents {
    flushed: File,
    unflushed: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug)]
struct Disk {
    size: u64,
    /// All written data.
    now: File,
    contents: Mutex<Contents>,
}

impl Disk {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attributes(&self, node: NodeId) -> Attributes {
        let (kind, size) = match node {
            NodeId::ROOT => (FileType::Directory, 0),
            _ => (FileType::Regular, self.size),
        };
        Attributes { ino: node.0, mode: kind.mode() | 0o700, size, nlink: 1, ..Attributes::default() }
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl FileSystem for Disk {
    async fn lookup(&self, _: &Request<'_>, _: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        match name.as_bytes() {
            b"disk" => Ok(Entry::new(FILE, self.attributes(FILE), Expiry::FOREVER)),
            _ => Ok(Entry::absent(Expiry::FOREVER)),
        }
    }

    async fn getattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        Ok((self.attributes(node), Expiry::FOREVER))
    }

    async fn open(&self, _: &Request<'_>, _: NodeId, _: OpenArgs) -> Result<Opened, Errno> {
        // A page cache would delay writes.
        Ok(Opened::direct(FileHandle(1)))
    }

    async fn read(&self, _: &Request<'_>, _: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        let length = u64::from(args.size).min(self.size.saturating_sub(args.offset));
        let mut bytes = vec![0; length as usize];
        self.now.read_exact_at(&mut bytes, args.offset).map_err(errno)?;
        Ok(bytes.into())
    }

    async fn write(
        &self,
        _: &Request<'_>,
        _: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        let bytes = data.into_bytes()?;
        if args.offset + bytes.len() as u64 > self.size {
            return Err(Errno::NOSPC);
        }
        let mut contents = self.contents();
        self.now.write_all_at(&bytes, args.offset).map_err(errno)?;
        let length = bytes.len();
        contents.unflushed.push((args.offset, Cow::into_owned(bytes)));
        Ok(length)
    }

    async fn fsync(&self, _: &Request<'_>, _: NodeId, _: FileHandle, _: bool) -> Result<(), Errno> {
        let mut contents = self.contents();
        let Contents { flushed, unflushed } = &mut *contents;
        for (offset, bytes) in unflushed.drain(..) {
            flushed.write_all_at(&bytes, offset).map_err(errno)?;
        }
        Ok(())
    }
}

/// A disk with its power on, unmounted on drop.
#[derive(Debug)]
pub struct PoweredDisk {
    disk: Arc<Disk>,
    mounted: Option<Mounted>,
    dir: TempDir,
}

impl PoweredDisk {
    /// Creates a disk with the content of a file.
    ///
    /// # Panics
    /// If it cannot be mounted; that needs root.
    pub fn new(content: &Path) -> Self {
        let dir = crate::lower_fs::temp_dir();
        let open = |name: &str| {
            let path = dir.path().join(name);
            let options = File::options().create_new(true).read(true).write(true).open(path);
            let copy = options.expect("a file for the disk");
            copy_data(&File::open(content).expect("the content"), &copy).expect("room for the disk");
            copy
        };
        let now = open("now");
        let size = now.metadata().expect("a file").len();
        let disk = Arc::new(Disk {
            size,
            contents: Mutex::new(Contents { flushed: open("flushed"), unflushed: Vec::new() }),
            now,
        });
        let at = dir.path().join("mnt");
        std::fs::create_dir(&at).expect("mkdir");
        let options = MountOptions::new().fsname("disk");
        let mounted =
            shunt_fuse::mount::<Disk>(disk.clone(), Config::new(Profile::Passthrough), &at, &options);
        Self { disk, mounted: Some(mounted.expect("the disk is mounted")), dir }
    }

    /// Returns the path of the disk's file.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt/disk")
    }

    /// Returns an image of the disk as after a power cut.
    ///
    /// # Panics
    /// If there is no space for it.
    pub fn cut(&self, lost: LostWrites, rng: &mut Rng) -> Image {
        let image = Image::place();
        let file = File::options().create_new(true).write(true).open(image.path()).expect("a file");
        let contents = self.disk.contents();
        copy_data(&contents.flushed, &file).expect("room for an image");
        for (offset, bytes) in &contents.unflushed {
            let sectors = bytes.len().div_ceil(SECTOR_BYTES);
            let whole = [0, bytes.len()];
            let written = match lost {
                LostWrites::All => 0,
                LostWrites::Nothing => bytes.len(),
                LostWrites::Some if *offset <= SUPERBLOCK || rng.below(4) > 0 => whole[rng.below(2)],
                LostWrites::Some => (rng.below(sectors + 1) * SECTOR_BYTES).min(bytes.len()),
            };
            file.write_all_at(&bytes[..written], *offset).expect("room for an image");
        }
        image
    }

    /// Returns the number of unflushed writes.
    pub fn unflushed_writes(&self) -> usize {
        self.disk.contents().unflushed.len()
    }
}

impl Drop for PoweredDisk {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            let ended = mounted.unmount(Unmount::Lazy);
            assert!(ended.is_ok() || std::thread::panicking(), "the disk did not end");
        }
    }
}

/// Copies a file's data and size, preserving holes.
fn copy_data(from: &File, to: &File) -> io::Result<()> {
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while let Ok(data) = rustix::fs::seek(from, rustix::fs::SeekFrom::Data(at)) {
        at = rustix::fs::seek(from, rustix::fs::SeekFrom::Hole(data))?;
        for start in (data..at).step_by(buffer.len()) {
            let part = buffer.len().min((at - start) as usize);
            from.read_exact_at(&mut buffer[..part], start)?;
            to.write_all_at(&buffer[..part], start)?;
        }
    }
    Ok(())
}
