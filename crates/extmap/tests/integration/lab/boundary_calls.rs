//! Calls at the limits of what the module accepts: the largest offsets, held ranges, privileges, and waits that others prolong.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Uid;
use shunt_extmap::Extent;

use super::aligned::Aligned;
use super::disk::{BLOCK, Disk, extent, module_is_here};
use super::raw_calls::{call, control_of, issue, refused, word};

/// The largest size of a file.
const MAX_SIZE: u64 = i64::MAX as u64;

/// A hole that ends at the largest offset has a byte after it, in the last block. A loop over holes must not stop there.
#[test]
fn largest_offsets() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::writable(64);
    let connection = disk.connect();
    for from in [0, 1, BLOCK, MAX_SIZE - BLOCK, MAX_SIZE] {
        let file = connection.writable_file(from).unwrap();
        file.push(&[extent(0, 1, 2, true)]).unwrap();
        let open = File::from(file.as_fd().try_clone_to_owned().unwrap());
        file.grow(MAX_SIZE).unwrap();
        let mut last = [7; 2];
        assert_eq!(open.read_at(&mut last, MAX_SIZE - 2).unwrap(), 2, "{from}");
        assert_eq!(last, [0; 2]);
        assert_eq!(rustix::fs::seek(&open, rustix::fs::SeekFrom::Hole(MAX_SIZE - 1)), Ok(MAX_SIZE - 1));
        drop(file.truncate_held(MAX_SIZE).unwrap());
        drop(file.punch_held(MAX_SIZE - 1, 1).unwrap());
        drop(file.cut_tail().unwrap());
        file.truncate(MAX_SIZE - 1).unwrap();
        file.truncate(0).unwrap();
        assert_eq!(file.settle().unwrap().size, 0);
    }
}

/// A refused cut changes nothing, and the end of one hold does not end another.
#[test]
fn ranges_are_held_once() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::writable(64);
    let connection = disk.connect();
    let file = connection.writable_file(8 * BLOCK).unwrap();
    file.push(&[extent(0, 8, 8, true)]).unwrap();
    let open = File::from(file.as_fd().try_clone_to_owned().unwrap());
    let held = file.punch_held(2 * BLOCK, BLOCK).unwrap();
    assert_eq!(refused(file.truncate(BLOCK)), Errno::BUSY);
    assert_eq!(refused(file.truncate_held(0)), Errno::BUSY);
    assert_eq!(refused(file.punch(0, BLOCK)), Errno::BUSY);
    assert_eq!(refused(file.cut_tail()), Errno::BUSY);
    // Without a whole block, the call would not need a hold, but ends one.
    assert_eq!(refused(file.punch_held(100, 100)), Errno::BUSY);
    assert_eq!(open.metadata().unwrap().len(), 8 * BLOCK);
    let mut content = [0; 300];
    open.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(content, [0xee; 300]);
    file.grow(9 * BLOCK).unwrap();
    assert_eq!(refused(file.push(&[extent(2, 2, 1, true)])), Errno::AGAIN);
    drop(held);
    file.push(&[extent(2, 2, 1, true)]).unwrap();
    // A range without a whole block is held as well, until it is freed.
    let held = file.punch_held(100, 100).unwrap();
    assert_eq!(refused(file.cut_tail()), Errno::BUSY);
    drop(held);
    drop(file.cut_tail().unwrap());
}

#[test]
fn unlisted_flags_are_refused() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::writable(64);
    let connection = disk.connect();
    let file = connection.writable_file(BLOCK).unwrap();
    let (control, fd) = (control_of(&connection), file.as_fd().as_raw_fd());
    let cut = |flags, offset, length| {
        let mut words = [word(fd, flags), offset, length];
        issue(control, 4, 24, 3, words.as_mut_ptr().cast())
    };
    // RANGE 1, HOLD 2, TAIL 4, GROW 8.
    for (flags, offset, length) in
        [(5, 0, BLOCK), (9, 0, BLOCK), (10, BLOCK, 0), (12, 0, 0), (16, 0, 0), (u32::MAX, 0, 0)]
    {
        assert_eq!(cut(flags, offset, length), Err(Errno::INVAL), "{flags}");
    }
    for flags in [0, 2, 4, 8] {
        assert_eq!(cut(flags, 0, 1), Err(Errno::INVAL), "{flags} takes no length");
    }
    for (offset, length) in [(0, 0), (MAX_SIZE, 1), (1, MAX_SIZE), (u64::MAX, u64::MAX), (0, u64::MAX)] {
        assert_eq!(cut(1, offset, length), Err(Errno::INVAL), "{offset:x} {length:x}");
    }
    for size in [MAX_SIZE + 1, u64::MAX] {
        assert_eq!(cut(0, size, 0), Err(Errno::FBIG));
        assert_eq!(cut(8, size, 0), Err(Errno::FBIG));
    }
    assert_eq!(file.settle().unwrap().size, BLOCK);
}

/// Root may open any file for writing through /proc. A file that is not writable is not, and its device may be read-only.
#[test]
fn readable_files_stay_so() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::writable(64);
    let connection = disk.connect();
    let file = connection.file(0).unwrap();
    file.push(&[extent(0, 0, 8, true)]).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    assert_eq!(refused(File::options().write(true).open(&path)), Errno::ROFS);
    assert_eq!(refused(File::options().read(true).write(true).open(&path)), Errno::ROFS);
    File::open(&path).unwrap();
}

/// Whoever got the descriptor of an unbound control device from root cannot bind it.
#[test]
fn binding_takes_a_capability() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(64);
    let control = File::options().read(true).write(true).open("/dev/shunt_extmap").unwrap();
    let bind = [word(2, disk.device.as_raw_fd().cast_unsigned()), BLOCK, 0];
    let as_user = || {
        let user = Uid::from_raw(1000);
        // Of this thread alone; with the effective user, the capabilities go.
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        call(control.as_raw_fd(), 1, &bind)
    };
    let refused = std::thread::scope(|scope| scope.spawn(as_user).join().unwrap());
    assert_eq!(refused, Err(Errno::PERM));
    call(control.as_raw_fd(), 1, &bind).unwrap();
}

/// Direct reads are in flight at all times: a commit does not wait until there is none.
#[test]
fn readers_do_not_delay_a_settle() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::writable(64);
    let connection = disk.connect();
    let file = connection.writable_file(64 * BLOCK).unwrap();
    file.push(&[extent(0, 0, 64, true)]).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let over = AtomicBool::new(false);
    let slowest = std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let open = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
                let mut buffer = Aligned::new(64 * BLOCK as usize, 0);
                while !over.load(Ordering::Relaxed) {
                    open.read_exact_at(&mut buffer, 0).unwrap();
                }
            });
        }
        let mut slowest = Duration::ZERO;
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(200));
            let begun = Instant::now();
            file.settle().unwrap();
            slowest = slowest.max(begun.elapsed());
        }
        over.store(true, Ordering::Relaxed);
        slowest
    });
    println!("the slowest settle took {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

/// Each hole in an extent adds one, and a user chooses the number of holes.
#[test]
fn holes_cannot_use_up_memory() {
    if !module_is_here() {
        return;
    }
    /// Maximum number of extents of a file.
    const MAX_RUNS: u64 = 1 << 20;
    let disk = Disk::writable(64);
    let connection = disk.connect();
    let file = connection.writable_file((MAX_RUNS + 2) * BLOCK).unwrap();
    let single = |offset: u64| Extent { offset: offset * BLOCK, ..extent(0, 0, 1, true) };
    file.push(&[extent(0, 0, 3, true)]).unwrap();
    let begun = Instant::now();
    for first in (3..MAX_RUNS + 2).step_by(1 << 16) {
        let part: Vec<Extent> = (first..(first + (1 << 16)).min(MAX_RUNS + 2)).map(single).collect();
        file.push(&part).unwrap();
    }
    println!("{MAX_RUNS} extents took {:?}", begun.elapsed());
    assert_eq!(refused(file.push(&[single(MAX_RUNS + 5)])), Errno::TOOBIG);
    assert_eq!(refused(file.punch(BLOCK, BLOCK)), Errno::TOOBIG);
    // Cuts that split no extent do not fail.
    file.punch(5 * BLOCK, BLOCK).unwrap();
    file.punch(BLOCK, BLOCK).unwrap();
    assert_eq!(refused(file.push(&[single(MAX_RUNS + 5)])), Errno::TOOBIG);
    file.truncate(BLOCK / 2).unwrap();
}
