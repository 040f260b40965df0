//! Maximum file sizes and timestamps, which depend on the format, as with the kernel's own ext4.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use shunt_test_support::{needs_mount, requirement, skip};
use shunt_tests::Image;

/// Returns file sizes on both sides of each limit: block maps, 32-bit sector counts, extents.
fn ends() -> Vec<u64> {
    let map = |block: u64| {
        let table = block / 4;
        (12 + table + table * table + table * table * table) * block
    };
    let mut ends = vec![1 << 31, 1 << 32, 1 << 34, 1 << 40, 1 << 41, 1 << 42, 1 << 43, 1 << 44, 1 << 45];
    ends.extend([1024, 2048, 4096].map(map));
    // The blocks of the map count towards the sectors of an inode.
    ends.extend([2_194_719_883_264, 2_196_873_666_560, 2_196_875_759_616, 2_199_023_251_456]);
    ends.extend([1 << 50, 1 << 55, (1 << 62) + 5]);
    let near = [-4096, -1024, -1, 0, 1, 1024, 4096];
    let mut all: Vec<u64> =
        ends.iter().flat_map(|end| near.map(|by| end.saturating_add_signed(by))).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns for each size the result of truncate, and of a write of the last byte.
fn lengths(at: &Path) -> Vec<(u64, Option<i32>, Option<i32>)> {
    let result = |done: std::io::Result<()>| done.err().and_then(|error| error.raw_os_error());
    let one = |end: u64| {
        let path = at.join("file");
        let file = File::create(&path).unwrap();
        let cut = result(file.set_len(end));
        file.set_len(0).unwrap();
        // The write-back cache accepts data that cannot be written.
        let written = result(file.write_all_at(b"x", end - 1).and_then(|()| file.sync_all()));
        drop(file);
        fs::remove_file(path).unwrap();
        (end, cut, written)
    };
    ends().into_iter().map(one).collect()
}

fn as_large_as_by_the_kernel(mkfs: &[&str]) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let (ours, theirs) = match (Image::make(mkfs, 32), Image::make(mkfs, 32)) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(why), _) | (_, Err(why)) => return skip::skip(&why),
    };
    let kernel = match theirs.by_kernel("rw") {
        Ok(kernel) => kernel,
        Err(why) => return skip::kernel_cannot(&why),
    };
    let mount = ours.by_shunt(&[]);
    let (found, expected) = (lengths(mount.at()), lengths(kernel.at()));
    let differ: Vec<_> = expected.iter().zip(&found).filter(|(expected, found)| expected != found).collect();
    assert!(differ.is_empty(), "{mkfs:?}: kernel and ours: {differ:?}");
    assert!(expected.iter().any(|(_, cut, _)| *cut == Some(libc::EFBIG)));
    // The kernel reads the largest files.
    let largest = expected.iter().filter(|(_, cut, _)| cut.is_none()).map(|(end, ..)| *end).max().unwrap();
    File::create(mount.at().join("largest")).unwrap().set_len(largest).unwrap();
    drop((mount, kernel));
    ours.check();
    let kernel = ours.by_kernel("ro").unwrap();
    assert_eq!(fs::metadata(kernel.at().join("largest")).unwrap().len(), largest);
}

macro_rules! variants {
    ($($name:ident: $options:expr;)*) => {
        $(#[test]
        fn $name() {
            as_large_as_by_the_kernel(&$options);
        })*
    };
}

variants! {
    ext4: ["-b", "4096"];
    ext4_1k: ["-b", "1024"];
    ext4_without_huge_files: ["-b", "4096", "-O", "^huge_file"];
    ext4_1k_without_huge_files: ["-b", "1024", "-O", "^huge_file"];
    ext4_without_extents: ["-b", "4096", "-O", "^extent,^64bit"];
    ext3: ["-t", "ext3", "-b", "4096"];
    ext3_2k: ["-t", "ext3", "-b", "2048"];
    ext2_1k: ["-t", "ext2", "-b", "1024"];
}

/// Inodes of 128 bytes store times until 2038: later ones are clamped, not wrapped to a time before 1970.
#[test]
fn late_times() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    for inode_size in ["128", "256"] {
        let mkfs = ["-I", inode_size];
        let (ours, theirs) = (Image::make(&mkfs, 16).unwrap(), Image::make(&mkfs, 16).unwrap());
        let set = |at: &Path| {
            for seconds in [2_000_000_000, 3_000_000_000, 10_000_000_000, 20_000_000_000] {
                let file = File::create(at.join(seconds.to_string())).unwrap();
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
                file.set_times(fs::FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
            }
        };
        let seen = |at: &Path| {
            let files = fs::read_dir(at).unwrap().flatten();
            let files = files.filter(|file| file.file_name() != "lost+found");
            let times = |file: fs::DirEntry| {
                let seen = file.metadata().unwrap();
                (file.file_name(), seen.atime(), seen.mtime())
            };
            files.map(times).collect::<std::collections::BTreeSet<_>>()
        };
        let kernel = match theirs.by_kernel("rw") {
            Ok(kernel) => kernel,
            Err(why) => return skip::kernel_cannot(&why),
        };
        let mount = ours.by_shunt(&[]);
        set(mount.at());
        set(kernel.at());
        let expected = seen(kernel.at());
        drop(mount);
        ours.check();
        let mount = ours.by_shunt(&[]);
        assert_eq!(seen(mount.at()), expected, "inodes of {inode_size} bytes");
        drop(mount);
        assert_eq!(seen(ours.by_kernel("ro").unwrap().at()), expected);
    }
}
