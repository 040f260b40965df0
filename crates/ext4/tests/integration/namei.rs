//! Creation, rename and removal of names by the engine, compared with the kernel.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use shunt_ext4::{Error, FileDevice, Filesystem, Kind, Move, NewInode, NewInodeKind, ROOT, RenameMode};

use crate::common::{Image, InodeProperties, Tree, run, seen_by_kernel};

fn open(path: &Path) -> Filesystem {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    Filesystem::open_writable(Arc::new(FileDevice::new(file, false).unwrap())).unwrap()
}

const OWNER: NewInode = NewInode { permissions: 0o640, umask: 0, uid: 7, gid: 8 };

#[derive(Debug, Clone)]
enum Step {
    Make(String, u8),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, u8),
}

const MODES: [RenameFlags; 4] =
    [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE, RenameFlags::WHITEOUT];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || prop_oneof![4 => "[abc]", 1 => "[de]{50}"];
    let path = move || proptest::collection::vec(name(), 1..4).prop_map(|parts| parts.join("/"));
    let step = prop_oneof![
        4 => (path(), 0..2_u8).prop_map(|(path, kind)| Step::Make(path, kind)),
        2 => (path(), 2..7_u8).prop_map(|(path, kind)| Step::Make(path, kind)),
        2 => (path(), path()).prop_map(|(from, to)| Step::Link(from, to)),
        2 => path().prop_map(Step::Unlink),
        1 => path().prop_map(Step::Rmdir),
        6 => (path(), path(), 0..4_u8).prop_map(|(from, to, mode)| Step::Rename(from, to, mode)),
    ];
    proptest::collection::vec(step, 1..150)
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The kernel's side of the comparison.
struct Kernel(OwnedFd);

impl Kernel {
    fn parent<'p>(&self, path: &'p str) -> Result<(OwnedFd, &'p str), Errno> {
        let (above, name) = split(path);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let mut now = rustix::fs::openat(&self.0, ".", flags, Mode::empty())?;
        for part in above.split('/').filter(|part| !part.is_empty()) {
            now = rustix::fs::openat(&now, part, flags, Mode::empty())?;
        }
        Ok((now, name))
    }

    fn own(dir: &OwnedFd, name: &str) {
        let (uid, gid) = (rustix::fs::Uid::from_raw(7), rustix::fs::Gid::from_raw(8));
        rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    fn play(&self, step: &Step) -> Result<(), Errno> {
        match step {
            Step::Make(path, kind) => {
                let (dir, name) = self.parent(path)?;
                let mode = Mode::from_raw_mode(0o640);
                let node = |kind, device| rustix::fs::mknodat(&dir, name, kind, mode, device);
                match kind {
                    0 => rustix::fs::mkdirat(&dir, name, mode)?,
                    1 => node(FileType::RegularFile, 0)?,
                    2 => rustix::fs::symlinkat("short", &dir, name)?,
                    3 => rustix::fs::symlinkat("l".repeat(300), &dir, name)?,
                    4 => node(FileType::Fifo, 0)?,
                    5 => node(FileType::CharacterDevice, rustix::fs::makedev(300, 70_000))?,
                    _ => node(FileType::Socket, 0)?,
                }
                Self::own(&dir, name);
                Ok(())
            }
            Step::Link(from, to) => {
                let (from, to) = (self.parent(from)?, self.parent(to)?);
                rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty())
            }
            Step::Unlink(path) => {
                let (dir, name) = self.parent(path)?;
                rustix::fs::unlinkat(dir, name, AtFlags::empty())
            }
            Step::Rmdir(path) => {
                let (dir, name) = self.parent(path)?;
                rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
            }
            Step::Rename(from, to, mode) => {
                let (from, to) = (self.parent(from)?, self.parent(to)?);
                let mode = MODES[usize::from(*mode)];
                rustix::fs::renameat_with(&from.0, from.1, &to.0, to.1, mode)?;
                if mode == RenameFlags::WHITEOUT {
                    // No whiteout is left if the name moved to itself or to another link of its inode.
                    let left = rustix::fs::statat(&from.0, from.1, AtFlags::SYMLINK_NOFOLLOW);
                    if left.is_ok_and(|stat| {
                        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
                            && stat.st_rdev == 0
                    }) {
                        Self::own(&from.0, from.1);
                    }
                }
                Ok(())
            }
        }
    }
}

/// The engine's side: resolves the parent of a path.
fn parent<'p>(fs: &Filesystem, path: &'p str) -> Result<(u32, &'p [u8]), Error> {
    let (above, name) = split(path);
    let inode = fs.walk(above.as_bytes())?;
    if inode.kind != Kind::Directory {
        return Err(Error::NotDirectory);
    }
    Ok((inode.number, name.as_bytes()))
}

fn play(fs: &Filesystem, step: &Step) -> Result<(), Error> {
    let reap = |number: u32| fs.evict_inode(number).unwrap();
    match step {
        Step::Make(path, kind) => {
            let (dir, name) = parent(fs, path)?;
            let long = "l".repeat(300);
            let what = match kind {
                0 => NewInodeKind::Directory,
                1 => NewInodeKind::Regular,
                2 => NewInodeKind::Symlink(b"short"),
                3 => NewInodeKind::Symlink(long.as_bytes()),
                4 => NewInodeKind::Fifo,
                5 => NewInodeKind::CharDevice(300, 70_000),
                _ => NewInodeKind::Socket,
            };
            let permissions = if matches!(kind, 2 | 3) { 0o777 } else { OWNER.permissions };
            fs.create(dir, name, what, &NewInode { permissions, ..OWNER }).map(drop)
        }
        Step::Link(from, to) => {
            let (from, to) = (parent(fs, from)?, parent(fs, to)?);
            let inode = fs.find(&fs.inode(from.0)?, from.1)?;
            fs.link(inode.number, to.0, to.1).map(drop)
        }
        Step::Unlink(path) => {
            let (dir, name) = parent(fs, path)?;
            let left = fs.unlink(dir, name)?;
            if left.links == 0 {
                reap(left.number);
            }
            Ok(())
        }
        Step::Rmdir(path) => {
            let (dir, name) = parent(fs, path)?;
            reap(fs.remove_directory(dir, name)?.number);
            Ok(())
        }
        Step::Rename(from, to, mode) => {
            let (from, to) = (parent(fs, from)?, parent(fs, to)?);
            let how = match mode {
                0 => Move::default(),
                1 => Move { mode: RenameMode::Keep, whiteout: None },
                2 => Move { mode: RenameMode::Exchange, whiteout: None },
                _ => Move { mode: RenameMode::Replace, whiteout: Some((7, 8)) },
            };
            if let Some(replaced) = fs.rename(from, to, &how)?
                && replaced.links == 0
            {
                reap(replaced.number);
            }
            Ok(())
        }
    }
}

/// Removes properties that may differ: inode numbers and times.
fn comparable(tree: Tree) -> Vec<(std::ffi::OsString, InodeProperties)> {
    let alike = |(path, seen)| (path, InodeProperties { inode: 0, times: [(0, 0); 2], ..seen });
    tree.into_iter().map(alike).filter(|(path, _)| !path.as_bytes().starts_with(b"lost+found")).collect()
}

fn as_the_kernel(mkfs: &[&str], cases: u32) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&steps(), |steps| {
        let Some(theirs) = Image::new(mkfs, 8, false) else { return Ok(()) };
        let ours = Image::make(mkfs, 8).unwrap();
        let fs = open(&ours.path());
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let kernel = Kernel(rustix::fs::open(theirs.mnt(), flags, Mode::empty()).unwrap());
        let tree = ["a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b"].map(|path| Step::Make(path.into(), 0));
        for step in tree.iter().chain(&steps) {
            let (theirs, ours) = (kernel.play(step), play(&fs, step).map_err(|error| error.errno()));
            prop_assert_eq!(ours, theirs, "{:?}", step);
        }
        drop(kernel);
        fs.close().unwrap();
        ours.check();
        let ours = ours.mount().unwrap();
        prop_assert_eq!(comparable(seen_by_kernel(&ours.mnt())), comparable(seen_by_kernel(&theirs.mnt())));
        Ok(())
    });
    result.unwrap();
}

#[test]
fn random_names_match_the_kernel() {
    as_the_kernel(&["-b", "1024"], 40);
}

#[test]
fn random_names_on_ext2() {
    as_the_kernel(&["-t", "ext2", "-b", "1024", "-O", "^dir_index,^filetype"], 20);
}

fn name(n: usize) -> String {
    format!("a name that is not too short {n}")
}

/// Creates tens of thousands of names, compares them with the kernel's view, and removes them.
fn many(mkfs: &[&str], names: usize) {
    let Some(mut image) = Image::new(&[&["-N", "60000"], mkfs].concat(), 128, false) else { return };
    image.unmount();
    let fs = open(&image.path());
    let directory = fs.create(ROOT, b"many", NewInodeKind::Directory, &OWNER).unwrap().number;
    for n in 0..names {
        fs.create(directory, name(n).as_bytes(), NewInodeKind::Regular, &OWNER).unwrap();
    }
    fs.close().unwrap();
    image.check();
    let dump = Command::new("debugfs").args(["-R", "htree_dump /many"]).arg(image.path()).output().unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout);
    assert!(dump.contains("Indirect levels: 1"), "no inner node was split: {dump}");
    let mut image = image.mount().unwrap();
    let many = image.mnt().join("many");
    assert_eq!(fs::read_dir(&many).unwrap().count(), names);
    assert!((0..names).step_by(97).all(|n| many.join(name(n)).is_file()));
    // The kernel continues to use the tree made by the engine.
    for n in (0..names).step_by(3) {
        fs::rename(many.join(name(n)), many.join(format!("moved {n}"))).unwrap();
    }
    image.unmount();
    image.check();
    let fs = open(&image.path());
    for n in 0..names {
        let name = if n % 3 == 0 { format!("moved {n}") } else { name(n) };
        let left = fs.unlink(directory, name.as_bytes()).unwrap();
        fs.evict_inode(left.number).unwrap();
    }
    let left = fs.remove_directory(ROOT, b"many").unwrap();
    fs.evict_inode(left.number).unwrap();
    fs.close().unwrap();
    image.check();
    let image = image.mount().unwrap();
    assert_eq!(fs::read_dir(image.mnt()).unwrap().count(), 1, "only lost+found remains");
}

#[test]
fn many_names_in_blocks_of_1k() {
    many(&["-b", "1024"], 50_000);
}

#[test]
fn many_names_in_blocks_of_4k() {
    many(&["-b", "4096"], 50_000);
}

#[test]
fn many_names_without_sums_or_extents() {
    many(&["-t", "ext3", "-b", "1024", "-I", "128"], 20_000);
}

#[test]
fn hashes_match_the_kernel() {
    for hash in ["legacy", "half_md4", "tea"] {
        for sign in ["signed_directory_hash", "unsigned_directory_hash"] {
            let Ok(image) = Image::make(&["-b", "1024"], 32) else { return };
            let path = image.path();
            run("tune2fs", &["-E", &format!("hash_alg={hash}"), path.to_str().unwrap()]).unwrap();
            let flags = if sign.starts_with('u') { "2" } else { "1" };
            run("debugfs", &["-w", "-R", &format!("ssv flags {flags}"), path.to_str().unwrap()]).unwrap();
            let name = |n: usize| format!("ü{n}ß{}", "é".repeat(n % 60));
            let fs = open(&path);
            for n in 0..2000 {
                fs.create(ROOT, name(n).as_bytes(), NewInodeKind::Regular, &OWNER).unwrap();
            }
            fs.close().unwrap();
            image.check();
            let image = image.mount().unwrap();
            assert!((0..2000).all(|n| image.mnt().join(name(n)).is_file()), "{hash} {sign}");
            assert!(!image.mnt().join("none").exists());
        }
    }
}

#[test]
fn indexed_directory_moves_to_other_parent() {
    let Some(mut image) = Image::new(&["-b", "1024"], 32, false) else { return };
    image.unmount();
    let fs = open(&image.path());
    let [from, to] = [&b"from"[..], b"to"]
        .map(|name| fs.create(ROOT, name, NewInodeKind::Directory, &OWNER).unwrap().number);
    let directory = fs.create(from, b"many", NewInodeKind::Directory, &OWNER).unwrap().number;
    for n in 0..200 {
        fs.create(directory, name(n).as_bytes(), NewInodeKind::Regular, &OWNER).unwrap();
    }
    fs.rename((from, b"many"), (to, b"many"), &Move::default()).unwrap();
    fs.close().unwrap();
    image.check();
    let image = image.mount().unwrap();
    assert_eq!(fs::read_dir(image.mnt().join("to/many")).unwrap().count(), 200);
}

#[test]
fn directory_link_count_saturates() {
    let Some(mut image) = Image::new(&["-b", "1024", "-N", "66000"], 192, false) else { return };
    image.unmount();
    let fs = open(&image.path());
    let links = || fs.inode(ROOT).unwrap().links;
    for n in 0..64_997 {
        fs.create(ROOT, format!("{n}").as_bytes(), NewInodeKind::Directory, &OWNER).unwrap();
    }
    assert_eq!(links(), 65_000);
    fs.create(ROOT, b"one more", NewInodeKind::Directory, &OWNER).unwrap();
    assert_eq!(links(), 1);
    let left = fs.remove_directory(ROOT, b"one more").unwrap();
    fs.evict_inode(left.number).unwrap();
    assert_eq!(links(), 1);
    fs.close().unwrap();
    image.check();
}

#[test]
fn names_are_limited() {
    let Ok(image) = Image::make(&[], 8) else { return };
    let fs = open(&image.path());
    let make = |name: &[u8]| fs.create(ROOT, name, NewInodeKind::Regular, &OWNER).map(drop);
    make(&[b'n'; 255]).unwrap();
    assert!(matches!(make(&[b'n'; 256]), Err(Error::NameTooLong)));
    assert!(matches!(make(&[b'n'; 255]), Err(Error::Exists)));
    assert!(matches!(make(b"a/b"), Err(Error::Invalid)));
    assert!(matches!(make(b".."), Err(Error::Exists)));
    let file = fs.find(&fs.inode(ROOT).unwrap(), &[b'n'; 255]).unwrap();
    let immutable = shunt_ext4::Attributes {
        flags: Some(file.flags | shunt_ext4::layout::InodeFlags::IMMUTABLE),
        ..Default::default()
    };
    fs.set_attributes(file.number, &immutable).unwrap();
    assert!(matches!(fs.unlink(ROOT, &[b'n'; 255]), Err(Error::NotPermitted)));
    assert!(matches!(fs.link(file.number, ROOT, b"other"), Err(Error::NotPermitted)));
    fs.close().unwrap();
    image.check();
}

#[test]
fn unnamed_file_is_freed_or_linked() {
    let Ok(image) = Image::make(&[], 8) else { return };
    let fs = open(&image.path());
    let gone = fs.create_tmpfile(ROOT, &OWNER).unwrap();
    let named = fs.create_tmpfile(ROOT, &OWNER).unwrap();
    assert_eq!((gone.links, named.links), (0, 0));
    assert_eq!(fs.link(named.number, ROOT, b"named").unwrap().links, 1);
    fs.evict_inode(gone.number).unwrap();
    assert!(fs.inode(gone.number).map_or(0, |inode| inode.links) == 0);
    fs.close().unwrap();
    image.check();
    let image = image.mount().unwrap();
    assert!(image.mnt().join(OsStr::new("named")).is_file());
}

#[test]
fn default_acls_are_inherited_as_in_the_kernel() {
    let Some(mut image) = Image::new(&["-b", "1024"], 16, false) else { return };
    let mnt = image.mnt();
    fs::create_dir(mnt.join("above")).unwrap();
    let above = mnt.join("above");
    let above = above.to_str().unwrap();
    run("setfacl", &["-d", "-m", "u:1234:rwx,g::rx,o::x,m::rw", above]).unwrap();
    run("chmod", &["2755", above]).unwrap();
    std::os::unix::fs::chown(above, None, Some(99)).unwrap();
    let make = |directory: &str, at: &Path| match directory {
        "directory" => rustix::fs::mkdir(at, Mode::from_raw_mode(0o751)).unwrap(),
        _ => drop(rustix::fs::open(at, OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o751)).unwrap()),
    };
    ["directory", "file"]
        .iter()
        .for_each(|kind| make(kind, &mnt.join("above").join(format!("kernel {kind}"))));
    image.unmount();
    let fs = open(&image.path());
    let parent = fs.walk(b"above").unwrap().number;
    let new = NewInode { permissions: 0o751, umask: 0o022, uid: 0, gid: 0 };
    fs.create(parent, b"engine directory", NewInodeKind::Directory, &new).unwrap();
    fs.create(parent, b"engine file", NewInodeKind::Regular, &new).unwrap();
    fs.close().unwrap();
    image.check();
    let image = image.mount().unwrap();
    let tree = seen_by_kernel(&image.mnt());
    for kind in ["directory", "file"] {
        let of = |who: &str| {
            let seen = &tree[OsStr::new(&format!("above/{who} {kind}"))];
            (seen.mode, seen.owner, seen.xattrs.clone())
        };
        assert_eq!(of("engine"), of("kernel"), "{kind}");
        assert!(!of("kernel").2.is_empty());
    }
}

/// Files on a full image can be removed, and their space reused at once.
#[test]
fn full_image_is_emptied_and_refilled() {
    let Ok(image) = Image::make(&["-b", "1024", "-N", "3000"], 4) else { return };
    let fs = open(&image.path());
    let name = |n: usize| format!("{n}{}", "n".repeat(200));
    let fill = |round: usize| {
        let mut made = 0;
        for n in 0.. {
            let what = match n % 3 {
                0 => NewInodeKind::Symlink(&[b'l'; 900]),
                1 => NewInodeKind::Directory,
                _ => NewInodeKind::Regular,
            };
            match fs.create(ROOT, name(n).as_bytes(), what, &OWNER) {
                Ok(_) => made += 1,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        // An operation on a full image succeeds or fails with `NoSpace`.
        let moved = fs.rename((ROOT, name(0).as_bytes()), (ROOT, name(made).as_bytes()), &Move::default());
        match moved {
            Ok(_) => drop(
                fs.rename((ROOT, name(made).as_bytes()), (ROOT, name(0).as_bytes()), &Move::default())
                    .unwrap(),
            ),
            Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
        }
        made
    };
    let first = fill(0);
    assert!(first > 300, "{first} names");
    // Freed space awaits a commit, which an allocation triggers if no other space is left. The renames may have taken some space.
    for n in (0..60).step_by(3) {
        fs.evict_inode(fs.unlink(ROOT, name(n).as_bytes()).unwrap().number).unwrap();
    }
    for n in (0..30).step_by(3) {
        fs.create(ROOT, name(n).as_bytes(), NewInodeKind::Symlink(&[b'l'; 900]), &OWNER).unwrap();
    }
    for n in (0..first).filter(|n| n % 3 > 0 || !(30..60).contains(n)) {
        let left = match n % 3 {
            1 => fs.remove_directory(ROOT, name(n).as_bytes()),
            _ => fs.unlink(ROOT, name(n).as_bytes()),
        };
        fs.evict_inode(left.unwrap().number).unwrap();
    }
    // The directory keeps its blocks; the renames may have added one.
    let second = fill(1);
    assert!(second + 10 >= first, "{second} names after {first}");
    fs.close().unwrap();
    image.check();
}

/// Threads create, rename and remove names in shared directories: no deadlock and no damage.
#[test]
fn many_threads_share_directories() {
    let Ok(image) = Image::make(&["-b", "1024", "-N", "8000"], 64) else { return };
    let fs = open(&image.path());
    // Nested directories, two of which must be locked in the right order.
    let mut directories = vec![ROOT];
    for name in ["below", "below", "below"] {
        let parent = directories[directories.len() - 1];
        directories.push(fs.create(parent, name.as_bytes(), NewInodeKind::Directory, &OWNER).unwrap().number);
    }
    let (engine, directories) = (&fs, &directories);
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let done = done.clone();
            scope.spawn(move || {
                let mut seed = thread + 1;
                let mut random_below = |sides: usize| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 8) as usize % sides
                };
                for _ in 0..3000 {
                    let (from, to) = (directories[random_below(4)], directories[random_below(4)]);
                    let (old, new) = (format!("{}", random_below(40)), format!("{}", random_below(40)));
                    let result = match random_below(7) {
                        0 => engine.create(from, old.as_bytes(), NewInodeKind::Directory, &OWNER).map(Some),
                        1 => engine.create(from, old.as_bytes(), NewInodeKind::Regular, &OWNER).map(Some),
                        2 => engine.unlink(from, old.as_bytes()).map(Some),
                        3 => engine.remove_directory(from, old.as_bytes()).map(Some),
                        4 => engine.rename((from, old.as_bytes()), (to, new.as_bytes()), &Move::default()),
                        5 => engine.unlink(from, b"below").map(Some),
                        _ => {
                            let how = Move { mode: RenameMode::Exchange, whiteout: None };
                            engine.rename((from, old.as_bytes()), (to, new.as_bytes()), &how)
                        }
                    };
                    match result {
                        Ok(Some(left)) if left.links == 0 => engine.evict_inode(left.number).unwrap(),
                        Ok(_) => {}
                        Err(Error::Corrupt(corruption)) => panic!("{corruption}"),
                        Err(Error::Io(error)) => panic!("{error}"),
                        Err(_) => {}
                    }
                }
                done.send(()).unwrap();
            });
        }
        drop(done);
        for _ in 0..4 {
            let timeout = std::time::Duration::from_secs(120);
            if waits.recv_timeout(timeout).is_err() {
                // A scope would wait for deadlocked threads.
                eprintln!("deadlock, or a thread failed");
                std::process::exit(1);
            }
        }
    });
    fs.close().unwrap();
    image.check();
}
