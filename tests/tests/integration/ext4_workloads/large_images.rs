//! Very large and nearly full images.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FallocateFlags, OFlags, RenameFlags, XattrFlags, fallocate, renameat_with, setxattr};
use rustix::io::Errno;
use serde_json::Value;
use shunt_test_support::{needs_mount, requirement, run, run_for};
use shunt_tests::sys::Aligned;
use shunt_tests::{Image, binary};

/// A tebibyte, nearly all of it holes: mounted at once, and written at its end.
#[test]
fn a_tebibyte() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
    let image = Image::make(&["-m", "0", "-E", lazy], 1 << 20).unwrap();
    let mounted = (0..3).map(|_| {
        let start = Instant::now();
        let mount = image.by_shunt(&[]);
        let took = start.elapsed();
        drop(mount);
        took
    });
    let quickest = mounted.min().unwrap();
    println!("mounted in {quickest:?}");
    assert!(quickest < shunt_test_support::pace::limit(Duration::from_millis(200)), "{quickest:?}");
    let mount = image.by_shunt(&[]);
    let free = || rustix::fs::statvfs(mount.at()).unwrap();
    let before = free().f_bfree;
    // Nearly all of it belongs to one file.
    let large = File::create_new(mount.at().join("large")).unwrap();
    fallocate(&large, FallocateFlags::empty(), 0, before * free().f_frsize - (64 << 20)).unwrap();
    assert!(free().f_bfree <= (64 << 20) / free().f_frsize);
    drop(large);
    drop(mount);
    let (logical, physical) = furthest(&image);
    assert!(physical >= (1 << 28) - (1 << 17), "the furthest of 2^28 blocks is {physical}");
    let mount = image.by_shunt(&[]);
    let large = File::options().read(true).write(true).open(mount.at().join("large")).unwrap();
    large.write_all_at(&[5; 4096], logical * 4096).unwrap();
    large.sync_all().unwrap();
    drop(large);
    drop(mount);
    image.check();
    let mut there = [0; 4096];
    File::open(image.path()).unwrap().read_exact_at(&mut there, physical * 4096).unwrap();
    assert_eq!(there, [5; 4096]);
    let seen = |at: &Path| {
        let mut seen = [0; 8192];
        File::open(at.join("large")).unwrap().read_exact_at(&mut seen, (logical - 1) * 4096).unwrap();
        seen[..4096] == [0; 4096] && seen[4096..] == [5; 4096]
    };
    assert!(seen(image.by_kernel("ro").unwrap().at()));
    let mount = image.by_shunt(&[]);
    assert!(seen(mount.at()));
    fs::remove_file(mount.at().join("large")).unwrap();
    assert!(comes_back(|| room(mount.at()).0 == before), "{:?} free, not {before}", room(mount.at()));
    drop(mount);
    image.check();
}

/// Returns the file offset and the disk position of the file's block that is furthest out on the disk.
fn furthest(image: &Image) -> (u64, u64) {
    let extents =
        run(binary::command(&["ext4", "extents"]).arg(image.path()).args(["/large", "--json"])).ok();
    let extents: Value = serde_json::from_str(&extents).unwrap();
    let last = |extent: &Value| {
        let of =
            |field: &str| extent[field].as_u64().map(|block| block + extent["length"].as_u64().unwrap() - 1);
        Some((of("logical")?, of("physical")?))
    };
    let all = extents.as_array().unwrap().iter().filter_map(last);
    all.max_by_key(|(_, physical)| *physical).unwrap()
}

type OpResult = Result<(), Errno>;
type Operation = (&'static str, fn(&Path, usize) -> OpResult);

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).expect("an error of the system")
}

/// Operations in a directory, each with a number of its own; all of them need space, or may.
fn operations() -> Vec<Operation> {
    fn at(dir: &Path, name: &str, n: usize) -> std::path::PathBuf {
        dir.join(format!("{name} {n} {}", "n".repeat(n % 150)))
    }
    vec![
        ("create", |dir, n| File::create_new(at(dir, "file", n)).map(drop).map_err(errno)),
        ("mkdir", |dir, n| fs::create_dir(at(dir, "directory", n)).map_err(errno)),
        ("short link", |dir, n| symlink("target", at(dir, "short", n)).map_err(errno)),
        ("long link", |dir, n| symlink("t".repeat(500), at(dir, "long", n)).map_err(errno)),
        ("node", |dir, n| {
            rustix::fs::mknodat(CWD, at(dir, "pipe", n), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        }),
        ("hard link", |dir, n| fs::hard_link(dir.join("base"), at(dir, "link", n)).map_err(errno)),
        ("rename", |dir, n| {
            let long = at(dir, "moved", 149);
            let done = rustix::fs::rename(dir.join("other"), &long);
            assert!(done != Ok(()) || rustix::fs::rename(&long, dir.join("other")).is_ok(), "{n}");
            done
        }),
        ("whiteout", |dir, n| {
            renameat_with(CWD, dir.join("other"), CWD, at(dir, "whited", n), RenameFlags::WHITEOUT)?;
            rustix::fs::rename(at(dir, "whited", n), dir.join("other"))
        }),
        ("exchange", |dir, _| {
            renameat_with(CWD, dir.join("other"), CWD, dir.join("base"), RenameFlags::EXCHANGE)
        }),
        ("attribute", |dir, n| {
            setxattr(
                dir.join("base"),
                format!("user.{}", n % 3),
                &vec![n as u8; 100 + n % 600],
                XattrFlags::empty(),
            )
        }),
        ("attribute of another", |dir, n| {
            File::create(at(dir, "with", n)).map_err(errno)?;
            setxattr(at(dir, "with", n), "user.x", &vec![n as u8; 700], XattrFlags::empty())
        }),
        ("write", |dir, n| {
            let file = File::create(at(dir, "written", n)).map_err(errno)?;
            file.write_all_at(&[7; 3000], n as u64 * 500).and_then(|()| file.sync_all()).map_err(errno)
        }),
        ("write into a hole", |dir, n| {
            let file = File::options().write(true).open(dir.join("base")).map_err(errno)?;
            file.write_all_at(&[8; 10], n as u64 * 9000).and_then(|()| file.sync_all()).map_err(errno)
        }),
        ("direct write", |dir, n| {
            let file = File::from(rustix::fs::open(
                dir.join("direct"),
                OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT,
                0o600.into(),
            )?);
            let mut block = Aligned::new(4096);
            block.fill(9);
            file.write_all_at(&block, n as u64 * 8192).map_err(errno)
        }),
        ("reserve", |dir, n| {
            let file = File::options().write(true).open(dir.join("reserved")).map_err(errno)?;
            fallocate(&file, FallocateFlags::KEEP_SIZE, n as u64 * 12_000, 5000)
        }),
        ("punch", |dir, n| {
            let file = File::options().write(true).open(dir.join("full")).map_err(errno)?;
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, hole, n as u64 % 200 * 8192, 4096)
        }),
        ("zero", |dir, n| {
            let file = File::options().write(true).open(dir.join("full")).map_err(errno)?;
            fallocate(&file, FallocateFlags::ZERO_RANGE, n as u64 % 200 * 9216 + 100, 5000)
        }),
        ("insert", |dir, n| {
            let file = File::options().write(true).open(dir.join("shifted")).map_err(errno)?;
            fallocate(&file, FallocateFlags::INSERT_RANGE, n as u64 % 3 * 4096, 4096)
        }),
        ("collapse", |dir, _| {
            let file = File::options().write(true).open(dir.join("shifted")).map_err(errno)?;
            fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 4096, 4096)
        }),
        ("longer", |dir, n| {
            let file = File::options().write(true).open(dir.join("reserved")).map_err(errno)?;
            file.set_len(n as u64 * 5001).map_err(errno)
        }),
        ("nameless", |dir, n| {
            let flags = OFlags::TMPFILE | OFlags::WRONLY;
            let file = File::from(rustix::fs::open(dir, flags, 0o600.into())?);
            file.write_all_at(&[1; 2000], 0).and_then(|()| file.sync_all()).map_err(errno)?;
            if n % 2 == 0 {
                use std::os::fd::AsRawFd as _;
                let here = format!("/proc/self/fd/{}", file.as_raw_fd());
                rustix::fs::linkat(CWD, here, CWD, at(dir, "named", n), rustix::fs::AtFlags::SYMLINK_FOLLOW)?;
            }
            Ok(())
        }),
        ("mode", |dir, n| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600 | (n as u32 % 8));
            rustix::fs::chmod(dir.join("base"), mode)
        }),
    ]
}

/// Returns the free blocks, those available to users, and the free inodes.
fn room(at: &Path) -> (u64, u64, u64) {
    // The first sync reports again a write-back failure that the writer already got.
    run_for(60, Command::new("sync").arg("-f").arg(at));
    run_for(60, Command::new("sync").arg("-f").arg(at)).ok();
    let seen = rustix::fs::statvfs(at).unwrap();
    (seen.f_bfree, seen.f_bavail, seen.f_ffree)
}

/// The kernel delays the FORGET of a file.
fn comes_back(room_is: impl FnMut() -> bool) -> bool {
    shunt_test_support::cmd::within(Duration::from_secs(10), room_is)
}

/// A write of four blocks with two free fails, cached or direct. Without an error the kernel would consider the whole
/// write-back successful.
#[test]
fn writes_for_which_half_the_room_is_left() {
    needs_mount!();
    let image = Image::make(&["-m", "0", "-b", "1024"], 24).unwrap();
    let mount = image.by_shunt(&[]);
    let make = |name: &str| File::create_new(mount.at().join(name)).unwrap();
    let (cached, direct) = (make("cached"), mount.at().join("direct"));
    let direct =
        File::options().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(direct).unwrap();
    let mut fill = make("fill");
    while fill.write_all(&[4; 1024]).and_then(|()| fill.sync_data()).is_ok() {}
    let length = fill.metadata().unwrap().len();
    let mut block = Aligned::new(4096);
    block.fill(7);
    for (file, name) in [(&cached, "cached"), (&direct, "direct")] {
        fill.set_len(length - (256 << 10)).unwrap();
        // Freed blocks are available after the commit. The last error is reported once more.
        drop(fill.sync_all());
        fill.sync_all().unwrap();
        let room = || rustix::fs::statvfs(mount.at()).unwrap().f_bavail;
        while room() > 2 {
            let end = fill.metadata().unwrap().len();
            fill.write_all_at(&[4; 1024], end).and_then(|()| fill.sync_data()).unwrap();
        }
        assert_eq!(room(), 2, "{name}");
        let error = file.write_all_at(&block, 0).and_then(|()| file.sync_all()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{name}: {error}");
        file.set_len(0).unwrap();
    }
}

/// Without free space, every operation succeeds or returns ENOSPC; after everything is removed, the free space is as before.
fn nearly_full(mkfs: &[&str], inodes: bool) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let few = if inodes { "200" } else { "4000" };
    let image = Image::make(&[mkfs, &["-m", "0", "-N", few]].concat(), 24).unwrap();
    let mut mount = image.by_shunt(&["-o", "dev"]);
    let before = room(mount.at());
    for round in 0..2 {
        let dir = mount.at().join("work");
        fs::create_dir(&dir).unwrap();
        for name in ["base", "other", "reserved"] {
            fs::write(dir.join(name), name).unwrap();
        }
        for (name, length) in [("full", 3 << 20), ("shifted", 40_000)] {
            fs::write(dir.join(name), vec![3; length]).unwrap();
        }
        if !inodes {
            // Fills the last bytes too, with ever smaller writes.
            let mut fill = File::create_new(dir.join("fill")).unwrap();
            let mut length = 1 << 20;
            while length >= 512 {
                if fill.write_all(&vec![4; length]).and_then(|()| fill.sync_data()).is_err() {
                    length /= 2;
                }
            }
        }
        let (mut refused, mut done) = (std::collections::BTreeSet::new(), 0);
        for n in 0..150 {
            for (name, operation) in operations() {
                match operation(&dir, n) {
                    Ok(()) => done += 1,
                    Err(Errno::NOSPC) => drop(refused.insert(name)),
                    // Errors that do not depend on free space: a block map, an existing name, a short file.
                    Err(Errno::OPNOTSUPP | Errno::EXIST | Errno::INVAL | Errno::MLINK) => {}
                    Err(Errno::NOENT) if name == "rename" || name == "whiteout" => {}
                    Err(other) => panic!("{mkfs:?}, round {round}: {name} {n}: {other}"),
                }
            }
        }
        println!("{mkfs:?}: {done} done, refused: {refused:?}");
        let expected: &[&str] =
            if inodes { &["create", "mkdir"] } else { &["long link", "write", "nameless"] };
        assert!(expected.iter().all(|name| refused.contains(name)), "{refused:?}");
        // The first round goes on in the same mount, the second one after e2fsck and a remount.
        if round == 1 {
            drop(mount);
            image.check();
            mount = image.by_shunt(&["-o", "dev"]);
        }
        fs::remove_dir_all(mount.at().join("work")).unwrap();
        let back = comes_back(|| room(mount.at()) == before);
        assert!(back, "{mkfs:?}, round {round}: {:?} free, not {before:?}", room(mount.at()));
    }
    drop(mount);
    image.check();
}

#[test]
fn no_room_on_ext4() {
    nearly_full(&["-b", "4096"], false);
}

#[test]
fn no_room_on_small_blocks() {
    nearly_full(&["-b", "1024", "-O", "orphan_file"], false);
}

#[test]
fn no_room_on_block_maps() {
    nearly_full(&["-t", "ext3", "-b", "1024"], false);
}

#[test]
fn no_room_without_a_journal() {
    nearly_full(&["-b", "2048", "-O", "^has_journal"], false);
}

#[test]
fn no_inodes() {
    nearly_full(&["-b", "1024"], true);
}
