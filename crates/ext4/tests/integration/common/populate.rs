//! A directory tree with every kind of content.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use super::run;

/// Populates a tree with every kind of content.
pub fn populate(root: &Path, names: usize) {
    let at = |name: &str| root.join(name);
    fs::write(at("empty"), b"").unwrap();
    fs::write(at("tiny"), b"fits an inode").unwrap();
    fs::write(at("small"), vec![7; 100]).unwrap();
    let noise: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(at("large"), &noise).unwrap();
    // Holes, a block at a high offset, and preallocated blocks.
    let sparse = File::create(at("sparse")).unwrap();
    for n in 0..400_u64 {
        sparse.write_all_at(&[n as u8; 1500], n * 20_000).unwrap();
    }
    sparse.set_len(30_000_000).unwrap();
    sparse.write_all_at(b"end", 29_000_000).unwrap();
    let room = File::create(at("room")).unwrap();
    room.write_all_at(b"start", 0).unwrap();
    if rustix::fs::fallocate(&room, rustix::fs::FallocateFlags::empty(), 0, 500_000).is_ok() {
        room.write_all_at(b"middle", 200_000).unwrap();
    }
    symlink("short", at("link")).unwrap();
    symlink("l".repeat(59), at("link59")).unwrap();
    symlink("l".repeat(60), at("link60")).unwrap();
    symlink("l".repeat(1000), at("link1000")).unwrap();
    fs::hard_link(at("large"), at("other")).unwrap();
    fs::create_dir_all(at("a/b/c/d/e")).unwrap();
    fs::write(at("a/b/c/d/e/f"), b"deep").unwrap();
    fs::set_permissions(at("tiny"), PermissionsExt::from_mode(0o6755)).unwrap();
    std::os::unix::fs::chown(at("small"), Some(70_000), Some(80_000)).unwrap();
    let node = |name: &str, kind, device| {
        rustix::fs::mknodat(rustix::fs::CWD, at(name), kind, 0o640.into(), device).unwrap();
    };
    node("fifo", rustix::fs::FileType::Fifo, 0);
    node("socket", rustix::fs::FileType::Socket, 0);
    node("char", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(5, 1));
    node("block", rustix::fs::FileType::BlockDevice, rustix::fs::makedev(259, 70_000));
    let none = rustix::fs::XattrFlags::empty();
    for (name, size) in [("user.small", 10), ("user.more", 300), ("trusted.t", 40), ("security.s", 60)] {
        rustix::fs::setxattr(at("tiny"), name, &noise[..size], none).unwrap();
    }
    // Larger than a block: possible only with ea_inode.
    rustix::fs::setxattr(at("small"), "user.large", &noise[..20_000], none).ok();
    run("setfacl", &["-m", "u:1234:r,g:4321:rw,m::rwx", at("small").to_str().unwrap()]).unwrap();
    run("setfacl", &["-d", "-m", "u:1234:rwx", at("a").to_str().unwrap()]).unwrap();
    // Times before 1970 and after 2038.
    for (name, seconds) in [("old", -1_000_000_000), ("far", 8_000_000_000_i64)] {
        fs::write(at(name), b"x").unwrap();
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, at(name), &times, rustix::fs::AtFlags::empty()).unwrap();
    }
    fs::create_dir(at("many")).unwrap();
    for n in 0..names {
        fs::write(at("many").join(format!("a name that is not too short {n}")), format!("{n}")).unwrap();
    }
    for n in (0..names).step_by(7) {
        fs::remove_file(at("many").join(format!("a name that is not too short {n}"))).unwrap();
    }
    let odd = OsString::from_vec((1..=255).filter(|&byte| byte != b'/').chain([b'x'; 1]).collect());
    fs::write(root.join(odd), b"odd").unwrap();
}
