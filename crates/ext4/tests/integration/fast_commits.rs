//! Fast commits left by the kernel: fsynced changes are recovered with the same result as by the kernel, and e2fsck finds no
//! error. If they are corrupt, nothing is written.
//!
//! Needs root, loop devices and mkfs.ext4; in CI (`CI=true`) their absence is a failure.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use shunt_ext4::device::{Event, Recorder};
use shunt_ext4::{FileDevice, Filesystem, MemoryDevice};

use crate::common::{Image, Log, Tree, run, seen_by_engine, seen_by_kernel, shutdown};

/// Removes the properties that the kernel's replay gets wrong (link counts and times of directories), and block counts: tree
/// nodes may be split elsewhere. e2fsck has checked the counts.
fn comparable(mut tree: Tree) -> Tree {
    for seen in tree.values_mut() {
        seen.blocks = 0;
        if seen.mode >> 12 == 0o04 {
            seen.links = 0;
            seen.times = Default::default();
        }
    }
    tree
}

fn open(path: &Path) -> Result<Filesystem, shunt_ext4::Error> {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    Filesystem::open_writable(Arc::new(FileDevice::new(file, false).unwrap()))
}

fn fsync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

fn write(path: &Path, at: u64, length: usize) -> File {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).unwrap();
    let bytes: Vec<u8> = (0..length).map(|n| (n as u64 + at) as u8 | 1).collect();
    file.write_all_at(&bytes, at).unwrap();
    file
}

/// Creates an image with a power failure after `work`; its last full transaction contains the result of `before`.
fn cut(mkfs: &[&str], before: impl Fn(&Path), work: impl Fn(&Path)) -> Option<Image> {
    let mut image = Image::new(&[mkfs, &["-O", "fast_commit"]].concat(), 64, true)?;
    before(&image.mnt());
    run("sync", &["-f", image.mnt().to_str().unwrap()]).unwrap();
    work(&image.mnt());
    shutdown(&image.mnt(), Log::Lose);
    image.unmount();
    Some(image)
}

/// Applies the fast commits in memory and in place; returns the tree and the number of changes.
fn applied(image: &Image) -> (Tree, usize) {
    let before = fs::read(image.path()).unwrap();
    let in_memory = image.open();
    let changes = in_memory.recovered().expect("the journal was replayed").fast_changes;
    let seen = seen_by_engine(&in_memory);
    assert!(before == fs::read(image.path()).unwrap(), "opening read-only changed the image");
    let ours = image.copy();
    let engine = open(&ours.path()).unwrap();
    assert_eq!(engine.recovered(), in_memory.recovered());
    assert!(seen_by_engine(&engine) == seen, "recovery in memory and in place differ");
    engine.close().unwrap();
    ours.check();
    assert!(seen_by_engine(&ours.open()) == seen);
    (seen, changes)
}

fn as_the_kernel(mkfs: &[&str], before: impl Fn(&Path), work: impl Fn(&Path)) {
    let Some(image) = cut(mkfs, before, work) else { return };
    let (seen, changes) = applied(&image);
    assert!(changes > 0, "the journal has no fast commits");
    let theirs = image.copy().mount().unwrap();
    let expected = comparable(seen_by_kernel(&theirs.mnt()));
    let seen = comparable(seen);
    for (path, expected) in &expected {
        assert_eq!(seen.get(path), Some(expected), "{path:?}");
    }
    assert_eq!(seen.len(), expected.len());
}

const FORMS: [&[&str]; 3] =
    [&["-b", "4096"], &["-b", "1024"], &["-b", "1024", "-O", "^metadata_csum,^64bit"]];

#[test]
fn new_files_and_their_content() {
    for form in FORMS {
        as_the_kernel(
            form,
            |_| {},
            |mnt| {
                for n in 0..40 {
                    write(&mnt.join(format!("file {n}")), n * 777, 1000 + n as usize * 3000)
                        .sync_all()
                        .unwrap();
                }
            },
        );
    }
}

#[test]
fn names_are_added_and_removed() {
    for form in FORMS {
        as_the_kernel(
            form,
            |mnt| {
                (0..50).for_each(|n| drop(write(&mnt.join(format!("old {n}")), 0, 5000)));
                fs::create_dir(mnt.join("there")).unwrap();
            },
            |mnt| {
                for n in 0..10 {
                    fs::remove_file(mnt.join(format!("old {n}"))).unwrap();
                    fs::rename(mnt.join(format!("old {}", n + 10)), mnt.join(format!("there/new {n}")))
                        .unwrap();
                    fs::rename(mnt.join(format!("old {}", n + 20)), mnt.join(format!("old {}", n + 30)))
                        .unwrap();
                    fs::hard_link(mnt.join(format!("old {}", n + 40)), mnt.join(format!("there/link {n}")))
                        .unwrap();
                    fsync(&mnt.join(format!("old {}", n + 40)));
                }
                write(&mnt.join("gone"), 0, 9000).sync_all().unwrap();
                fs::remove_file(mnt.join("gone")).unwrap();
                write(&mnt.join("last"), 0, 10).sync_all().unwrap();
            },
        );
    }
}

#[test]
fn maps_change() {
    for form in FORMS {
        as_the_kernel(
            form,
            |mnt| {
                write(&mnt.join("cut"), 0, 300_000);
                write(&mnt.join("sparse"), 0, 10);
                write(&mnt.join("over"), 0, 100_000);
            },
            |mnt| {
                let cut = OpenOptions::new().write(true).open(mnt.join("cut")).unwrap();
                cut.set_len(123_456).unwrap();
                cut.sync_all().unwrap();
                for n in 0..100 {
                    write(&mnt.join("sparse"), (n * 37 % 100) * 40_960, 100).sync_all().unwrap();
                }
                write(&mnt.join("over"), 50_000, 100_000).sync_all().unwrap();
                cut.set_len(10).unwrap();
                cut.sync_all().unwrap();
            },
        );
    }
}

#[test]
fn directories_of_many_names() {
    for form in FORMS {
        let Some(image) = cut(
            form,
            |mnt| fs::create_dir(mnt.join("full")).unwrap(),
            |mnt| {
                for n in 0..100 {
                    write(&mnt.join(format!("full/a rather long name that takes room {n}")), 0, 1)
                        .sync_all()
                        .unwrap();
                }
            },
        ) else {
            return;
        };
        let (seen, changes) = applied(&image);
        assert!(changes > 0, "{form:?}");
        assert_eq!(seen.keys().filter(|path| path.to_str().unwrap().contains("rather")).count(), 100);
    }
}

/// Not compared with the kernel, which does not mount the images that it leaves in this case.
#[test]
fn unnamed_files() {
    for form in FORMS {
        let Some(image) = cut(
            form,
            |_| {},
            |mnt| {
                let tmpfile = |length| {
                    let flags = (OFlags::TMPFILE | OFlags::WRONLY).bits() as i32;
                    let file = OpenOptions::new().write(true).custom_flags(flags).open(mnt).unwrap();
                    file.write_all_at(&vec![5; length], 0).unwrap();
                    file
                };
                let named = tmpfile(9000);
                let own = format!("/proc/self/fd/{}", named.as_raw_fd());
                linkat(CWD, own, CWD, mnt.join("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
                named.sync_all().unwrap();
                tmpfile(5000).sync_all().unwrap();
                write(&mnt.join("last"), 0, 10).sync_all().unwrap();
            },
        ) else {
            return;
        };
        let (seen, _) = applied(&image);
        let links = |path: &str| seen.get(path.as_ref() as &std::ffi::OsStr).map(|seen| seen.links);
        assert_eq!([links("named"), links("last")], [Some(1), Some(1)], "{form:?}");
    }
}

/// Not compared with the kernel, whose replay sets wrong link counts in this case.
#[test]
fn directories_are_created_and_removed() {
    for form in FORMS {
        let Some(image) = cut(
            form,
            |mnt| (0..4).for_each(|n| fs::create_dir_all(mnt.join(format!("old {n}/below"))).unwrap()),
            |mnt| {
                for n in 0..4 {
                    fs::create_dir_all(mnt.join(format!("new {n}/a/b"))).unwrap();
                    write(&mnt.join(format!("new {n}/a/b/file")), 0, 3000).sync_all().unwrap();
                    fs::remove_dir(mnt.join(format!("old {n}/below"))).unwrap();
                }
                fs::remove_dir(mnt.join("old 3")).unwrap();
                write(&mnt.join("last"), 0, 1).sync_all().unwrap();
            },
        ) else {
            return;
        };
        let (seen, changes) = applied(&image);
        assert!(changes > 0, "{form:?}");
        let links = |path: &str| seen.get(path.as_ref() as &std::ffi::OsStr).map(|seen| seen.links);
        assert_eq!([links("new 0"), links("new 0/a"), links("new 0/a/b")], [Some(3), Some(3), Some(2)]);
        assert_eq!([links("old 0"), links("old 0/below"), links("old 3")], [Some(2), None, None]);
        assert_eq!(links("new 3/a/b/file"), Some(1));
    }
}

/// Damages random bytes of fast commits and corrects the checksums.
#[test]
fn forged_fast_commits_change_nothing_else() {
    let Some(image) = cut(
        &["-b", "1024"],
        |mnt| (0..10).for_each(|n| drop(write(&mnt.join(format!("old {n}")), 0, 5000))),
        |mnt| {
            fs::create_dir(mnt.join("dir")).unwrap();
            for n in 0..5 {
                write(&mnt.join(format!("dir/new {n}")), 0, 4000).sync_all().unwrap();
                fs::remove_file(mnt.join(format!("old {n}"))).unwrap();
                fsync(&mnt.join("dir"));
                write(&mnt.join("old 9"), 8000 * n, 2000).sync_all().unwrap();
            }
        },
    ) else {
        return;
    };
    let bytes = fs::read(image.path()).unwrap();
    // Heads of fast commits: tag 9 with eight bytes, no features.
    let starts: Vec<usize> = (0..bytes.len())
        .step_by(1024)
        .filter(|&at| bytes[at..].starts_with(&[9, 0, 8, 0, 0, 0, 0, 0]))
        .collect();
    let start = *starts.first().expect("the journal has fast commits");
    let end = starts.last().unwrap() + 1024;
    let (mut refused, mut taken) = (0, 0);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for round in 0..60 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + round % 3 {
            let block = start + next((end - start) / 1024) * 1024;
            // Only non-zero bytes, to skip padding.
            let places: Vec<usize> = (block..block + 1024).filter(|&at| damaged[at] != 0).collect();
            if places.is_empty() {
                continue;
            }
            let place = places[next(places.len())];
            damaged[place] = match next(3) {
                0 => damaged[place] ^ 1 << next(8),
                1 => next(256) as u8,
                _ => 0,
            };
        }
        mend(&mut damaged[start..end]);
        let copy = image.copy();
        fs::write(copy.path(), &damaged).unwrap();
        // Reading must work with any content of the fast commits.
        let shown = copy.open();
        shown.walk(b"old 9").ok();
        drop(shown);
        assert!(fs::read(copy.path()).unwrap() == damaged);
        let file = OpenOptions::new().read(true).write(true).open(copy.path()).unwrap();
        match shunt_ext4::recover(Arc::new(FileDevice::new(file, false).unwrap()), None) {
            Ok(_) => taken += 1,
            Err(error) => {
                assert!(error.to_string().contains("fast commit"), "{error}");
                assert!(fs::read(copy.path()).unwrap() == damaged, "{error}");
                refused += 1;
            }
        }
    }
    println!("{refused} refused, {taken} accepted");
    assert!(refused > 5 && taken > 5);
}

/// Fills in the checksums of fast commits, as far as their records can be followed.
fn mend(bytes: &mut [u8]) {
    let mut sum = 0;
    for block in bytes.chunks_mut(1024) {
        let mut at = 0;
        while let Some(head) = block.get(at..at + 4) {
            let (tag, length) = (head[0], usize::from(u16::from_le_bytes([head[2], head[3]])));
            if tag == 8 {
                sum = crc32c(sum, &block[at..(at + 8).min(1024)]);
                if let Some(field) = block.get_mut(at + 8..at + 12) {
                    field.copy_from_slice(&sum.to_le_bytes());
                }
                sum = 0;
                break;
            }
            let Some(record) = block.get(at..at + 4 + length) else { break };
            sum = crc32c(sum, record);
            at += 4 + length;
        }
    }
}

fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(sum, |sum, &byte| {
        (0..8).fold(
            sum ^ u32::from(byte),
            |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 },
        )
    })
}

/// Power fails at any point of applying them, with any subset of the writes since the last flush on the device: the next recovery
/// yields all changes.
#[test]
fn power_cut_during_fast_commit_replay() {
    let Some(image) = cut(
        &["-b", "1024"],
        |mnt| (0..10).for_each(|n| drop(write(&mnt.join(format!("old {n}")), 0, 50_000))),
        |mnt| {
            fs::create_dir(mnt.join("dir")).unwrap();
            for n in 0..10 {
                write(&mnt.join(format!("dir/new {n}")), 0, 4000).sync_all().unwrap();
                write(&mnt.join("old 9"), 80_000 * n, 2000).sync_all().unwrap();
            }
            fs::remove_file(mnt.join("old 1")).unwrap();
            fsync(&mnt.join("old 9"));
        },
    ) else {
        return;
    };
    let (expected, changes) = applied(&image);
    assert!(changes > 20);
    let bytes = fs::read(image.path()).unwrap();
    let recorder = Arc::new(Recorder::new(MemoryDevice::new(bytes.clone())));
    shunt_ext4::recover(recorder.clone(), None).unwrap();
    let events = recorder.events();
    let mut durable = bytes;
    let mut since: Vec<(u64, Arc<[u8]>)> = Vec::new();
    let mut random = 1_u32;
    let mut cuts = 0;
    for event in &events {
        match event {
            Event::Write { offset, data } => since.push((*offset, data.clone())),
            Event::Flush => {
                for (offset, data) in since.drain(..) {
                    durable[offset as usize..][..data.len()].copy_from_slice(&data);
                }
            }
            _ => {}
        }
        for all in [true, false] {
            let mut cut = durable.clone();
            for (offset, data) in &since {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if all || random >> 31 == 0 {
                    cut[*offset as usize..][..data.len()].copy_from_slice(data);
                }
            }
            let fs = Filesystem::open(Arc::new(MemoryDevice::new(cut))).unwrap();
            assert!(seen_by_engine(&fs) == expected, "cut {cuts} of {}", 2 * events.len());
            cuts += 1;
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 20);
}
