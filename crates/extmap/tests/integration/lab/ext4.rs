//! ext4 read past the daemon: same content as with the kernel's own ext4, and no READ request.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::disk::{Mount, forget_caches, module_is_here, run};

/// Creates an image that the kernel's ext4 has filled.
pub fn image(name: &str, megabytes: u64, mkfs: &[&str], fill: impl FnOnce(&Path)) -> PathBuf {
    let path = PathBuf::from(format!("/scratch/{name}"));
    File::create(&path).unwrap().set_len(megabytes << 20).unwrap();
    run("mkfs.ext4", &[&["-q", "-F"][..], mkfs, &[path.to_str().unwrap()]].concat());
    let mount = Mount::kernel(&path, "/tmp/filled", "loop");
    fill(&mount.0);
    drop(mount);
    path
}

pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(word).flatten().take(length).collect()
}

/// Creates files of many sizes and layouts.
fn fill(root: &Path) {
    for n in 0..60u64 {
        let size = [0, 1, 60, 100, 1000, 4095, 4096, 4097, 10_000, 65_536, 300_001, 1 << 20][n as usize % 12];
        fs::write(root.join(format!("plain{n}")), noise(n, size)).unwrap();
    }
    // Two files that grow in turns are fragmented.
    let pair: Vec<File> = (0..2).map(|n| File::create(root.join(format!("turns{n}"))).unwrap()).collect();
    for round in 0..150u64 {
        for (n, mut file) in pair.iter().enumerate() {
            file.write_all(&noise(round * 2 + n as u64, 4096 + 1024 * (round as usize % 4))).unwrap();
            file.sync_data().unwrap();
        }
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    for n in 0..200u64 {
        sparse.write_all_at(&noise(n, 5000), n * 50_000 + n * n).unwrap();
    }
    sparse.set_len(30 << 20).unwrap();
    let ahead = File::create(root.join("ahead")).unwrap();
    // Block maps have no unwritten blocks.
    let _ = rustix::fs::fallocate(&ahead, rustix::fs::FallocateFlags::empty(), 0, 2 << 20);
    ahead.set_len(2 << 20).unwrap();
    ahead.write_all_at(&noise(1, 10_000), 700_000).unwrap();
    // There are blocks beyond the end as well.
    let beyond = File::create(root.join("beyond")).unwrap();
    let _ = rustix::fs::fallocate(&beyond, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 1 << 20);
    beyond.write_all_at(&noise(2, 12_345), 0).unwrap();
    let holes = File::create(root.join("punched")).unwrap();
    holes.write_all_at(&noise(3, 2 << 20), 0).unwrap();
    for n in 0..40 {
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&holes, punch, n * 50_000, 9000 + n * 100).unwrap();
    }
    File::create(root.join("hole")).unwrap().set_len(5 << 20).unwrap();
    fs::create_dir(root.join("dir")).unwrap();
    fs::hard_link(root.join("plain11"), root.join("dir/link")).unwrap();
    fs::write(root.join("large"), noise(9, 24 << 20)).unwrap();
}

/// Returns the checksum of each file from `sha256sum`.
fn sums(root: &Path) -> BTreeMap<String, String> {
    let script = format!("cd {} && find . -type f | xargs sha256sum", root.display());
    let output = run("bash", &["-c", &script]);
    output.lines().map(|line| (line[66..].to_owned(), line[..64].to_owned())).collect()
}

fn mapped_content(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len() as usize;
    if size == 0 {
        return Vec::new();
    }
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    // SAFETY: a new mapping of a file that nothing changes, unmapped before anything else can use it.
    unsafe {
        let at = mmap(std::ptr::null_mut(), size, ProtFlags::READ, MapFlags::PRIVATE, &file, 0).unwrap();
        let content = std::slice::from_raw_parts(at.cast::<u8>(), size).to_vec();
        munmap(at, size).unwrap();
        content
    }
}

#[test]
fn files_match_the_kernel_mount() {
    if !module_is_here() {
        return;
    }
    let forms: [&[&str]; 4] = [&[], &["-b", "1024"], &["-O", "^extents,^64bit"], &["-O", "inline_data"]];
    for (n, form) in forms.into_iter().enumerate() {
        let image = image(&format!("content{n}"), 160, form, fill);
        let kernel = Mount::kernel(&image, "/tmp/kernel", "ro,loop");
        let wanted = sums(&kernel.0);
        drop(kernel);
        forget_caches();
        let mount = Mount::shunt(&image, "/tmp/shunt", &["--read-only", "--data", "extmap"]);
        assert_eq!(sums(&mount.0), wanted, "{form:?}");
        let reads = mount.requests("read");
        println!("{form:?}: {} files identical, READ requests: {reads}", wanted.len());
        if form != ["-O", "inline_data"] {
            assert_eq!(reads, 0, "{form:?}");
        }
        for name in ["sparse", "turns1", "punched", "plain10", "ahead", "beyond", "hole"] {
            let (mapped, read) = (mapped_content(&mount.path(name)), fs::read(mount.path(name)).unwrap());
            assert!(mapped == read, "{form:?} {name}");
            // Buffered and direct reads agree.
            let from = format!("if={}", mount.path(name).display());
            let direct = Command::new("dd").args([&from, "bs=64k", "iflag=direct", "status=none"]).output();
            let direct = direct.unwrap().stdout;
            assert!(direct == read, "{form:?} {name} direct: {} of {}", direct.len(), read.len());
        }
        drop(mount);
        run("e2fsck", &["-fn", image.to_str().unwrap()]);
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn content_of_unreplayed_journal_is_read() {
    if !module_is_here() {
        return;
    }
    let image = image("unclean", 64, &[], |_| ());
    // All data goes to the journal first, and is not checkpointed yet when the image is copied.
    let kernel = Mount::kernel(&image, "/tmp/kernel", "loop,data=journal,commit=1000");
    fs::write(kernel.path("old"), noise(1, 100_000)).unwrap();
    File::open(kernel.path("old")).unwrap().sync_all().unwrap();
    fs::write(kernel.path("old"), noise(2, 100_000)).unwrap();
    File::open(kernel.path("old")).unwrap().sync_all().unwrap();
    let copy = Path::new("/scratch/copy");
    fs::copy(&image, copy).unwrap();
    drop(kernel);
    let mount = Mount::shunt(copy, "/tmp/shunt", &["--read-only", "--data", "extmap"]);
    assert!(fs::read(mount.path("old")).unwrap() == noise(2, 100_000));
    drop(mount);
    fs::remove_file(copy).unwrap();
    fs::remove_file(image).unwrap();
}

#[test]
fn unmappable_files_are_read_by_the_daemon() {
    if !module_is_here() {
        return;
    }
    let image = image("plain", 64, &[], fill_one);
    let mount = Mount::shunt(&image, "/tmp/shunt", &["--read-only", "--data", "daemon"]);
    assert!(fs::read(mount.path("file")).unwrap() == noise(5, 100_000));
    assert!(mount.requests("read") > 0);
    drop(mount);
    fs::remove_file(image).unwrap();
    // Block maps do not mark blocks as unwritten.
    let maps = self::image("maps", 64, &["-O", "^extents,^64bit"], fill_one);
    let refused =
        Command::new("shunt").args(["ext4", "--data", "extmap"]).arg(&maps).arg("/tmp/shunt").output();
    let refused = String::from_utf8(refused.unwrap().stderr).unwrap();
    assert!(refused.contains("extents"), "{refused}");
    fs::remove_file(maps).unwrap();
}

#[test]
fn devices_and_partitions_are_mapped_by_default() {
    if !module_is_here() {
        return;
    }
    let image = image("plain", 16, &[], fill_one);
    let by_default = |image: &Path, more: &[&str]| {
        let mount = Mount::shunt(image, "/tmp/shunt", &[&["--read-only"], more].concat());
        assert!(fs::read(mount.path("file")).unwrap() == noise(5, 100_000), "{more:?}");
        assert_eq!(mount.requests("read"), 0, "{more:?}");
    };
    by_default(&image, &[]);
    // The image starts in the middle of a device page.
    let disk = Path::new("/scratch/disk");
    fs::write(disk, [vec![0; (1 << 20) + 512], fs::read(&image).unwrap()].concat()).unwrap();
    by_default(disk, &["--offset", "1049088"]);
    let device = shunt_extmap::attach(File::open(&image).unwrap()).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&device);
    by_default(&fs::read_link(format!("/proc/self/fd/{fd}")).unwrap(), &[]);
    drop(device);
    fs::remove_file(disk).unwrap();
    fs::remove_file(image).unwrap();
}

fn fill_one(root: &Path) {
    fs::write(root.join("file"), noise(5, 100_000)).unwrap();
}

#[test]
fn killed_daemon_releases_the_image() {
    if !module_is_here() {
        return;
    }
    let image = image("killed", 64, &[], |root| fs::write(root.join("file"), noise(5, 4 << 20)).unwrap());
    for _ in 0..3 {
        fs::create_dir_all("/tmp/shunt").unwrap();
        let mut daemon = Command::new("shunt")
            .args(["ext4", "--read-only", "--data", "extmap"])
            .arg(&image)
            .arg("/tmp/shunt")
            .spawn()
            .unwrap();
        let path = Path::new("/tmp/shunt/file");
        assert!(super::connection_abort::eventually(|| path.exists()));
        let open = File::open(path).unwrap();
        open.read_exact_at(&mut [0; 4096], 0).unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        // A process that the daemon was about to start may hold its descriptors for a moment longer.
        assert!(super::connection_abort::eventually(|| open.read_at(&mut [0; 4096], 1 << 20).is_err()));
        drop(open);
        // The image can be mounted again.
        assert!(super::connection_abort::eventually(|| !path.exists()));
        let mount = Mount::shunt(&image, "/tmp/shunt2", &[]);
        fs::write(mount.path("other"), "other").unwrap();
        drop(mount);
    }
    fs::remove_file(image).unwrap();
}
