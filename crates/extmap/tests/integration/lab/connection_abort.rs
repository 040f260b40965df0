//! The connection ends at any time, with files still open.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::pipe::pipe;

use super::disk::{BLOCK, Disk, extent, module_is_here};

/// Waits up to 30 seconds for a condition.
pub fn eventually(mut so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn no_reads_after_disconnect() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(256);
    let connection = disk.connect();
    let mapped = connection.file(256 * BLOCK).unwrap();
    mapped.push(&[extent(0, 0, 256, true)]).unwrap();
    let file: File = mapped.into_fd().into();
    let (reader, writer) = pipe().unwrap();
    let length = 256 * BLOCK as usize;
    // SAFETY: a new mapping; only the kernel reads it, and returns an error where nothing is mapped.
    let at =
        unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &file, 0) }.unwrap();
    let look = |n: usize| {
        // SAFETY: within the mapping. Its content may vanish, which is the point; only the kernel accesses it.
        let there = unsafe { std::slice::from_raw_parts(at.cast::<u8>().add(n), 8) };
        rustix::io::write(&writer, there)
    };
    assert_eq!(look(5 * BLOCK as usize), Ok(8));
    let mut got = [0; 8];
    rustix::io::read(&reader, &mut got).unwrap();
    assert_eq!(got, disk.bytes[5 * BLOCK as usize..][..8]);
    drop(connection);
    assert_eq!(look(5 * BLOCK as usize), Err(Errno::FAULT));
    let error = file.read_at(&mut got, 0).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Err(Errno::IO));
    // The device is released although the file is open and mapped.
    let number = rustix::fs::minor(std::os::unix::fs::MetadataExt::rdev(&disk.device.metadata().unwrap()));
    let backing = format!("/sys/block/loop{number}/loop/backing_file");
    assert!(std::path::Path::new(&backing).exists());
    drop(disk);
    assert!(eventually(|| !std::path::Path::new(&backing).exists()), "{backing} still exists");
    // SAFETY: it was mapped above, and nothing uses it any more.
    unsafe { munmap(at, length) }.unwrap();
}

#[test]
fn disconnect_during_reads() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(2048);
    for round in 0..15u64 {
        let connection = disk.connect();
        let files: Vec<File> = (0..4)
            .map(|n| {
                let mapped = connection.file(2048 * BLOCK).unwrap();
                let parts: Vec<_> =
                    (0..2048).map(|block| extent(block, (block + n) % 2048, 1, true)).collect();
                mapped.push(&parts).unwrap();
                mapped.into_fd().into()
            })
            .collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (n, file) in files.iter().enumerate() {
                let (disk, over) = (&disk, &over);
                scope.spawn(move || {
                    let direct = n % 2 == 1;
                    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
                    let flags = if direct { libc::O_DIRECT } else { 0 };
                    let mut options = File::options();
                    let file = std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), flags)
                        .open(path)
                        .unwrap();
                    let mut room = vec![0u8; 2 * BLOCK as usize];
                    let start = room.as_ptr().align_offset(BLOCK as usize);
                    for block in (0..).map(|step: u64| step * 37 % 2048) {
                        let buffer = &mut room[start..start + BLOCK as usize];
                        match file.read_at(buffer, block * BLOCK) {
                            Ok(count) => {
                                let from = ((block + n as u64) % 2048 * BLOCK) as usize;
                                assert!(buffer[..count] == disk.bytes[from..from + count], "block {block}");
                            }
                            Err(error) => {
                                assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
                                assert!(over.load(Ordering::SeqCst));
                                return;
                            }
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(5 + 7 * round));
            over.store(true, Ordering::SeqCst);
            drop(connection);
        });
    }
}

#[test]
fn files_change_during_disconnect() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(64);
    for _ in 0..30 {
        let connection = disk.connect();
        let made: Vec<_> = (0..200)
            .map(|_| {
                let mapped = connection.file(64 * BLOCK).unwrap();
                mapped.push(&[extent(0, 0, 64, true)]).unwrap();
                File::from(mapped.into_fd())
            })
            .collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for file in made {
                    let _ = file.read_at(&mut [0; 100], 0);
                }
            });
            drop(connection);
        });
    }
}
