//! `shunt ext4 IMAGE MOUNTPOINT` compared with the kernel's own mount of the same image.

mod atime;
mod block_devices;
mod corrupted_images;
mod daemon_kill;
mod encrypted;
mod immutable;
mod mount_errors;
mod options;
mod reserved_blocks;
mod sandbox;
mod seek_hole;
mod size_limits;
mod syncfs;
mod third_party_suites;
mod transport;
mod tree_snapshot;
mod unmount;
mod write_timestamps;
mod writeback_limits;
mod writes;
mod zero_copy;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use shunt_test_support::{User, memory, needs_mount, patiently, requirement, run, sh};
use shunt_tests::{Fixture, Image, binary};

/// Creates all kinds of files, through the kernel.
const FILL: &str = r#"
mkdir -p dir/a/b big small; echo deep > dir/a/b/deep
(cd big; seq -f 'a name of some length %.0f' 1 4000 | tr '\n' '\0' | xargs -0 touch)
i=0; while [ $i -lt 60 ]; do head -c $((i * 97)) /dev/urandom > small/$i; i=$((i + 1)); done
head -c 5000000 /dev/urandom > large; ln large dir/other
truncate -s 40M sparse; for at in 0 9000000 20480000 39999999; do printf data | dd of=sparse bs=1 seek=$at conv=notrunc status=none; done
fallocate -l 1M unwritten 2>/dev/null || true; printf x | dd of=unwritten bs=1 seek=300000 conv=notrunc status=none
ln -s dir/a short; ln -s "$(printf 'x%.0s' $(seq 1 700))" long; ln short short2
mkfifo fifo; mknod block b 8 17; mknod char c 300 70000
echo > "$(printf 'new\nline and \001')"; echo > "$(printf '\303\251\377')"; echo > "$(printf 'n%.0s' $(seq 1 255))"
chown 70000:80000 small/1; chmod 6751 small/2; chmod 1777 dir; chmod 0 small/3; chmod 2775 small
touch -h -d '2300-01-02 03:04:05.123456789' small/4 long; touch -d '1930-05-06' small/5
for f in small/6 dir fifo; do setfattr -n user.a -v value $f 2>/dev/null || setfattr -n trusted.a -v value $f; done
setfattr -n user.empty -v '' small/6; setfattr -n trusted.t -v secret small/6; setfattr -n security.s -v x small/6
setfattr -n user.long -v "$(head -c 700 /dev/zero | tr '\0' v)" small/7 || true
command -v setfacl >/dev/null && { setfacl -m u:70000:rw,g:80000:r small/8; setfacl -d -m u:70000:rwx dir; }
chattr +A small/9; chattr +d small/10; chattr +S small/11; chattr +a small/12; chattr +i small/13
"#;

/// Makes a file system with these options and fills it; `None` if this kernel does not support it.
fn filled(mkfs: &[&str]) -> Option<Image> {
    let image = Image::make(mkfs, 64).map_err(|why| shunt_test_support::skip::skip(&why)).ok()?;
    match image.by_kernel("rw") {
        Ok(mount) => drop(sh(mount.at(), FILL).ok()),
        Err(why) => {
            shunt_test_support::skip::kernel_cannot(&why);
            return None;
        }
    }
    Some(image)
}

/// Asserts that `shunt` shows an image as the kernel does.
fn same(mkfs: &[&str]) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let Some(image) = filled(mkfs) else { return };
    let kernel = image.by_kernel("ro").unwrap();
    let ours = image.by_shunt(&["--read-only"]);
    let (theirs, ours_seen) = (tree_snapshot::tree(kernel.at()), tree_snapshot::tree(ours.at()));
    assert_eq!(theirs.keys().collect::<Vec<_>>(), ours_seen.keys().collect::<Vec<_>>());
    assert!(theirs.len() > 4000);
    for (path, seen) in &theirs {
        assert!(ours_seen[path].is(seen), "{path:?}: {:#?}, but the kernel shows {seen:#?}", ours_seen[path]);
    }
    assert_eq!(tree_snapshot::space(ours.at()), tree_snapshot::space(kernel.at()));
}

macro_rules! variants {
    ($($name:ident: $options:expr;)*) => {
        $(#[test]
        fn $name() {
            same(&$options);
        })*
    };
}

variants! {
    ext4: ["-b", "4096"];
    ext4_1k: ["-b", "1024"];
    ext4_2k: ["-b", "2048", "-O", "orphan_file,metadata_csum_seed"];
    ext4_without_sums: ["-b", "4096", "-O", "^metadata_csum,^64bit,^uninit_bg"];
    ext4_small_inodes: ["-b", "4096", "-I", "128"];
    ext4_block_maps: ["-b", "1024", "-O", "^extent,^64bit"];
    ext4_inline: ["-b", "4096", "-O", "inline_data,ea_inode,large_dir"];
    ext4_bigalloc: ["-b", "4096", "-O", "bigalloc", "-C", "16384"];
    ext4_meta_bg: ["-b", "1024", "-O", "meta_bg,^resize_inode"];
    ext4_sparse_super2: ["-b", "1024", "-O", "sparse_super2"];
    ext3: ["-t", "ext3", "-b", "4096"];
    ext2: ["-t", "ext2", "-b", "1024"];
    ext2_of_old: ["-t", "ext2", "-b", "1024", "-r", "0"];
}

/// Creates an image in a directory accessible to all users, with read and write permission for all.
fn image_for_users(s: &Fixture) -> PathBuf {
    sh(s.aside(), "truncate -s 16M image; mkfs.ext4 -q -F image; chmod 666 image; chmod 755 .").ok();
    s.aside().join("image")
}

/// Names and attributes are cached: a second look sends no requests.
#[test]
fn a_second_look_costs_nothing() {
    needs_mount!();
    memory::keeping(|| {
        let Some(image) = filled(&[]) else { return };
        let mount = image.by_shunt(&["--read-only"]);
        let look =
            || sh(mount.at(), "find . -ls >/dev/null; cat small/* large >/dev/null; readlink short").ok();
        let asked = || {
            let stat: Value =
                serde_json::from_str(&run(binary::command(&["stat", "--json"]).arg(mount.at())).ok())
                    .unwrap();
            let requests = stat["requests"].as_object().unwrap();
            requests.values().map(|request| request["count"].as_u64().unwrap()).sum::<u64>()
        };
        look();
        let first = asked();
        look();
        // Not one per file; the kernel requests a few names again after evicting them.
        assert!(
            asked() <= first + 5,
            "{first} requests for the first look, {} for the second",
            asked() - first
        );
    });
}

/// The kernel checks modes and ACLs as it does on its own ext4.
#[test]
fn permissions_are_those_of_the_image() {
    needs_mount!();
    let Some(image) = filled(&[]) else { return };
    let mount = image.by_shunt(&[]);
    let opens = |user: u32, name: &str| User::new(user).run(|| File::open(mount.at().join(name)).is_ok());
    assert!(opens(70000, "small/4") && !opens(70000, "small/3"));
    assert!(opens(70000, "small/8"));
    let names = |user| {
        User::new(user).run(|| {
            let mut names = vec![0; 1000];
            let length = rustix::fs::listxattr(mount.at().join("small/6"), &mut names).unwrap();
            String::from_utf8_lossy(&names[..length]).contains("trusted.")
        })
    };
    assert!(names(0) && !names(70000));
}

#[test]
fn read_only_changes_not_a_byte() {
    needs_mount!();
    let Some(image) = filled(&[]) else { return };
    let before = fs::read(image.path()).unwrap();
    let mount = image.by_shunt(&["-o", "ro"]);
    let refused = fs::write(mount.at().join("new"), b"").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(30), "EROFS");
    sh(mount.at(), "find . -type f -exec cat {} + >/dev/null").ok();
    drop(mount);
    assert!(fs::read(image.path()).unwrap() == before);
}

#[test]
fn an_offset_is_where_it_begins() {
    needs_mount!();
    let Some(image) = filled(&[]) else { return };
    let disk = image.aside().join("disk");
    let copied = format!("truncate -s 1M {0}; cat {1} >> {0}", disk.display(), image.path().display());
    sh(Path::new("/"), &copied).ok();
    let mnt = image.aside().join("ours");
    fs::create_dir(&mnt).unwrap();
    run(binary::command(&["ext4", "--daemon", "--offset", "1048576"]).arg(&disk).arg(&mnt)).ok();
    let large = fs::metadata(mnt.join("large")).map(|found| found.size());
    let direct = run(Command::new("dd").arg(format!("if={}", mnt.join("large").display())).args([
        "of=/dev/null",
        "bs=4096",
        "iflag=direct",
        "status=none",
    ]));
    patiently(|| run(binary::command(&["umount"]).arg(&mnt))).ok();
    assert_eq!(large.unwrap(), 5_000_000);
    direct.ok();
}
