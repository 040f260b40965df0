//! Memory pressure: writes and maps far more than fits into memory. Pages are evicted and read back all the time by a daemon
//! that must not wait for threads that wait for it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, mmap_anonymous, munmap};

use super::disk::{Mount, forget_caches, module_is_here};
use super::ext4::noise;
use super::writes::{image, mount, unmount};

/// Memory left for all programs and caches.
const LEFT: usize = 160 << 20;
const PIECE: usize = 1 << 20;
/// Number of pieces of each of two files.
const PIECES: usize = 160;

/// Memory taken from all others.
struct ReservedMemory(*mut core::ffi::c_void, usize);

impl ReservedMemory {
    fn all_but(left: usize) -> Self {
        forget_caches();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
        let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
        let available: usize = available.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        let length = (available << 10) - left;
        // SAFETY: new memory that nothing reads.
        unsafe {
            let flags = MapFlags::PRIVATE;
            let at = mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags);
            let at = at.unwrap();
            mlock(at, length).unwrap();
            Self(at, length)
        }
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `all_but`, without other references.
        unsafe { munmap(self.0, self.1) }.unwrap();
    }
}

fn piece(file: u64, n: usize) -> Vec<u8> {
    noise(file * PIECES as u64 + n as u64 + 1, PIECE)
}

fn written(path: &Path) {
    let file = File::create(path).unwrap();
    for n in 0..PIECES {
        file.write_all_at(&piece(0, n), (n * PIECE) as u64).unwrap();
    }
    file.sync_all().unwrap();
}

/// Writes the pieces through a mapping, out of order.
fn mapped(path: &Path) {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    let length = PIECE * PIECES;
    file.set_len(length as u64).unwrap();
    // SAFETY: a new mapping within the file, written by this test only.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, &file, 0).unwrap();
        for n in (0..PIECES).map(|n| n * 7 % PIECES) {
            let to = at.cast::<u8>().add(n * PIECE);
            std::ptr::copy_nonoverlapping(piece(1, n).as_ptr(), to, PIECE);
        }
        munmap(at, length).unwrap();
    }
    file.sync_all().unwrap();
}

fn holds(path: &Path, number: u64) {
    let file = File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (PIECE * PIECES) as u64);
    let mut found = vec![0; PIECE];
    for n in 0..PIECES {
        file.read_exact_at(&mut found, (n * PIECE) as u64).unwrap();
        assert!(found == piece(number, n), "{}: piece {n} has wrong content", path.display());
    }
}

#[test]
fn data_larger_than_memory_is_written_and_mapped() {
    if !module_is_here() {
        return;
    }
    let image = image("pressed", 400, &[]);
    let shunt = mount(&image);
    let [one, two] = ["written", "mapped"].map(|name| shunt.path(name));
    let taken = ReservedMemory::all_but(LEFT);
    std::thread::scope(|scope| {
        scope.spawn(|| written(&one));
        scope.spawn(|| mapped(&two));
    });
    holds(&one, 0);
    holds(&two, 1);
    drop(taken);
    unmount(shunt, &image);
    let kernel = Mount::kernel(&image, "/tmp/kernel", "ro,loop");
    holds(&kernel.path("written"), 0);
    holds(&kernel.path("mapped"), 1);
    drop(kernel);
    fs::remove_file(image).unwrap();
}
