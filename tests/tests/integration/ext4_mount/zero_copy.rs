//! Zero copy over io_uring (Linux 7.3, as root): data moves between the kernel's pages and the image.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use serde_json::Value;
use shunt_test_support::{needs_mount, requirement, rings};
use shunt_tests::{Image, Rng};

const FILE_BYTES: usize = 6 << 20;

/// The protocol of this version of Linux offers zero copy.
fn is_offered(stat: &Value) -> bool {
    let minor = stat["protocol"].as_str().and_then(|version| version.strip_prefix("7.")?.parse::<u32>().ok());
    minor.is_some_and(|minor| minor >= 46)
}

/// Drops the mount's pages of a file, so that it is read from the image.
fn read_from_image(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let mut content = vec![0; FILE_BYTES];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

fn follows_a_model(mkfs: &[&str]) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    if !rings::are_on() {
        return eprintln!(
            "SKIP zero copy: FUSE over io_uring is disabled, or this kernel does not support it"
        );
    }
    let image = Image::make(mkfs, 64).unwrap();
    let kept = rings::keep();
    let mount = image.by_shunt(&["--transport", "uring"]);
    drop(kept);
    let before = mount.stat();
    if !is_offered(&before) {
        return eprintln!("SKIP zero copy: this kernel does not offer it");
    }
    assert_eq!(before["transport_buffers"], "zero-copy", "{before:#}");

    let mut rng = Rng::new(32);
    // Two files that grow alternately, so that reads and writes meet the limits of extents.
    let paths = ["one", "two"].map(|name| mount.at().join(name));
    let files = paths.each_ref().map(|path| File::create_new(path).unwrap());
    let mut models = [vec![0; FILE_BYTES], vec![0; FILE_BYTES]];
    files.iter().for_each(|file| file.set_len(FILE_BYTES as u64).unwrap());
    for round in 0..60 {
        let n = rng.below(2);
        let at = rng.below(FILE_BYTES - 1);
        let longest = [5, 9_000, 1 << 20][rng.below(3)];
        let length = 1 + rng.below(longest.min(FILE_BYTES - at));
        if rng.below(8) == 0 {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&files[n], hole, at as u64, length as u64).unwrap();
            models[n][at..at + length].fill(0);
        } else {
            let bytes = rng.bytes(length);
            files[n].write_all_at(&bytes, at as u64).unwrap();
            models[n][at..at + length].copy_from_slice(&bytes);
        }
        if rng.below(4) == 0 {
            files[n].sync_all().unwrap();
        }
        if round % 15 == 14 {
            assert!(read_from_image(&paths[n]) == models[n], "round {round}");
        }
    }
    drop(files);
    for (path, model) in paths.iter().zip(&models) {
        assert!(read_from_image(path) == *model);
    }
    let transferred = &mount.stat()["transferred"];
    let count = |name: &str| transferred[name].as_u64().unwrap();
    assert_eq!(count("zero_copied_bytes"), count("read_bytes") + count("written_bytes"), "{transferred}");
    mount.umount().ok();
    drop(mount);
    image.check();
    let kernel = image.by_kernel("ro").unwrap();
    for (name, model) in ["one", "two"].into_iter().zip(&models) {
        assert!(fs::read(kernel.at().join(name)).unwrap() == *model, "{name}");
    }
}

#[test]
fn data_follows_a_model_in_blocks_of_4_kib() {
    follows_a_model(&["-b", "4096"]);
}

#[test]
fn data_follows_a_model_in_blocks_of_1_kib() {
    follows_a_model(&["-b", "1024"]);
}

#[test]
fn data_follows_a_model_without_extents() {
    follows_a_model(&["-t", "ext2", "-b", "1024"]);
}
