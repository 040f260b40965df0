//! Seven kinds of access to a file, for concurrent use.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::lab::disk::BLOCK;
use crate::lab::rng::Rng;
use crate::lab::tagged_content::{WORD, check, words};

/// Maximum size of a file, except for appended data.
pub const LARGEST: u64 = 2 << 20;

/// A thread's access to the file.
pub struct Worker<'a> {
    pub path: &'a Path,
    pub file: u8,
    pub number: u8,
    pub turn: u64,
    pub rng: Rng,
}

pub type Work = fn(&mut Worker<'_>) -> io::Result<()>;

pub const ALL: [Work; 7] = [write, truncate, map, direct, make_last, append, read];

pub fn open(path: &Path, flags: i32) -> io::Result<File> {
    File::options().read(true).write(true).custom_flags(flags).open(path)
}

impl Worker<'_> {
    /// Returns a random aligned offset within the maximum size.
    fn place(&mut self) -> u64 {
        self.rng.roll(LARGEST / WORD) * WORD
    }

    fn length(&mut self, limit: u64) -> usize {
        ((1 + self.rng.roll(limit / WORD)) * WORD) as usize
    }

    fn words(&self, offset: Option<u64>, length: usize) -> Vec<u8> {
        words(self.file, offset, length, self.number, self.turn)
    }

    fn check(&self, offset: u64, bytes: &[u8]) {
        check(self.file, offset, bytes).unwrap_or_else(|why| panic!("{why}"));
    }
}

fn write(worker: &mut Worker<'_>) -> io::Result<()> {
    let (offset, length) = (worker.place(), worker.length(40_000));
    open(worker.path, 0)?.write_all_at(&worker.words(Some(offset), length), offset)
}

fn truncate(worker: &mut Worker<'_>) -> io::Result<()> {
    let (file, offset) = (open(worker.path, 0)?, worker.place());
    let length = worker.length(100_000) as u64;
    let mode = match worker.rng.roll(4) {
        0 => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        1 => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        _ => return file.set_len(offset),
    };
    match fallocate(&file, mode, offset, length) {
        // Not every file system supports every mode.
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Accesses the file through a mapping. The kernel copies the bytes, so an access beyond the end returns EFAULT instead of
/// SIGBUS.
fn map(worker: &mut Worker<'_>) -> io::Result<()> {
    let file = open(worker.path, 0)?;
    let (offset, length) = (worker.place(), worker.length(40_000));
    let start = offset / BLOCK * BLOCK;
    let whole = (offset - start) as usize + length;
    let pipe = memfd_create("words", MemfdFlags::CLOEXEC)?;
    let load = worker.rng.roll(4) == 0;
    if !load {
        File::from(pipe.as_fd().try_clone_to_owned()?)
            .write_all_at(&worker.words(Some(offset), length), 0)?;
    }
    // SAFETY: a new mapping, which only the kernel reads and writes, unmapped before anything else can use it.
    let count = unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = mmap(std::ptr::null_mut(), whole, protection, MapFlags::SHARED, &file, start)?;
        let words = at.cast::<u8>().add((offset - start) as usize);
        let count = match load {
            true => libc::pwrite(pipe.as_raw_fd(), words.cast(), length, 0),
            false => libc::pread(pipe.as_raw_fd(), words.cast(), length, 0),
        };
        munmap(at, whole)?;
        count
    };
    if load && count > 0 {
        let mut seen = vec![0; count as usize / WORD as usize * WORD as usize];
        File::from(pipe).read_exact_at(&mut seen, 0)?;
        worker.check(offset, &seen);
    }
    Ok(())
}

/// Copies bytes into an aligned buffer for direct I/O.
fn aligned(bytes: &[u8], room: &mut Vec<u8>) -> std::ops::Range<usize> {
    room.resize(bytes.len() + BLOCK as usize, 0);
    let start = room.as_ptr().align_offset(BLOCK as usize);
    room[start..start + bytes.len()].copy_from_slice(bytes);
    start..start + bytes.len()
}

fn direct(worker: &mut Worker<'_>) -> io::Result<()> {
    let offset = worker.place() / BLOCK * BLOCK;
    let length = ((1 + worker.rng.roll(16)) * BLOCK) as usize;
    let mut room = Vec::new();
    let range = aligned(&worker.words(Some(offset), length), &mut room);
    open(worker.path, libc::O_DIRECT)?.write_all_at(&room[range], offset)
}

fn make_last(worker: &mut Worker<'_>) -> io::Result<()> {
    let file = open(worker.path, 0)?;
    match worker.rng.roll(8) {
        0 => std::fs::write("/proc/sys/vm/drop_caches", "1"),
        1..=3 => file.sync_data(),
        _ => file.sync_all(),
    }
}

fn append(worker: &mut Worker<'_>) -> io::Result<()> {
    let length = worker.length(20_000);
    let mut file = open(worker.path, libc::O_APPEND)?;
    if file.metadata()?.len() > 2 * LARGEST {
        return Ok(());
    }
    // In one call, because a second append may land elsewhere.
    file.write(&worker.words(None, length)).map(drop)
}

fn read(worker: &mut Worker<'_>) -> io::Result<()> {
    let past = worker.rng.roll(2) == 0;
    let file = open(worker.path, if past { libc::O_DIRECT } else { 0 })?;
    let offset = worker.place() / BLOCK * BLOCK;
    let mut room = Vec::new();
    let range = aligned(&vec![0; 64 << 10], &mut room);
    let count = file.read_at(&mut room[range.clone()], offset)?;
    worker.check(offset, &room[range][..count / WORD as usize * WORD as usize]);
    Ok(())
}
