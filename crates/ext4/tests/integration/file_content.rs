//! File content: after writes, truncation and allocation by the engine, the kernel reads the expected content, and e2fsck finds
//! no error.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::{
    Attributes, Error, Fallocate, FileDevice, Filesystem, ForeignData, NewInode, NewInodeKind, ROOT,
    ReservedAccess, Time, WriteSource,
};

use crate::common::{Image, run};

fn open(path: &Path) -> Filesystem {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    Filesystem::open_writable(Arc::new(FileDevice::new(file, false).unwrap())).unwrap()
}

/// Data that the engine cannot see in memory.
struct Elsewhere<'a> {
    data: Vec<u8>,
    backing: &'a File,
}

impl ForeignData for Elsewhere<'_> {
    fn len(&self) -> usize {
        self.data.len()
    }

    fn write_to_backing_file(&self, range: Range<usize>, offset: u64) -> io::Result<()> {
        self.backing.write_all_at(&self.data[range], offset)
    }

    fn to_bytes(&self, range: Range<usize>) -> io::Result<Vec<u8>> {
        Ok(self.data[range].to_vec())
    }
}

fn fsck(path: &Path) {
    let output = Command::new("e2fsck").arg("-fn").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Deterministic pseudo-random numbers.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

const FILES: usize = 4;
const LARGEST: u64 = 3 << 20;

/// Applies a random operation to a file and to its model.
fn step(
    (fs, backing): (&Filesystem, &File),
    number: u32,
    model: &mut Vec<u8>,
    rng: &mut Rng,
    block: u64,
    extents: bool,
) {
    let offset = rng.roll(LARGEST);
    let whole = offset / block * block;
    let long = rng.roll(4) == 0;
    let length = 1 + rng.roll(if long { 400_000 } else { 9_000 });
    let size = model.len() as u64;
    let zero = |model: &mut Vec<u8>, from: u64, to: u64| {
        let to = to.min(model.len() as u64);
        if from < to {
            model[from as usize..to as usize].fill(0);
        }
    };
    match rng.roll(if extents { 10 } else { 7 }) {
        0..=3 => {
            let data = vec![1 + rng.roll(255) as u8; length as usize];
            let written = if rng.roll(2) == 0 {
                fs.write(number, offset, &data)
            } else {
                let data = Elsewhere { data: data.clone(), backing };
                fs.write_as(number, offset, WriteSource::Foreign(&data), ReservedAccess::Common)
            };
            assert_eq!(written.unwrap(), data.len());
            let end = (offset + length) as usize;
            if model.len() < end {
                model.resize(end, 0);
            }
            model[offset as usize..end].copy_from_slice(&data);
        }
        4 => {
            fs.truncate(number, offset).unwrap();
            model.resize(offset as usize, 0);
        }
        5 | 6 => {
            fs.fallocate(number, Fallocate::Punch, offset, length).unwrap();
            zero(model, offset, offset + length);
        }
        7 => {
            let keep = rng.roll(2) == 0;
            let what = if keep { Fallocate::KeepSize } else { Fallocate::Allocate };
            fs.fallocate(number, what, offset, length).unwrap();
            if !keep && size < offset + length {
                model.resize((offset + length) as usize, 0);
            }
        }
        8 => {
            fs.fallocate(number, Fallocate::Zero { keep_size: true }, offset, length).unwrap();
            zero(model, offset, offset + length);
        }
        _ => {
            let length = length.next_multiple_of(block);
            if rng.roll(2) == 0 {
                let result = fs.fallocate(number, Fallocate::Collapse, whole, length);
                match whole + length < size {
                    true => {
                        result.unwrap();
                        model.drain(whole as usize..(whole + length) as usize);
                    }
                    false => assert!(matches!(result, Err(Error::Invalid))),
                }
            } else if size + length <= LARGEST * 2 {
                let result = fs.fallocate(number, Fallocate::Insert, whole, length);
                match whole < size {
                    true => {
                        result.unwrap();
                        model.splice(whole as usize..whole as usize, std::iter::repeat_n(0, length as usize));
                    }
                    false => assert!(matches!(result, Err(Error::Invalid))),
                }
            }
        }
    }
}

fn read(fs: &Filesystem, number: u32) -> Vec<u8> {
    let inode = fs.inode(number).unwrap();
    let mut content = vec![0xaa; inode.size as usize];
    assert_eq!(fs.read(&inode, 0, &mut content).unwrap(), content.len());
    content
}

/// Reads a file from the device by its extents alone.
fn by_extents(fs: &Filesystem, number: u32, device: &[u8]) -> Vec<u8> {
    let inode = fs.inode(number).unwrap();
    let extents = fs.extents(&inode, usize::MAX).unwrap().unwrap();
    let few = fs.extents(&inode, extents.len().saturating_sub(1)).unwrap();
    assert!(few.is_none() || extents.is_empty());
    let block = fs.geometry().block_size as usize;
    let mut content = vec![0; (inode.size as usize).next_multiple_of(block)];
    for extent in extents.iter().filter(|extent| extent.written) {
        let [to, from, length] = [extent.offset, extent.device, extent.length].map(|number| number as usize);
        content[to..to + length].copy_from_slice(&device[from..from + length]);
    }
    content.truncate(inode.size as usize);
    content
}

fn name(n: usize) -> String {
    format!("file{n}")
}

fn agrees(mkfs: &[&str], seed: u64) {
    let Some(mut image) = Image::new(mkfs, 64, false) else { return };
    (0..FILES).for_each(|n| fs::write(image.mnt().join(name(n)), vec![9; n * 1000]).unwrap());
    image.unmount();
    let mut rng = Rng(seed);
    let mut models: Vec<Vec<u8>> = (0..FILES).map(|n| vec![9; n * 1000]).collect();
    let crashed = image.dir.path().join("crashed");
    for round in 0..4 {
        let engine = open(&image.path());
        let backing = OpenOptions::new().write(true).open(image.path()).unwrap();
        let block = u64::from(engine.geometry().block_size);
        let extents = engine.kind() == "ext4";
        let files: Vec<u32> = (0..FILES).map(|n| engine.walk(name(n).as_bytes()).unwrap().number).collect();
        for _ in 0..150 {
            let n = rng.roll(FILES as u64) as usize;
            step((&engine, &backing), files[n], &mut models[n], &mut rng, block, extents);
            if rng.roll(20) == 0 {
                engine.sync().unwrap();
            }
            if rng.roll(10) == 0 {
                assert!(read(&engine, files[n]) == models[n], "{mkfs:?}");
            }
        }
        engine.sync().unwrap();
        fs::copy(image.path(), &crashed).unwrap();
        engine.close().unwrap();
        fsck(&image.path());
        let engine = image.open();
        let device = fs::read(image.path()).unwrap();
        for (number, model) in files.iter().zip(&models) {
            assert!(read(&engine, *number) == *model, "{mkfs:?}, round {round}");
            assert!(by_extents(&engine, *number, &device) == *model, "{mkfs:?}, round {round}: extents");
        }
        if engine.has_journal() {
            run("e2fsck", &["-fy", "-E", "journal_only", crashed.to_str().unwrap()]).unwrap();
            fsck(&crashed);
        }
    }
    // Let the kernel read the crashed image if it has a journal to recover it from.
    if image.open().has_journal() {
        fs::rename(&crashed, image.path()).unwrap();
    }
    let mut image = image.mount().unwrap();
    for (n, model) in models.iter().enumerate() {
        assert!(fs::read(image.mnt().join(name(n))).unwrap() == *model, "{mkfs:?}: {n}");
    }
    // The kernel continues to use the file system.
    for n in 0..FILES {
        fs::write(image.mnt().join(name(n)), vec![7; 500_000]).unwrap();
        fs::remove_file(image.mnt().join(name(n))).unwrap();
    }
    image.unmount();
    fsck(&image.path());
}

macro_rules! images {
    ($($name:ident: $mkfs:expr;)*) => {
        $(#[test] fn $name() {
            for seed in [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f] {
                agrees(&$mkfs, seed);
            }
        })*
    };
}

images! {
    defaults: ["-b", "4096"];
    blocks_of_1k: ["-b", "1024"];
    blocks_of_2k: ["-b", "2048"];
    ext2: ["-t", "ext2", "-b", "1024"];
    ext3: ["-t", "ext3", "-b", "1024"];
    without_sums: ["-b", "1024", "-O", "^metadata_csum,uninit_bg"];
    without_flex: ["-b", "1024", "-O", "^flex_bg,^64bit"];
}

#[test]
fn extent_tree_grows_and_shrinks() {
    let Some(mut image) = Image::new(&["-b", "1024"], 128, false) else { return };
    fs::write(image.mnt().join("a"), b"").unwrap();
    image.unmount();
    let engine = open(&image.path());
    let number = engine.walk(b"a").unwrap().number;
    let free = engine.free().unwrap();
    // Every other block, so that no two form one extent, from the end and from the start.
    for n in 0..12_000_u64 {
        let n = if n % 2 == 0 { n } else { 24_000 - n };
        engine.write(number, n * 2048, &[n as u8; 700]).unwrap();
    }
    let inode = engine.inode(number).unwrap();
    let content = read(&engine, number);
    for n in 0..12_000_u64 {
        let n = if n % 2 == 0 { n } else { 24_000 - n };
        assert!(content[n as usize * 2048..][..700].iter().all(|&byte| byte == n as u8));
    }
    assert!(inode.blocks > 24_000 + 2 * 12_000 / 84, "{}", inode.blocks);
    engine.sync().unwrap();
    let copy = image.dir.path().join("copy");
    fs::copy(image.path(), &copy).unwrap();
    run("e2fsck", &["-fy", "-E", "journal_only", copy.to_str().unwrap()]).unwrap();
    fsck(&copy);
    for n in (0..12_000_u64).step_by(3) {
        engine.fallocate(number, Fallocate::Punch, n * 2048, 1024).unwrap();
    }
    engine.truncate(number, 5).unwrap();
    engine.truncate(number, 0).unwrap();
    assert_eq!(engine.inode(number).unwrap().blocks, 0);
    assert_eq!(engine.free().unwrap(), free);
    engine.close().unwrap();
    fsck(&image.path());
}

#[test]
fn full_file_system_returns_enospc_and_stays_consistent() {
    for mkfs in [&["-b", "1024"][..], &["-b", "1024", "-t", "ext2"]] {
        let Some(mut image) = Image::new(mkfs, 16, false) else { return };
        fs::write(image.mnt().join("a"), b"").unwrap();
        fs::write(image.mnt().join("b"), b"").unwrap();
        image.unmount();
        let engine = open(&image.path());
        let [a, b] = ["a", "b"].map(|name| engine.walk(name.as_bytes()).unwrap().number);
        for _ in 0..3 {
            let mut size = 0;
            loop {
                match engine.write(a, size, &[3; 100_000]) {
                    Ok(count) => size += count as u64,
                    Err(Error::NoSpace) => break,
                    Err(error) => panic!("{error}"),
                }
                // Interleaved writes, so that neither file is contiguous.
                engine.write(b, size, &[4; 1000]).ok();
            }
            assert!(size > 8 << 20, "{size}");
            assert_eq!(engine.inode(a).unwrap().size, size);
            engine.truncate(a, 0).unwrap();
            engine.truncate(b, 0).unwrap();
        }
        engine.close().unwrap();
        fsck(&image.path());
    }
}

/// Holds however full the nodes of its map are.
#[test]
fn fragmented_file_is_truncated_on_full_file_system() {
    let Some(mut image) = Image::new(&["-b", "1024", "-N", "4000"], 8, false) else { return };
    ["a", "b", "fill"].iter().for_each(|name| fs::write(image.mnt().join(name), b"").unwrap());
    image.unmount();
    let engine = open(&image.path());
    let [a, b, fill] = ["a", "b", "fill"].map(|name| engine.walk(name.as_bytes()).unwrap().number);
    let before = engine.free().unwrap();
    // A leaf has room for 84.
    for pieces in [4, 5, 83, 84, 85, 168] {
        for n in 0..pieces {
            for file in [a, b] {
                engine.write(file, n * 2048, &[1; 1024]).unwrap();
            }
        }
        let rest =
            engine.create(ROOT, b"rest", NewInodeKind::Directory, &NewInode::default()).unwrap().number;
        let (mut size, mut length) = (0, 100_000);
        while length > 0 {
            match engine.write(fill, size, &vec![2; length]) {
                Ok(count) => size += count as u64,
                Err(Error::NoSpace) => length /= 2,
                Err(error) => panic!("{error}"),
            }
        }
        // Blocks kept back for metadata are used up as well.
        let mut made = 0;
        while engine
            .create(rest, format!("{made}").as_bytes(), NewInodeKind::Directory, &NewInode::default())
            .is_ok()
        {
            made += 1;
        }
        engine.truncate(a, pieces / 2 * 2048 + 100).unwrap();
        engine.truncate(a, 0).unwrap();
        engine.fallocate(b, Fallocate::Punch, 0, pieces * 1024).unwrap();
        engine.truncate(b, 0).unwrap();
        engine.truncate(fill, 0).unwrap();
        for n in 0..made {
            engine
                .evict_inode(engine.remove_directory(rest, format!("{n}").as_bytes()).unwrap().number)
                .unwrap();
        }
        engine.evict_inode(engine.remove_directory(ROOT, b"rest").unwrap().number).unwrap();
        engine.sync().unwrap();
        assert_eq!(engine.free().unwrap(), before, "{pieces} pieces");
    }
    engine.close().unwrap();
    fsck(&image.path());
}

#[test]
fn concurrently_growing_files_have_long_extents() {
    let Some(mut image) = Image::new(&[], 64, false) else { return };
    (0..4).for_each(|n| fs::write(image.mnt().join(name(n)), b"").unwrap());
    image.unmount();
    let engine = open(&image.path());
    let files: Vec<u32> = (0..4).map(|n| engine.walk(name(n).as_bytes()).unwrap().number).collect();
    for block in 0..400 {
        for &file in &files {
            assert_eq!(engine.write(file, block * 4096, &[1; 4096]).unwrap(), 4096);
        }
    }
    for file in files {
        let inode = engine.inode(file).unwrap();
        let (mut logical, mut runs) = (0, 0);
        while logical < 400 {
            logical += engine.map(&inode, logical, 400).unwrap().length;
            runs += 1;
        }
        assert!(runs <= 20, "{runs} runs");
    }
    engine.close().unwrap();
    fsck(&image.path());
}

#[test]
fn seek_finds_data_and_holes() {
    let Some(mut image) = Image::new(&["-b", "1024"], 16, false) else { return };
    fs::write(image.mnt().join("a"), b"").unwrap();
    image.unmount();
    let engine = open(&image.path());
    let number = engine.walk(b"a").unwrap().number;
    engine.write(number, 10_000, &[1; 100]).unwrap();
    engine.fallocate(number, Fallocate::Allocate, 20_480, 4096).unwrap();
    engine.write(number, 30_000, &[1; 5000]).unwrap();
    assert_eq!(engine.seek_data(number, 0).unwrap(), 9216);
    assert_eq!(engine.seek_data(number, 10_050).unwrap(), 10_050);
    assert_eq!(engine.seek_hole(number, 10_050).unwrap(), 10_240);
    assert_eq!(engine.seek_data(number, 10_240).unwrap(), 29_696);
    assert_eq!(engine.seek_hole(number, 30_000).unwrap(), 35_000);
    assert!(matches!(engine.seek_data(number, 35_000), Err(Error::NoData)));
    engine.close().unwrap();
    fsck(&image.path());
}

#[test]
fn threads_write_concurrently() {
    let Some(mut image) = Image::new(&[], 128, false) else { return };
    (0..8).for_each(|n| fs::write(image.mnt().join(name(n)), b"").unwrap());
    image.unmount();
    let engine = open(&image.path());
    let backing = OpenOptions::new().write(true).open(image.path()).unwrap();
    std::thread::scope(|scope| {
        for n in 0..8_usize {
            let (engine, backing) = (&engine, &backing);
            scope.spawn(move || {
                let number = engine.walk(name(n).as_bytes()).unwrap().number;
                let mut rng = Rng(0x1234_5678_9abc_def1 + n as u64);
                let mut model = Vec::new();
                for round in 0..150 {
                    step((engine, backing), number, &mut model, &mut rng, 4096, true);
                    if round % 30 == 0 {
                        engine.sync().unwrap();
                    }
                }
                assert!(read(engine, number) == model);
            });
        }
    });
    engine.close().unwrap();
    fsck(&image.path());
}

/// A cache writes back at an arbitrary time, which must not be visible.
#[test]
fn write_back_keeps_timestamps() {
    let Some(image) = Image::new(&[], 16, false) else { return };
    let fs = open(&image.path());
    let file = fs.create(ROOT, b"file", NewInodeKind::Regular, &NewInode::default()).unwrap().number;
    let long_ago = Time { seconds: 1_000_000_000, nanoseconds: 7 };
    let change = Attributes { mtime: Some(long_ago), ctime: Some(long_ago), ..Attributes::default() };
    fs.set_attributes(file, &change).unwrap();
    let times = || {
        let inode = fs.inode(file).unwrap();
        (inode.mtime, inode.ctime)
    };
    // New blocks, blocks written before, and both.
    for (offset, byte) in [(0, 1), (1000, 2), (3000, 3)] {
        assert_eq!(
            fs.write_back(file, offset, [byte; 5000][..].into(), ReservedAccess::Common).unwrap(),
            5000
        );
        assert_eq!((times(), fs.inode(file).unwrap().size), ((long_ago, long_ago), offset + 5000));
    }
    fs.sync().unwrap();
    let mut content = vec![0; 8000];
    fs.read(&fs.inode(file).unwrap(), 0, &mut content).unwrap();
    assert!(content == [vec![1; 1000], vec![2; 2000], vec![3; 5000]].concat());
    fs.write(file, 0, b"now").unwrap();
    assert!(times().0 > long_ago && times().1 > long_ago);
    drop(fs);
    fsck(&image.path());
}
