//! Mapped files read as the content of their extents: buffered, with direct I/O, through mappings, and in holes.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::aligned::Aligned;
use super::disk::{BLOCK, Disk, extent, module_is_here};

fn make(disk: &Disk, size: u64, extents: &[shunt_extmap::Extent]) -> (shunt_extmap::Connection, File) {
    let connection = disk.connect();
    let file = connection.file(size).unwrap();
    file.push(extents).unwrap();
    (connection, file.into_fd().into())
}

/// Opens the file once more.
fn again(file: &File, flags: OFlags) -> File {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let fd: OwnedFd = rustix::fs::open(path, flags | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap();
    fd.into()
}

fn read_all(file: &File, size: usize, piece: usize) -> Vec<u8> {
    let mut buffer = Aligned::new(piece, 0);
    let mut content = Vec::with_capacity(size);
    while content.len() < size {
        let count = file.read_at(&mut buffer, content.len() as u64).unwrap();
        assert!(count > 0, "ends at {} of {size}", content.len());
        content.extend(&buffer[..count]);
    }
    assert_eq!(file.read_at(&mut buffer, size.next_multiple_of(BLOCK as usize) as u64).unwrap(), 0);
    content
}

fn mapped(file: &File, size: usize) -> Vec<u8> {
    // SAFETY: a new mapping, read only within the file, and unmapped before anything else can use it.
    unsafe {
        let at = mmap(std::ptr::null_mut(), size, ProtFlags::READ, MapFlags::SHARED, file, 0).unwrap();
        let content = std::slice::from_raw_parts(at.cast::<u8>(), size).to_vec();
        munmap(at, size).unwrap();
        content
    }
}

#[test]
fn reads_agree_in_every_mode() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(4096);
    let scattered: Vec<_> =
        (0..300).map(|n| extent(n * 3, (n * 1237) % 4000, 1 + n % 3, n % 7 != 0)).collect();
    let backwards: Vec<_> = (0..64).rev().map(|n| extent(n, 63 - n, 1, true)).collect();
    for (size, extents) in [
        (10 * BLOCK, vec![]),
        (16 * BLOCK, vec![extent(0, 100, 16, true)]),
        (5 * BLOCK + 123, vec![extent(0, 100, 6, true)]),
        (5 * BLOCK + 123, vec![extent(2, 7, 1, true)]),
        (2000 * BLOCK, vec![extent(3, 1000, 1990, true)]),
        (8 * BLOCK, vec![extent(0, 0, 4, false), extent(4, 4, 100, true)]),
        (64 * BLOCK - 1, backwards),
        (910 * BLOCK, scattered),
    ] {
        let wanted = disk.content(size, &extents);
        let (_connection, file) = make(&disk, size, &extents);
        assert_eq!(file.metadata().unwrap().len(), size);
        assert!(read_all(&file, size as usize, 1 << 20) == wanted, "buffered, {size}");
        assert!(mapped(&file, size as usize) == wanted, "mapped, {size}");
        let direct = again(&file, OFlags::RDONLY | OFlags::DIRECT);
        assert!(read_all(&direct, size as usize, 3 * BLOCK as usize) == wanted, "direct, {size}");
        let fresh = make(&disk, size, &extents).1;
        drop(fresh);
    }
}

#[test]
fn holes_and_data_are_found() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(64);
    let extents =
        [extent(2, 5, 2, true), extent(4, 20, 1, true), extent(8, 30, 2, false), extent(12, 40, 1, true)];
    let (_connection, file) = make(&disk, 16 * BLOCK, &extents);
    let data = |at: u64| seek(&file, SeekFrom::Data(at * BLOCK)).map(|found| found / BLOCK);
    let hole = |at: u64| seek(&file, SeekFrom::Hole(at * BLOCK)).map(|found| found / BLOCK);
    assert_eq!([data(0), data(3), data(5), data(12)], [Ok(2), Ok(3), Ok(12), Ok(12)]);
    assert_eq!([hole(0), hole(2), hole(5), hole(12)], [Ok(0), Ok(5), Ok(5), Ok(13)]);
    assert_eq!(data(13), Err(rustix::io::Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::End(0)), Ok(16 * BLOCK));
}

#[test]
fn later_extents_become_readable() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(64);
    let connection = disk.connect();
    let mapped_file = connection.file(8 * BLOCK).unwrap();
    let file: File = again(&rustix::io::dup(&mapped_file).unwrap().into(), OFlags::RDONLY);
    assert_eq!(read_all(&file, 8 * BLOCK as usize, 1 << 20), vec![0; 8 * BLOCK as usize]);
    let mut extents = Vec::new();
    for n in 0..8 {
        extents.push(extent(n, 60 - n, 1, true));
        mapped_file.push(&extents[n as usize..]).unwrap();
        assert_eq!(read_all(&file, 8 * BLOCK as usize, 1 << 20), disk.content(8 * BLOCK, &extents));
    }
}
