//! The engine reads images of many kinds written by the kernel: content and attributes agree.
//!
//! Needs root, loop devices and mkfs.ext4; in CI (`CI=true`) their absence is a failure.

use std::fs;

use shunt_ext4::{Mapping, ROOT};

use crate::common::{Image, populate, run, seen_by_engine, seen_by_kernel};

fn agrees(mkfs: &[&str], optional: bool) {
    let Some(mut image) = Image::new(mkfs, 96, optional) else { return };
    populate(&image.mnt(), 3000);
    run("sync", &["-f", image.mnt().to_str().unwrap()]).unwrap();
    let expected = seen_by_kernel(&image.mnt());
    image.unmount();
    let fs = image.open();
    let seen = seen_by_engine(&fs);
    for (path, expected) in &expected {
        assert_eq!(seen.get(path), Some(expected), "{mkfs:?}: {path:?}");
    }
    assert_eq!(seen.len(), expected.len(), "{mkfs:?}");
    // Names that do not exist.
    let many = fs.walk(b"many").unwrap();
    for n in (0..3000).step_by(7) {
        let name = format!("a name that is not too short {n}");
        assert!(matches!(fs.find(&many, name.as_bytes()), Err(shunt_ext4::Error::NotFound)), "{name}");
    }
}

macro_rules! images {
    ($($name:ident: $mkfs:expr, $optional:expr;)*) => {
        $(#[test] fn $name() { agrees(&$mkfs, $optional); })*
    };
}

images! {
    defaults: ["-b", "4096"], false;
    blocks_of_1k: ["-b", "1024"], false;
    blocks_of_2k: ["-b", "2048"], false;
    ext2: ["-t", "ext2", "-b", "1024"], false;
    ext3: ["-t", "ext3", "-b", "1024", "-I", "128"], false;
    orphan_file_and_seed: ["-O", "orphan_file,metadata_csum_seed"], true;
    without_sums: ["-O", "^metadata_csum,uninit_bg"], false;
    without_64bit: ["-O", "^64bit", "-b", "1024"], false;
    inline_data: ["-O", "inline_data", "-I", "512"], false;
    ea_inode: ["-O", "ea_inode"], false;
    bigalloc: ["-O", "bigalloc", "-C", "16384"], false;
    meta_bg: ["-O", "meta_bg,^resize_inode", "-b", "1024"], false;
    without_types: ["-O", "^filetype", "-b", "1024"], false;
    without_index: ["-O", "^dir_index"], false;
    large_dir: ["-O", "large_dir", "-b", "1024"], false;
}

#[test]
fn every_directory_hash_finds_names() {
    for hash in ["legacy", "half_md4", "tea"] {
        let Some(mut image) = Image::new(&["-b", "1024"], 32, false) else { return };
        image.unmount();
        run("tune2fs", &["-E", &format!("hash_alg={hash}"), image.path().to_str().unwrap()]).unwrap();
        let mut image = image.mount().unwrap();
        // Non-ASCII names, whose bytes are negative as signed characters.
        let name = |n: usize| format!("ü{n}ß{}", "é".repeat(n % 60));
        (0..2000).for_each(|n| fs::write(image.mnt().join(name(n)), b"").unwrap());
        image.unmount();
        let fs = image.open();
        let root = fs.inode(ROOT).unwrap();
        assert!(root.flags.contains(shunt_ext4::layout::InodeFlags::INDEX));
        (0..2000).for_each(|n| drop(fs.find(&root, name(n).as_bytes()).unwrap()));
        assert!(fs.find(&root, b"none").is_err());
    }
}

#[test]
fn mapping_matches_the_kernel() {
    let Some(mut image) = Image::new(&[], 96, false) else { return };
    populate(&image.mnt(), 10);
    image.unmount();
    let fs = image.open();
    for name in ["large", "sparse", "room"] {
        let inode = fs.walk(name.as_bytes()).unwrap();
        let (mut logical, mut blocks) = (0_u32, 0_u64);
        let size = u64::from(fs.geometry().block_size);
        let end = inode.size.div_ceil(size) as u32;
        while logical < end {
            let run = fs.map(&inode, logical, end - logical).unwrap();
            assert_eq!((run.logical, run.length > 0), (logical, true));
            if !matches!(run.mapping, Mapping::Hole) {
                blocks += u64::from(run.length);
            }
            logical += run.length;
        }
        assert_eq!(logical, end);
        // The mapped blocks are the occupied blocks, except for nodes of the tree.
        let occupied = inode.blocks * 512 / size;
        assert!(
            (blocks..=blocks + 10).contains(&occupied),
            "{name}: {blocks} blocks mapped, {occupied} allocated"
        );
    }
}
