//! A cache on a full disk: only durable changes are acknowledged.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shunt_test_support::cmd::within;
use shunt_test_support::{loops, needs_mount, run};
use shunt_tests::polling::names;
use shunt_tests::{Volume, mounts};

const PATIENCE: Duration = Duration::from_secs(30);
const FULL: Option<i32> = Some(libc::ENOSPC);

/// A disk of `size` MiB, detached on drop even if files on it are open.
struct Disk(PathBuf);

impl Disk {
    fn new(at: PathBuf, size: u32) -> Self {
        fs::create_dir(&at).unwrap();
        let options = format!("size={size}m");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(&at)).ok();
        Self(at)
    }

    /// Mounts a file system with block maps instead of extents, which does not support `fallocate(2)`.
    fn without_room_ahead(image: PathBuf, at: PathBuf, size: u64) -> Self {
        fs::create_dir(&at).unwrap();
        File::create(&image).unwrap().set_len(size << 20).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-O", "^extents,^64bit", "-m", "0"]).arg(&image)).ok();
        loops::set_up(Command::new("mount").args(["-o", "loop"]).args([&image, &at])).ok();
        Self(at)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        mounts::detach(&self.0);
    }
}

/// Space left on the disk: enough for some commits, and more than the WAL reserve.
const LEFT: u64 = 20 << 20;

fn fill_whole(path: &Path) -> File {
    let mut file = File::create(path).unwrap();
    for size in [1 << 20, 4096] {
        while file.write_all(&vec![7; size]).is_ok() {}
    }
    file
}

/// Fills the rest of the disk; removing the file frees the space again.
fn fill(path: &Path) {
    let file = fill_whole(path);
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(LEFT)).unwrap();
}

fn directory(at: &Path, n: u32) -> PathBuf {
    at.join(format!("a directory with a name that is not short {n:09}"))
}

/// Creates directories from a number on, until creation fails for a while. Returns the number of directories.
fn make_until_full(at: &Path, mut made: u32) -> u32 {
    let mut refused = 0;
    while refused < 5 {
        match fs::create_dir(directory(at, made)) {
            Ok(()) => made += 1,
            Err(error) => {
                assert_eq!(error.raw_os_error(), FULL, "{error}");
                refused += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        assert!(made < 500_000, "the disk is not full");
    }
    made
}

#[test]
fn acknowledged_changes_on_full_disk_are_durable() {
    needs_mount!();
    let volume = Volume::new();
    let disk = Disk::new(volume.cache(), 64);
    let ballast = disk.0.join("ballast");
    let mount = volume.mount(&[]);
    mount.set_online(false);
    let at = mount.at().to_owned();
    fill(&ballast);
    let made = make_until_full(&at, 0);
    assert_ne!(made, 0);
    // Removals work, and once there is space everything continues by itself.
    fs::remove_dir(directory(&at, 0)).unwrap();
    fs::remove_file(&ballast).unwrap();
    assert!(within(PATIENCE, || fs::create_dir(directory(&at, 0)).is_ok()), "it stays full");
    File::open(&at).unwrap().sync_all().unwrap();
    fill(&ballast);
    let made = make_until_full(&at, made);
    // Longer than it takes until an acknowledged change survives a kill of the daemon.
    std::thread::sleep(Duration::from_secs(1));
    mount.kill();
    fs::remove_file(&ballast).unwrap();
    let mount = volume.mount(&[]);
    let lost: Vec<u32> = (0..made).filter(|n| !directory(&at, *n).is_dir()).collect();
    assert!(lost.is_empty(), "{} of {made}, from {:?} on", lost.len(), lost.first());
    assert_eq!(names(mount.at()).len() as u32, made);
}

/// On a file system without preallocation, acknowledged changes may be lost when the disk fills up, and `fsync(2)` reports that
/// once for each open.
#[test]
fn fsync_reports_changes_lost_for_lack_of_space() {
    needs_mount!();
    let volume = Volume::new();
    let disk = Disk::without_room_ahead(volume.aside().join("image"), volume.cache(), 48);
    let mount = volume.mount(&[]);
    mount.set_online(false);
    let at = mount.at().to_owned();
    fs::write(at.join("file"), "before").unwrap();
    let (file, directory, top) =
        (File::open(at.join("file")).unwrap(), File::open(&at).unwrap(), File::open(&at).unwrap());
    file.sync_all().unwrap();
    directory.sync_all().unwrap();
    let ballast = disk.0.join("ballast");
    drop(fill_whole(&ballast));
    // Until the database has rolled acknowledged changes back.
    let mut made = 0;
    let is_undone = within(PATIENCE, || {
        while fs::create_dir(self::directory(&at, made)).is_ok() {
            made += 1;
        }
        (0..made).any(|n| !self::directory(&at, n).is_dir())
    });
    assert!(is_undone, "all of {made} are kept");
    fs::remove_file(&ballast).unwrap();
    let fsync_error = |file: &File| file.sync_all().err().map(|error| error.raw_os_error());
    assert!(within(PATIENCE, || fsync_error(&top) != Some(FULL)), "it stays full");
    for file in [&file, &directory] {
        assert_eq!((fsync_error(file), fsync_error(file)), (Some(Some(libc::EIO)), None));
    }
    assert_eq!(fsync_error(&File::open(&at).unwrap()), None);
    drop((file, directory, top));
    drop(mount);
}

/// The contents of files are accessible to their owners only, and so is the cache's data about them.
#[test]
fn the_cache_is_for_its_user_alone() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(&[]);
    fs::write(mount.at().join("secret"), "small").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&volume.cache()), 0o700);
    let others = fs::read_dir(volume.cache()).unwrap().map(|entry| entry.unwrap().path());
    let others: Vec<PathBuf> = others.filter(|path| mode(path) & 0o077 != 0).collect();
    assert_eq!(others, Vec::<PathBuf>::new());
    drop(mount);
}

/// Space freed by removing a file on a full disk is available for the next one.
#[test]
fn removed_files_free_space_soon() {
    needs_mount!();
    shunt_test_support::requirement!(rustix::process::geteuid().is_root(), "needs root");
    let volume = Volume::new();
    let disk = Disk::new(volume.aside().join("disk"), 60);
    let cache = disk.0.join("cache");
    let mount = volume.mount(&["--cache", cache.to_str().unwrap()]);
    for round in 0..3 {
        drop(fill_whole(&mount.at().join("large")));
        fs::remove_file(mount.at().join("large")).unwrap();
        let path = mount.at().join(format!("after{round}"));
        // The kernel sends the FORGET a moment later.
        let written = || fs::write(&path, b"room").is_ok();
        assert!(within(Duration::from_millis(700), written), "no room in round {round}");
        assert_eq!(fs::read(&path).unwrap(), b"room");
    }
    drop(mount);
}
