//! Hostile user space: no call damages the kernel.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt as _;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use shunt_extmap::{Connection, Extent};

use super::disk::{BLOCK, Disk, extent, module_is_here};
use super::raw_calls::{call, control_of, issue, push, refused, word};

#[test]
fn only_a_device_is_bound() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(16);
    assert_eq!(refused(Connection::bind(File::open("/dev/null").unwrap(), 4096)), Errno::NOTBLK);
    assert_eq!(refused(Connection::bind(tempfile::tempfile().unwrap(), 4096)), Errno::NOTBLK);
    for size in [0, 1, 256, 1000, 4097, 8192, 1 << 31] {
        assert_eq!(refused(Connection::bind(&disk.device, size)), Errno::INVAL, "{size}");
    }
    for size in [512, 1024, 4096] {
        assert_eq!(Connection::bind(&disk.device, size).unwrap().device_size(), 16 * BLOCK);
    }
}

#[test]
fn invalid_extents_are_refused_as_a_whole() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(64);
    let connection = disk.connect();
    assert_eq!(refused(connection.file(u64::MAX)), Errno::FBIG);
    assert_eq!(refused(connection.file(1 << 63)), Errno::FBIG);
    let file = connection.file(64 * BLOCK).unwrap();
    file.push(&[extent(10, 10, 10, true)]).unwrap();
    let raw = |offset, device, length| Extent { offset, device, length, written: true };
    for (wrong, errno) in [
        (raw(0, 0, 0), Errno::INVAL),
        (raw(1, 0, BLOCK), Errno::INVAL),
        (raw(0, 1, BLOCK), Errno::INVAL),
        (raw(0, 0, BLOCK - 512), Errno::INVAL),
        (raw(0u64.wrapping_sub(BLOCK), 0, BLOCK), Errno::INVAL),
        (raw(1 << 63, 0, BLOCK), Errno::INVAL),
        (raw((1 << 63) - BLOCK, 0, BLOCK * 2), Errno::INVAL),
        (raw(0, 64 * BLOCK, BLOCK), Errno::NXIO),
        (raw(0, 63 * BLOCK, 2 * BLOCK), Errno::NXIO),
        (raw(0, 0u64.wrapping_sub(BLOCK), BLOCK), Errno::NXIO),
        (raw(0, BLOCK, 0u64.wrapping_sub(2 * BLOCK)), Errno::INVAL),
        (raw(9 * BLOCK, 0, 2 * BLOCK), Errno::EXIST),
        (raw(19 * BLOCK, 0, BLOCK), Errno::EXIST),
        (raw(0, 0, 64 * BLOCK), Errno::EXIST),
        (raw(12 * BLOCK, 0, BLOCK), Errno::EXIST),
    ] {
        // In a batch with a valid extent before and after it: neither is accepted.
        let before = extent(40, 40, 1, true);
        assert_eq!(refused(file.push(&[before, wrong, extent(50, 50, 1, true)])), errno, "{wrong:?}");
        assert_eq!(refused(file.push(&[before, before])), Errno::EXIST);
    }
    file.push(&[extent(40, 41, 1, true), extent(50, 51, 1, true)]).unwrap();
    let file = connection.file(BLOCK).unwrap();
    file.push(&[]).unwrap();
}

#[test]
fn foreign_files_are_refused() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(64);
    let (one, other) = (disk.connect(), disk.connect());
    let (_file, stranger) = (one.file(BLOCK).unwrap(), other.file(BLOCK).unwrap());
    let control = control_of(&one);
    assert_eq!(call(control, 3, &push(stranger.as_fd().as_raw_fd(), 1, 0)), Err(Errno::BADF));
    assert_eq!(call(control, 3, &push(disk.device.as_raw_fd(), 1, 0)), Err(Errno::BADF));
    assert_eq!(call(control, 3, &push(-1, 1, 0)), Err(Errno::BADF));
}

/// Version of the interface.
const VERSION: u64 = 2;

#[test]
fn calls_are_checked() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::new(64);
    let connection = disk.connect();
    let file = connection.file(BLOCK).unwrap();
    let (control, fd) = (control_of(&connection), file.as_fd().as_raw_fd());
    for (count, extents, errno) in [
        (0, 0, Errno::INVAL),
        (4097, 0, Errno::INVAL),
        (u32::MAX, 0, Errno::INVAL),
        (1, 0, Errno::FAULT),
        (4096, 8, Errno::FAULT),
        (1, u64::MAX, Errno::FAULT),
    ] {
        assert_eq!(call(control, 3, &push(fd, count, extents)), Err(errno), "{count} {extents:x}");
    }
    // Unknown flags, nonzero padding.
    for (flags, unused) in [(2u32, 0u32), (u32::MAX, 0), (0, 1)] {
        let extent = [0, 0, BLOCK, u64::from(flags) | u64::from(unused) << 32];
        assert_eq!(call(control, 3, &push(fd, 1, extent.as_ptr() as u64)), Err(Errno::INVAL));
    }
    assert_eq!(call(control, 2, &[BLOCK, 2, 0]), Err(Errno::INVAL));
    assert_eq!(call(control, 2, &[BLOCK, 0, 1]), Err(Errno::INVAL));
    assert_eq!(call(control, 2, &[BLOCK, 1, 0]), Err(Errno::ROFS));
    assert_eq!(call(control, 1, &[VERSION, 4096, 0]), Err(Errno::BUSY));
    assert_eq!(call(control, 9, &[0]), Err(Errno::NOTTY));
    let fresh = File::options().read(true).write(true).open("/dev/shunt_extmap").unwrap();
    assert_eq!(call(fresh.as_raw_fd(), 2, &[BLOCK, 0, 0]), Err(Errno::NOTCONN));
    for other in [VERSION - 1, VERSION + 1] {
        assert_eq!(call(fresh.as_raw_fd(), 1, &[other | (fd as u64) << 32, 4096, 0]), Err(Errno::PROTO));
    }
    assert_eq!(call(fresh.as_raw_fd(), 1, &[VERSION | 0xffff_ffff << 32, 4096, 0]), Err(Errno::BADF));
    let device = disk.device.as_raw_fd() as u64;
    assert_eq!(call(fresh.as_raw_fd(), 1, &[VERSION | device << 32, 4096 | 1 << 32, 0]), Err(Errno::INVAL));
    // The module's files accept no metadata changes, and are not devices.
    assert!(file.as_fd().try_clone_to_owned().is_ok());
    assert_eq!(rustix::fs::fchmod(&file, 0o777.into()), Err(Errno::PERM));
    assert_eq!(refused(Connection::bind(&file, 4096)), Errno::NOTBLK);
}

#[test]
fn limits_are_enforced() {
    if !module_is_here() {
        return;
    }
    let parameter = |name: &str| format!("/sys/module/shunt_extmap/parameters/{name}");
    let set = |name: &str, value: &str| std::fs::write(parameter(name), value).unwrap();
    let before = ["most_files", "most_extents"].map(|name| std::fs::read_to_string(parameter(name)).unwrap());
    set("most_files", "3");
    set("most_extents", "10");
    let disk = Disk::new(64);
    let connection = disk.connect();
    let files: Vec<_> = (0..3).map(|_| connection.file(BLOCK).unwrap()).collect();
    let fourth = refused(connection.file(BLOCK));
    let many: Vec<Extent> = (0..9).map(|n| extent(n, n, 1, true)).collect();
    files[0].push(&many).unwrap();
    let too_many = refused(files[1].push(&many[..2]));
    let one_more = files[1].push(&many[..1]);
    // Unwritten blocks take more memory: two bits each.
    let writable = Disk::writable(64);
    let other = writable.connect();
    let unwritten: Vec<Extent> = (0..6).map(|n| extent(n * 2, n, 1, false)).collect();
    let of_other = other.file(BLOCK).unwrap();
    let five = of_other.push(&unwritten[..5]);
    let sixth = refused(of_other.push(&unwritten[5..]));
    drop(files);
    let after = super::connection_abort::eventually(|| {
        connection.file(BLOCK).is_ok_and(|file| file.push(&many).is_ok())
    });
    set("most_files", before[0].trim());
    set("most_extents", before[1].trim());
    assert_eq!((fourth, too_many), (Errno::MFILE, Errno::TOOBIG));
    one_more.unwrap();
    five.unwrap();
    assert_eq!(sixth, Errno::TOOBIG);
    assert!(after, "returned blocks still count against the limit");
}

/// If the reply cannot be copied out, the ranges stay unreported and no descriptor leaks.
#[test]
fn failed_copyout_loses_no_ranges() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::writable(64);
    let connection = disk.connect();
    let control = control_of(&connection);
    let file = connection.writable_file(8 * BLOCK).unwrap();
    file.push(&[extent(0, 3, 8, false)]).unwrap();
    let open = File::from(file.as_fd().try_clone_to_owned().unwrap());
    open.write_all_at(&[7; 2 * BLOCK as usize], 0).unwrap();
    let fd = file.as_fd().as_raw_fd();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let mut room = [0u64; 16];
    for ranges in [0, room.as_mut_ptr() as u64] {
        // Neither a range nor the structure itself can be written.
        let settle = ReadOnly::new(&[word(fd, 8), ranges, 0, 0]);
        assert_eq!(settle.call(control, 5, 32), Err(Errno::FAULT), "{ranges:x}");
    }
    assert_eq!(ReadOnly::new(&[BLOCK, 0, 0]).call(control, 2, 24), Err(Errno::FAULT));
    assert_eq!(descriptors(), before);
    let settled = file.settle().unwrap().ranges;
    assert_eq!((settled.len(), &settled[0]), (1, &(0..2 * BLOCK)));
    assert!(file.settle().unwrap().ranges.is_empty());
}

/// Arguments of a call in read-only memory.
struct ReadOnly(*mut std::ffi::c_void);

impl ReadOnly {
    fn new(words: &[u64]) -> Self {
        let (length, access) = (BLOCK as usize, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: private memory, large enough for the words, which nothing writes to from then on.
        unsafe {
            let at = mmap_anonymous(std::ptr::null_mut(), length, access, MapFlags::PRIVATE).unwrap();
            at.cast::<u64>().copy_from_nonoverlapping(words.as_ptr(), words.len());
            mprotect(at, length, MprotectFlags::READ).unwrap();
            Self(at)
        }
    }

    fn call(&self, control: i32, number: u64, size: u64) -> Result<i32, Errno> {
        issue(control, number, size, 3, self.0)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and there are no references into it.
        unsafe { munmap(self.0, BLOCK as usize).unwrap() };
    }
}
