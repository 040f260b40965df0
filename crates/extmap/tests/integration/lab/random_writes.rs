//! Random changes on a Shunt mount and on a kernel mount: the contents are the same afterwards, and also when the kernel mounts
//! the Shunt image.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use super::aligned::Aligned;
use super::disk::{BLOCK, Mount, module_is_here};
use super::rng::Rng;
use super::writes::{found, image, mount, unmount};

/// A change of a file, applied to both mounts.
#[derive(Debug, Clone, Copy)]
enum Change {
    Write(u64, usize, u8),
    Append(usize, u8),
    Direct(u64, usize, u8),
    Mapped(u64, usize, u8),
    Truncate(u64),
    Punch(u64, u64),
    Zero(u64, u64),
    Allocate(u64, u64),
    Ahead(u64, u64),
    Sync,
    Forget,
}

const LARGEST: u64 = 1 << 20;

fn change(rng: &mut Rng) -> Change {
    let (at, byte) = (rng.roll(LARGEST), 1 + rng.roll(255) as u8);
    let long = if rng.roll(4) == 0 { 200_000 } else { 9000 };
    let length = 1 + rng.roll(long);
    let blocks = |bytes: u64| bytes.next_multiple_of(BLOCK);
    match rng.roll(16) {
        0..=3 => Change::Write(at, length as usize, byte),
        4 => Change::Append(length as usize, byte),
        5 | 6 => Change::Direct(blocks(at), blocks(length) as usize, byte),
        7 | 8 => Change::Mapped(at, length as usize, byte),
        9 | 10 => Change::Truncate(at),
        11 => Change::Punch(at, length),
        12 => Change::Zero(at, length),
        13 => Change::Allocate(at, length),
        14 => Change::Ahead(at, length),
        _ if long > 9000 => Change::Forget,
        _ => Change::Sync,
    }
}

fn make(path: &Path, change: Change) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    match change {
        Change::Write(at, length, byte) => file.write_all_at(&vec![byte; length], at).unwrap(),
        Change::Append(length, byte) => {
            use std::io::Write;
            File::options().append(true).open(path).unwrap().write_all(&vec![byte; length]).unwrap();
        }
        Change::Direct(at, length, byte) => {
            let file = File::options().write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
            file.write_all_at(&Aligned::new(length, byte), at).unwrap();
        }
        Change::Mapped(at, length, byte) => write_mapped(&file, at, length, byte),
        Change::Truncate(size) => file.set_len(size).unwrap(),
        Change::Punch(at, length) => {
            fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, length).unwrap();
        }
        Change::Zero(at, length) => fallocate(&file, FallocateFlags::ZERO_RANGE, at, length).unwrap(),
        Change::Allocate(at, length) => fallocate(&file, FallocateFlags::empty(), at, length).unwrap(),
        Change::Ahead(at, length) => fallocate(&file, FallocateFlags::KEEP_SIZE, at, length).unwrap(),
        Change::Sync => file.sync_all().unwrap(),
        Change::Forget => fs::write("/proc/sys/vm/drop_caches", "1").unwrap(),
    }
}

fn write_mapped(file: &File, at: u64, length: usize, byte: u8) {
    let size = file.metadata().unwrap().len();
    let end = (at + length as u64).min(size);
    if at >= end {
        return;
    }
    let start = at / BLOCK * BLOCK;
    let room = (end - start) as usize;
    // SAFETY: a new mapping within the file, written only within its length, and unmapped before anything else can use it.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let map = mmap(std::ptr::null_mut(), room, protection, MapFlags::SHARED, file, start).unwrap();
        map.cast::<u8>().add((at - start) as usize).write_bytes(byte, (end - at) as usize);
        if byte & 1 == 0 {
            msync(map, room, MsyncFlags::SYNC).unwrap();
        }
        munmap(map, room).unwrap();
    }
}

fn same(ours: &[u8], theirs: &[u8], what: &dyn std::fmt::Debug) {
    if ours != theirs {
        let at = ours.iter().zip(theirs).take_while(|(one, other)| one == other).count();
        panic!("{what:?}: {} and {} bytes, first difference at {at}", ours.len(), theirs.len());
    }
}

#[test]
fn random_changes_match_the_kernel() {
    if !module_is_here() {
        return;
    }
    for (seed, form) in [(0x9e37_79b9_7f4a_7c15, &[][..]), (0xc2b2_ae3d_27d4_eb4f, &["-b", "1024"])] {
        let (ours, theirs) = (image("ours", 64, form), image("theirs", 64, form));
        let (shunt, kernel) = (mount(&ours), Mount::kernel(&theirs, "/tmp/kernel2", "loop"));
        let mut rng = Rng::new(seed);
        let names = ["one", "two"];
        for name in names {
            fs::write(shunt.path(name), "").unwrap();
            fs::write(kernel.path(name), "").unwrap();
        }
        for step in 0..300 {
            let (name, change) = (names[rng.roll(2) as usize], change(&mut rng));
            make(&shunt.path(name), change);
            make(&kernel.path(name), change);
            if step % 3 == 0 {
                let (ours, theirs) =
                    (fs::read(shunt.path(name)).unwrap(), fs::read(kernel.path(name)).unwrap());
                same(&ours, &theirs, &(step, name, change));
            }
        }
        let last: Vec<_> = names.iter().map(|name| fs::read(kernel.path(name)).unwrap()).collect();
        drop(kernel);
        unmount(shunt, &ours);
        for (name, theirs) in names.iter().zip(&last) {
            same(&found(&ours, name), theirs, name);
        }
        fs::remove_file(ours).unwrap();
        fs::remove_file(theirs).unwrap();
    }
}
