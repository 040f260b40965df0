//! Writable files: the module requests blocks, reports written ranges, and unwritten blocks read as zeros.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use shunt_extmap::{Connection, Extent, MappedFile, Upcall};

use super::aligned::Aligned;
use super::disk::{BLOCK, Disk, forget_caches, module_is_here};
use super::rng::Rng;

/// State of a file in the test's file system.
struct FileState {
    mapped: Arc<MappedFile>,
    extents: Vec<Extent>,
    /// Blocks that the module reported as written.
    written: Vec<u64>,
}

/// A file system without names that allocates blocks in sequence and frees none.
struct BlockAllocator {
    connection: Connection,
    files: Mutex<HashMap<u64, FileState>>,
    next: AtomicU64,
    blocks: u64,
    over: AtomicBool,
    syncs: AtomicU64,
}

impl BlockAllocator {
    fn new(disk: &Disk, blocks: u64) -> Arc<Self> {
        let connection = disk.connect();
        let [next, syncs] = Default::default();
        Arc::new(Self {
            connection,
            files: Mutex::default(),
            next,
            blocks,
            over: AtomicBool::new(false),
            syncs,
        })
    }

    fn file(&self, size: u64) -> (Arc<MappedFile>, File) {
        let mapped = Arc::new(self.connection.writable_file(size).unwrap());
        let open = File::from(std::os::fd::AsFd::as_fd(&*mapped).try_clone_to_owned().unwrap());
        let known = FileState { mapped: mapped.clone(), extents: Vec::new(), written: Vec::new() };
        self.files.lock().unwrap().insert(mapped.cookie(), known);
        (mapped, open)
    }

    fn serve(&self) {
        while !self.over.load(Ordering::SeqCst) {
            let Some(request) = self.connection.next_request(Duration::from_millis(50)).unwrap() else {
                continue;
            };
            let done = match request.upcall {
                Upcall::Allocate { offset, length } => self.allocate(request.file, offset, length),
                Upcall::Sync => {
                    self.settle(request.file).map(|()| self.syncs.fetch_add(1, Ordering::SeqCst)).map(drop)
                }
            };
            let _ = self.connection.reply(request.id, done);
        }
    }

    fn allocate(&self, file: u64, offset: u64, length: u64) -> Result<(), Errno> {
        let mut files = self.files.lock().unwrap();
        let known = files.get_mut(&file).ok_or(Errno::STALE)?;
        // Block by block, so that no two are contiguous.
        for at in (offset..offset + length).step_by(BLOCK as usize) {
            if known.extents.iter().any(|extent| extent.offset == at) {
                continue;
            }
            let n = self.next.fetch_add(1, Ordering::SeqCst);
            if n >= self.blocks {
                return Err(Errno::NOSPC);
            }
            let device = n * 7919 % self.blocks * BLOCK;
            let extent = Extent { offset: at, device, length: BLOCK, written: false };
            known.mapped.push(&[extent]).map_err(|error| Errno::from_io_error(&error).unwrap())?;
            known.extents.push(extent);
        }
        Ok(())
    }

    fn settle(&self, file: u64) -> Result<(), Errno> {
        let mapped = self.files.lock().unwrap().get(&file).ok_or(Errno::STALE)?.mapped.clone();
        let ranges = mapped.settle().map_err(|error| Errno::from_io_error(&error).unwrap())?.ranges;
        let blocks = ranges.iter().flat_map(|range| (range.start..range.end).step_by(BLOCK as usize));
        self.files.lock().unwrap().get_mut(&file).unwrap().written.extend(blocks);
        Ok(())
    }

    fn cut(&self, mapped: &MappedFile, size: u64) {
        mapped.truncate(size).unwrap();
        let mut files = self.files.lock().unwrap();
        let known = files.get_mut(&mapped.cookie()).unwrap();
        known.extents.retain(|extent| extent.offset < size);
        known.written.retain(|offset| *offset < size);
    }

    fn punch(&self, mapped: &MappedFile, from: u64, to: u64) {
        mapped.punch(from, to - from).unwrap();
        let mut files = self.files.lock().unwrap();
        let known = files.get_mut(&mapped.cookie()).unwrap();
        known.extents.retain(|extent| !(from..to).contains(&extent.offset));
        known.written.retain(|offset| !(from..to).contains(offset));
    }

    /// Returns the content that survives a crash: only blocks reported as written.
    fn found(&self, file: u64, size: u64, disk: &Disk) -> Vec<u8> {
        // Not through the page cache of the device, which is not kept coherent.
        let device = File::open(disk.path()).unwrap();
        let files = self.files.lock().unwrap();
        let known = &files[&file];
        let mut content = vec![0; size.next_multiple_of(BLOCK) as usize];
        for extent in known.extents.iter().filter(|extent| known.written.contains(&extent.offset)) {
            if let Some(room) = content.get_mut(extent.offset as usize..(extent.offset + BLOCK) as usize) {
                device.read_exact_at(room, extent.device).unwrap();
            }
        }
        content.truncate(size as usize);
        content
    }
}

/// Runs with a thread that replies to block requests.
fn with_giver(disk: &Disk, blocks: u64, run: impl FnOnce(&Arc<BlockAllocator>)) {
    let allocator = BlockAllocator::new(disk, blocks);
    let serving = std::thread::spawn({
        let allocator = allocator.clone();
        move || allocator.serve()
    });
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&allocator)));
    allocator.over.store(true, Ordering::SeqCst);
    serving.join().unwrap();
    ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn again(file: &File, flags: i32) -> File {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

fn write_mapped(file: &File, offset: u64, data: &[u8], sync: bool) {
    let start = offset / BLOCK * BLOCK;
    let length = (offset - start) as usize + data.len();
    // SAFETY: a new mapping within the file, written only within its length, and unmapped before anything else can use it.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, start).unwrap();
        let to = at.cast::<u8>().add((offset - start) as usize);
        std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
        if sync {
            msync(at, length, MsyncFlags::SYNC).unwrap();
        }
        munmap(at, length).unwrap();
    }
}

fn grow(model: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let end = offset as usize + data.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[offset as usize..end].copy_from_slice(data);
}

/// Returns the first difference. Compares whole slices first, because the byte loop is slow.
fn differ(one: &[u8], other: &[u8]) -> Option<usize> {
    if one == other {
        None
    } else {
        Some(one.iter().zip(other).take_while(|(one, other)| one == other).count())
    }
}

fn read_all(file: &File) -> Vec<u8> {
    let mut content = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

#[test]
fn written_ranges_are_read_and_reported() {
    if !module_is_here() {
        return;
    }
    const LARGEST: u64 = 600_000;
    for seed in [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f] {
        let disk = Disk::writable(8192);
        with_giver(&disk, 8192, |allocator| {
            let (mapped, file) = allocator.file(0);
            let (direct, synced) = (again(&file, libc::O_DIRECT), again(&file, libc::O_DSYNC));
            let (mut model, mut rng) = (Vec::new(), Rng::new(seed));
            for step in 0..200 {
                let offset = rng.roll(LARGEST);
                let long = rng.roll(4) == 0;
                let length = 1 + rng.roll(if long { 100_000 } else { 6000 });
                let data = vec![1 + rng.roll(255) as u8; length as usize];
                let what = rng.roll(12);
                match what {
                    0..=3 => {
                        file.write_all_at(&data, offset).unwrap();
                        grow(&mut model, offset, &data);
                    }
                    4 | 5 => {
                        let offset = offset / BLOCK * BLOCK;
                        let count = (length.next_multiple_of(BLOCK)) as usize;
                        let data = Aligned::new(count, data[0]);
                        direct.write_all_at(&data, offset).unwrap();
                        grow(&mut model, offset, &data);
                    }
                    6 if (offset as usize) < model.len() => {
                        let data = &data[..data.len().min(model.len() - offset as usize)];
                        write_mapped(&file, offset, data, step % 3 == 0);
                        grow(&mut model, offset, data);
                    }
                    7 => {
                        synced.write_all_at(&data, offset).unwrap();
                        grow(&mut model, offset, &data);
                        let found = allocator.found(mapped.cookie(), model.len() as u64, &disk);
                        let range = offset as usize..offset as usize + data.len();
                        assert!(found[range.clone()] == model[range], "O_DSYNC at {offset}, step {step}");
                    }
                    8 => {
                        allocator.cut(&mapped, offset);
                        model.resize(offset as usize, 0);
                    }
                    9 => {
                        let from = offset / BLOCK * BLOCK;
                        let to = from + length.next_multiple_of(BLOCK);
                        allocator.punch(&mapped, from, to);
                        let (from, to) = (model.len().min(from as usize), model.len().min(to as usize));
                        model[from..to].fill(0);
                    }
                    10 => std::fs::write("/proc/sys/vm/drop_caches", "1").unwrap(),
                    _ => {
                        allocator.settle(mapped.cookie()).unwrap();
                        let found = allocator.found(mapped.cookie(), model.len() as u64, &disk);
                        assert_eq!(differ(&found, &model), None, "after a crash, step {step}");
                    }
                }
                let read = read_all(&file);
                assert_eq!(read.len(), model.len(), "step {step}, {what}");
                assert_eq!(differ(&read, &model), None, "step {step}, {what} of {length} at {offset}");
            }
            assert!(allocator.syncs.load(Ordering::SeqCst) > 0);
        });
    }
}

#[test]
fn unsynced_data_reads_as_zeros() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::writable(256);
    with_giver(&disk, 256, |allocator| {
        let (mapped, file) = allocator.file(0);
        file.write_all_at(&[1; 50_000], 0).unwrap();
        allocator.settle(mapped.cookie()).unwrap();
        file.write_all_at(&[2; 50_000], 100_000).unwrap();
        let found = allocator.found(mapped.cookie(), 150_000, &disk);
        assert!(found[..50_000].iter().all(|byte| *byte == 1));
        assert!(found[50_000..].iter().all(|byte| *byte == 0), "old content of the blocks is visible");
    });
}

/// A file system may have such blocks, for example after a failed write. What they contain must not appear when the file grows.
#[test]
fn written_blocks_beyond_the_end_read_as_zeros_after_growth() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::writable(64);
    let connection = disk.connect();
    // The start of the gap lies within a block, and for buffered writes its end, too.
    let end = BLOCK as usize + 100;
    for (direct, at, device) in [(false, 9 * BLOCK as usize + 10, 0), (true, 10 * BLOCK as usize, 32 * BLOCK)]
    {
        let mapped = connection.writable_file(end as u64).unwrap();
        mapped.push(&[Extent { offset: 0, device, length: 32 * BLOCK, written: true }]).unwrap();
        let file = File::from(std::os::fd::AsFd::as_fd(&mapped).try_clone_to_owned().unwrap());
        let data = Aligned::new(BLOCK as usize, 1);
        let writer = again(&file, if direct { libc::O_DIRECT } else { 0 });
        writer.write_all_at(&data, at as u64).unwrap();
        let mut model =
            disk.content(end as u64, &[Extent { offset: 0, device, length: BLOCK * 2, written: true }]);
        model.truncate(end);
        model.resize(at, 0);
        model.extend_from_slice(&data);
        assert_eq!(differ(&read_all(&file), &model), None, "direct: {direct}");
        // Not by fsync, which asks the owner of the file: no thread here answers.
        forget_caches();
        assert_eq!(differ(&read_all(&file), &model), None, "direct: {direct}, from the device");
    }
}

#[test]
fn full_device_returns_enospc() {
    if !module_is_here() {
        return;
    }
    let disk = Disk::writable(64);
    with_giver(&disk, 20, |allocator| {
        let (_mapped, file) = allocator.file(0);
        file.write_all_at(&[1; 10 * BLOCK as usize], 0).unwrap();
        let error = file.write_all_at(&[2; 30 * BLOCK as usize], 0).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
        // The part that fit was written.
        assert!(read_all(&file) == vec![2; 20 * BLOCK as usize]);
    });
}

#[test]
fn no_writes_after_disconnect() {
    if !module_is_here() {
        return;
    }
    for _ in 0..3 {
        let disk = Disk::writable(1024);
        let connection = disk.connect();
        let mapped = connection.writable_file(0).unwrap();
        let blocks: Vec<Extent> = (0..1024u64)
            .map(|n| Extent {
                offset: n * BLOCK,
                device: (1023 - n) * BLOCK,
                length: BLOCK,
                written: n % 2 == 0,
            })
            .collect();
        mapped.push(&blocks).unwrap();
        let file = File::from(std::os::fd::AsFd::as_fd(&mapped).try_clone_to_owned().unwrap());
        let writing = std::thread::spawn(move || {
            for n in 0.. {
                if file.write_all_at(&[n as u8; 300_000], n * 7919 % 900 * BLOCK).is_err() {
                    break;
                }
                if n % 8 == 0 {
                    rustix::fs::sync();
                }
            }
            file
        });
        std::thread::sleep(Duration::from_millis(150));
        drop(mapped);
        drop(connection);
        let look = || {
            rustix::fs::sync();
            std::fs::read(disk.path()).unwrap()
        };
        let before = look();
        let file = writing.join().unwrap();
        assert!(file.write_all_at(&[9; 5000], 0).is_err());
        assert!(look() == before, "something was written after the end");
    }
}
