//! Reserved blocks: available to root, and not to other users. Needs no root.

use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::{
    Error, Fallocate, Filesystem, MemoryDevice, Move, NewInode, NewInodeKind, ROOT, ReservedAccess, SetMode,
};

/// An image of 16 MiB, a fifth of it reserved; `None` without e2fsprogs.
fn image(owner: &[&str]) -> Option<Filesystem> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let commands: [(&str, &[&str]); 2] =
        [("mkfs.ext4", &["-q", "-F", "-b", "1024", "-m", "20", "-O", "^has_journal"]), ("tune2fs", owner)];
    for (program, args) in commands.iter().filter(|(_, args)| !args.is_empty()) {
        match Command::new(program).args(*args).arg(&path).output() {
            Ok(output) if output.status.success() => {}
            other => {
                assert!(std::env::var_os("CI").is_none(), "{program}: {other:?}");
                eprintln!("skipped: {program}: {other:?}");
                return None;
            }
        }
    }
    Some(Filesystem::open_writable(Arc::new(MemoryDevice::new(fs::read(path).unwrap()))).unwrap())
}

#[test]
fn reserved_blocks_are_for_root() {
    let Some(fs) = image(&[]) else { return };
    let file = fs.create(ROOT, b"file", NewInodeKind::Regular, &NewInode::default()).unwrap().number;
    let before = fs.usage().unwrap();
    assert!(before.available > 0 && before.free - before.available >= 16384 / 5, "{before:?}");
    let data = vec![7; 64 << 10];
    let fill = |from: u64, rights| {
        let mut at = from;
        loop {
            match fs.write_as(file, at, data[..].into(), rights) {
                Ok(count) => at += count as u64,
                Err(Error::NoSpace) => return at,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let users = fill(0, ReservedAccess::Common);
    let full = fs.usage().unwrap();
    assert_eq!((full.available, users >> 10), (0, before.available), "{full:?}");
    let more = fs.fallocate_as(file, Fallocate::Allocate, (users, 1024), ReservedAccess::Common);
    assert!(matches!(more, Err(Error::NoSpace)), "{more:?}");
    let target = vec![b'x'; 1000];
    let link = |uid| {
        fs.create(ROOT, b"link", NewInodeKind::Symlink(&target), &NewInode { uid, ..NewInode::default() })
    };
    assert!(matches!(link(1000), Err(Error::NoSpace)));
    assert!(link(0).is_ok());
    // Users cannot take reserved blocks for a directory, for attributes that do not fit the inode, or for a name in a full
    // directory either.
    let directory = |uid| {
        fs.create(ROOT, b"directory", NewInodeKind::Directory, &NewInode { uid, ..NewInode::default() })
    };
    assert!(matches!(directory(1000), Err(Error::NoSpace)));
    assert!(directory(0).is_ok());
    let large = |rights| fs.set_xattr_as(file, b"user.large", &[1; 500], SetMode::Either, rights);
    assert!(matches!(large(ReservedAccess::Common), Err(Error::NoSpace)));
    assert!(large(ReservedAccess::Reserved).is_ok());
    let name = |n: usize| format!("{n:x<240}").into_bytes();
    let named =
        |n, uid| fs.create(ROOT, &name(n), NewInodeKind::Regular, &NewInode { uid, ..NewInode::default() });
    let full = (0..16).find_map(|n| named(n, 1000).err().map(|error| (n, error)));
    let Some((n, Error::NoSpace)) = full else { panic!("{full:?}") };
    assert!(named(n, 0).is_ok());
    // Users cannot take them for a link or a rename either.
    let into = fs.create(ROOT, b"into", NewInodeKind::Directory, &NewInode::default()).unwrap().number;
    let mut moved = 200;
    let mut moves = |rights| {
        moved += 1;
        fs.create(ROOT, &name(moved), NewInodeKind::Regular, &NewInode::default()).unwrap();
        fs.rename_as((ROOT, &name(moved)), (into, &name(moved)), &Move::default(), rights).map(drop)
    };
    let refused = (0..16).find_map(|_| moves(ReservedAccess::Common).err());
    assert!(matches!(refused, Some(Error::NoSpace)), "{refused:?}");
    moves(ReservedAccess::Reserved).unwrap();
    let refused = (300..316).find_map(|n| fs.link_as(file, ROOT, &name(n), ReservedAccess::Common).err());
    assert!(matches!(refused, Some(Error::NoSpace)), "{refused:?}");
    fs.link(file, ROOT, &name(400)).unwrap();
    let all = fill(users, ReservedAccess::Reserved);
    assert!(all >> 10 >= (users >> 10) + 16384 / 5 - 64, "{users} {all}");
    // Overwriting takes no new blocks.
    assert_eq!(fs.write_as(file, 0, data[..].into(), ReservedAccess::Common).unwrap(), data.len());
}

#[test]
fn reserved_blocks_have_an_owner() {
    let Some(fs) = image(&["-u", "1000", "-g", "50"]) else { return };
    for (uid, gid, rights) in [
        (0, 7, ReservedAccess::Reserved),
        (1000, 7, ReservedAccess::Reserved),
        (1001, 50, ReservedAccess::Reserved),
        (1001, 0, ReservedAccess::Common),
        (1001, 1000, ReservedAccess::Common),
    ] {
        assert_eq!(fs.rights(uid, gid), rights, "{uid} {gid}");
    }
    // A reserved group of 0 gives no group access.
    let Some(fs) = image(&[]) else { return };
    assert_eq!(fs.rights(1000, 0), ReservedAccess::Common);
}
