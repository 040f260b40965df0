//! ext4 written past the daemon: the kernel's own ext4 finds the same content, and no WRITE request carried it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::disk::{Mount, forget_caches, module_is_here, run};
use super::ext4::noise;

/// Creates an empty image.
pub fn image(name: &str, megabytes: u64, mkfs: &[&str]) -> PathBuf {
    let path = PathBuf::from(format!("/scratch/{name}"));
    File::create(&path).unwrap().set_len(megabytes << 20).unwrap();
    run("mkfs.ext4", &[&["-q", "-F"][..], mkfs, &[path.to_str().unwrap()]].concat());
    path
}

pub fn mount(image: &Path) -> Mount {
    Mount::shunt(image, "/tmp/shunt", &["--data", "extmap"])
}

/// Unmounts, and waits until the image is free.
pub fn unmount(mount: Mount, image: &Path) {
    let requests = mount.requests("write") + mount.requests("read");
    drop(mount);
    assert!(super::connection_abort::eventually(|| is_free(image)), "the image stays locked");
    assert_eq!(requests, 0, "content went through the daemon");
    check(image);
}

/// Reports whether the image is unlocked.
pub fn is_free(image: &Path) -> bool {
    let file = File::open(image).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Reports whether no mount and no daemon has exclusive use of the block device.
pub fn is_unclaimed(device: &Path) -> bool {
    let exclusive = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
    rustix::fs::open(device, exclusive, rustix::fs::Mode::empty()).is_ok()
}

pub fn check(image: &Path) {
    run("e2fsck", &["-fn", image.to_str().unwrap()]);
}

/// Reads a file with the kernel's own ext4.
pub fn found(image: &Path, name: &str) -> Vec<u8> {
    forget_caches();
    let kernel = Mount::kernel(image, "/tmp/kernel", "ro,loop");
    fs::read(kernel.path(name)).unwrap()
}

#[test]
fn growing_file_matches_the_kernel_mount() {
    if !module_is_here() {
        return;
    }
    let image = image("grows", 64, &[]);
    let mount = mount(&image);
    let content = noise(1, 3_000_001);
    let mut file = File::create(mount.path("file")).unwrap();
    for part in content.chunks(70_001) {
        file.write_all(part).unwrap();
    }
    assert_eq!(file.metadata().unwrap().len(), content.len() as u64);
    assert!(fs::read(mount.path("file")).unwrap() == content);
    file.sync_all().unwrap();
    drop(file);
    let modified = fs::metadata(mount.path("file")).unwrap().modified().unwrap();
    assert!(modified.elapsed().unwrap().as_secs() < 100);
    unmount(mount, &image);
    assert!(found(&image, "file") == content);
    fs::remove_file(image).unwrap();
}

#[test]
fn foreign_write_drops_setuid() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !module_is_here() {
        return;
    }
    let image = image("setuid", 16, &[]);
    let mount = mount(&image);
    let path = mount.path("program");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    let script = format!("echo x >>{}", path.display());
    let wrote =
        std::process::Command::new("bash").args(["-c", &script]).uid(1000).gid(1000).status().unwrap();
    assert!(wrote.success());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777);
    drop(mount);
    fs::remove_file(image).unwrap();
}

#[test]
fn write_drops_setuid_set_after_open() {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};
    if !module_is_here() {
        return;
    }
    let image = image("setuid-open", 16, &[]);
    let mount = mount(&image);
    let path = mount.path("program");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    // Writes once, and once more for each line of input.
    let script = "exec 3>>\"$0\"; echo x >&3; echo; while read -r; do echo y >&3; echo; done";
    let mut command = Command::new("bash");
    command.args(["-c", script, path.to_str().unwrap()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut writer = std::os::unix::process::CommandExt::uid(&mut command, 1000).spawn().unwrap();
    let (mut to, mut from) = (writer.stdin.take().unwrap(), writer.stdout.take().unwrap());
    let mut wrote = || std::io::Read::read_exact(&mut from, &mut [0]).unwrap();
    wrote();
    // File capabilities: version 2, CAP_NET_RAW, effective.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let name = "security.capability";
    for _ in 0..2 {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        rustix::fs::setxattr(&path, name, &capability, rustix::fs::XattrFlags::empty()).unwrap();
        assert_eq!(mode(), 0o6777, "no write has happened yet");
        to.write_all(b"\n").unwrap();
        wrote();
        assert_eq!(mode(), 0o777);
        let found = rustix::fs::getxattr(&path, name, &mut [0_u8; 64][..]);
        assert_eq!(found, Err(rustix::io::Errno::NODATA));
    }
    drop(to);
    assert!(writer.wait().unwrap().success());
    // An open for writing without a write clears nothing.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    let mut opens = Command::new("bash");
    opens.args(["-c", ": >>\"$0\"", path.to_str().unwrap()]);
    assert!(std::os::unix::process::CommandExt::uid(&mut opens, 1000).status().unwrap().success());
    assert_eq!(mode(), 0o6777);
    unmount(mount, &image);
    fs::remove_file(image).unwrap();
}

#[test]
fn block_device_cache_is_bypassed() {
    if !module_is_here() {
        return;
    }
    for form in [&[][..], &["-b", "1024"]] {
        let image = image("device", 48, form);
        let file = File::options().read(true).write(true).open(&image).unwrap();
        let device = shunt_extmap::attach_writable(file).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&device);
        let path = fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        let content = noise(4, 300_001);
        for round in 0..2 {
            let mount = mount(&path);
            // Blocks alternate between data and directories.
            for n in 0..20 {
                fs::write(mount.path(&format!("file{n}")), &content[n..]).unwrap();
                fs::create_dir(mount.path(&format!("dir{round}.{n}"))).unwrap();
                File::open(mount.path(&format!("file{n}"))).unwrap().sync_all().unwrap();
                if n % 2 == 1 {
                    fs::remove_file(mount.path(&format!("file{}", n - 1))).unwrap();
                }
            }
            for n in (1..20).step_by(2) {
                assert!(fs::read(mount.path(&format!("file{n}"))).unwrap() == content[n..], "{n}");
                if round == 0 {
                    fs::remove_file(mount.path(&format!("file{n}"))).unwrap();
                }
            }
            assert_eq!(mount.requests("write") + mount.requests("read"), 0);
            drop(mount);
            assert!(super::connection_abort::eventually(|| is_unclaimed(&path)), "the device stays in use");
            check(&path);
        }
        let kernel = Mount::kernel(&path, "/tmp/kernel", "ro");
        for n in (1..20).step_by(2) {
            assert!(fs::read(kernel.path(&format!("file{n}"))).unwrap() == content[n..], "{n}");
        }
        drop(kernel);
        drop(device);
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn module_is_used_by_default() {
    if !module_is_here() {
        return;
    }
    let content = noise(6, 700_001);
    let image = image("auto", 48, &[]);
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let device = shunt_extmap::attach_writable(file).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&device);
    let device_path = fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
    let written = |name: &str, path: &Path| {
        let mount = Mount::shunt(path, "/tmp/shunt", &[]);
        fs::write(mount.path(name), &content).unwrap();
        File::open(mount.path(name)).unwrap().sync_all().unwrap();
        let past = mount.requests("write") + mount.requests("read") == 0;
        drop(mount);
        assert!(
            super::connection_abort::eventually(|| is_unclaimed(path) && is_free(path)),
            "{name} stays in use"
        );
        past
    };
    assert!(written("device", &device_path));
    drop(device);
    let backing = Path::new("/sys/block").join(device_path.file_name().unwrap()).join("loop/backing_file");
    assert!(super::connection_abort::eventually(|| !backing.exists()));
    assert!(written("image", &image));
    for name in ["device", "image"] {
        assert!(found(&image, name) == content);
    }
    // Files without extents go through the daemon.
    run("mkfs.ext4", &["-q", "-F", "-O", "^extent,^64bit", image.to_str().unwrap()]);
    assert!(!written("file", &image));
    assert!(found(&image, "file") == content);
    fs::remove_file(image).unwrap();
}

#[test]
fn access_times_match_the_kernel() {
    use std::os::unix::fs::MetadataExt;
    if !module_is_here() {
        return;
    }
    for (option, notes) in
        [("relatime", [true, false]), ("strictatime", [true, true]), ("noatime", [false, false])]
    {
        let image = image("read", 24, &[]);
        let shunt = Mount::shunt(&image, "/tmp/shunt", &["--data", "extmap", "-o", option]);
        let path = shunt.path("file");
        let ways: [fn(&Path); 3] = [read_it, splice_it, map_it];
        for (n, read) in ways.into_iter().enumerate() {
            fs::write(&path, noise(3, 10_000)).unwrap();
            let pause = || std::thread::sleep(std::time::Duration::from_millis(30));
            for moves in notes {
                let before = fs::metadata(&path).unwrap();
                pause();
                read(&path);
                let after = fs::metadata(&path).unwrap();
                let moved = (after.atime(), after.atime_nsec()) > (before.atime(), before.atime_nsec());
                assert_eq!(moved, moves, "{option}, way {n}");
                pause();
            }
        }
        // No request follows before the end.
        fs::write(&path, b"again").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let written = fs::metadata(&path).unwrap();
        fs::read(&path).unwrap();
        drop(shunt);
        assert!(super::connection_abort::eventually(|| is_free(&image)), "the image stays locked");
        let kernel = Mount::kernel(&image, "/tmp/kernel", "ro,loop");
        let found = fs::metadata(kernel.path("file")).unwrap();
        let moved = (found.atime(), found.atime_nsec()) > (written.mtime(), written.mtime_nsec());
        assert_eq!(moved, notes[0], "{option}, mounted by the kernel");
        drop(kernel);
        fs::remove_file(image).unwrap();
    }
}

fn read_it(path: &Path) {
    fs::read(path).unwrap();
}

fn splice_it(path: &Path) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let file = File::open(path).unwrap();
    let count = rustix::pipe::splice(&file, None, &writer, None, 4096, rustix::pipe::SpliceFlags::empty());
    assert_eq!(count, Ok(4096));
    drop(reader);
}

fn map_it(path: &Path) {
    let file = File::open(path).unwrap();
    let (protection, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
    // SAFETY: a new mapping that nothing reads.
    unsafe {
        let at = rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, flags, &file, 0).unwrap();
        rustix::mm::munmap(at, 4096).unwrap();
    }
}

#[test]
fn extension_does_not_write_preallocated_blocks() {
    if !module_is_here() {
        return;
    }
    let image = image("longer", 64, &[]);
    let mount = mount(&image);
    // Preallocated blocks must not be used once they are freed.
    let file = File::create(mount.path("file")).unwrap();
    let content = noise(5, 400_000);
    file.write_all_at(&content[..100_000], 0).unwrap();
    file.set_len(110_000).unwrap();
    let other = File::create(mount.path("other")).unwrap();
    other.write_all_at(&content, 0).unwrap();
    file.write_all_at(&content[110_000..], 110_000).unwrap();
    file.sync_all().unwrap();
    other.sync_all().unwrap();
    drop((file, other));
    unmount(mount, &image);
    let found = found(&image, "file");
    assert!(found[..100_000] == content[..100_000] && found[110_000..] == content[110_000..]);
    assert!(super::writes::found(&image, "other") == content);
    fs::remove_file(image).unwrap();
}

#[test]
fn unsynced_data_is_durable_after_unmount() {
    if !module_is_here() {
        return;
    }
    let image = image("unsynced", 64, &[]);
    let mount = mount(&image);
    let content = noise(2, 1_234_567);
    fs::write(mount.path("file"), &content).unwrap();
    fs::write(mount.path("short"), b"short").unwrap();
    // A file without a name at the end.
    let gone = File::create(mount.path("gone")).unwrap();
    gone.write_all_at(&content, 0).unwrap();
    fs::remove_file(mount.path("gone")).unwrap();
    drop(gone);
    unmount(mount, &image);
    assert!(found(&image, "file") == content);
    assert!(found(&image, "short") == b"short");
    fs::remove_file(image).unwrap();
}
