//! The engine on a real directory, with no mount.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;
use tempfile::TempDir;

use super::credentials::privileged;
use super::listing::DirEntry;
use super::*;

const USER: Caller = Caller { uid: 1234, gid: 2345, group: None };

/// A directory and an engine that shows it.
struct Shown {
    dir: TempDir,
    lower: Lower,
}

impl Shown {
    fn new() -> Self {
        Self::with(LowerOptions::default())
    }

    fn with(options: LowerOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lower = Lower::open(LowerOptions { source: dir.path().into(), ..options }).unwrap();
        Self { dir, lower }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn look(&self, name: &CStr) -> Result<Found, Errno> {
        self.lower.lookup(NodeId::ROOT, component(name))
    }

    fn names(&self, id: NodeId) -> Vec<(Vec<u8>, u64)> {
        let mut names = Vec::new();
        self.lower
            .list(id, None, 0, |_, entry| {
                names.push((entry.name.to_bytes().to_vec(), entry.ino));
                Ok(true)
            })
            .unwrap();
        names
    }
}

fn component(name: &CStr) -> Component<'_> {
    Component::new(name).unwrap()
}

fn needs_root() -> bool {
    if !privileged() {
        eprintln!("skipped: needs root");
    }
    !privileged()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn hard_links_share_a_node_and_other_files_do_not() {
    let shown = Shown::new();
    std::fs::write(shown.path("a"), "").unwrap();
    std::fs::hard_link(shown.path("a"), shown.path("b")).unwrap();
    std::fs::write(shown.path("c"), "").unwrap();
    let (a, b, c) = (shown.look(c"a").unwrap(), shown.look(c"b").unwrap(), shown.look(c"c").unwrap());
    assert_eq!(a.id, b.id);
    assert_ne!(a.id, c.id);
    assert_eq!(a.stat.stx_nlink, 2);
    assert_eq!(shown.lower.node_count(), 2);
    shown.lower.forget(a.id, 1);
    assert!(shown.lower.holds(a.id));
    shown.lower.forget(a.id, 1);
    assert!(!shown.lower.holds(a.id));
}

#[test]
fn inode_numbers_are_those_of_the_source_in_stat_and_listing() {
    let shown = Shown::new();
    for name in ["x", "y", "z"] {
        std::fs::write(shown.path(name), "").unwrap();
    }
    for (name, ino) in shown.names(NodeId::ROOT) {
        if name != b".." {
            let path = shown.path(std::str::from_utf8(&name).unwrap());
            assert_eq!(ino, std::fs::metadata(path).unwrap().ino());
        } else {
            assert_eq!(ino, std::fs::metadata(shown.dir.path()).unwrap().ino(), "the root is its own parent");
        }
    }
    let found = shown.look(c"x").unwrap();
    assert_eq!(found.stat.stx_ino, std::fs::metadata(shown.path("x")).unwrap().ino());
}

#[test]
fn names_may_be_any_bytes() {
    let shown = Shown::new();
    let name =
        CString::new((0..255).map(|byte| [0xff, 0xfe, b'\n', 0x80][byte % 4]).collect::<Vec<u8>>()).unwrap();
    let (made, opening) =
        shown.lower.create(NodeId::ROOT, component(&name), 1, 0o644, 0, Caller::ROOT).unwrap();
    shown.lower.close(opening.handle);
    assert_eq!(shown.look(&name).unwrap().id, made.id);
    assert!(shown.names(NodeId::ROOT).iter().any(|(listed, _)| listed == name.to_bytes()));
    let long = CString::new([b'x'; 256]).unwrap();
    assert_eq!(shown.look(&long).unwrap_err(), Errno::NAMETOOLONG);
}

#[test]
fn names_of_more_than_one_step_are_refused() {
    for name in [c"", c".", c"..", c"a/b", c"/", c"../x", c"/etc"] {
        assert_eq!(Component::new(name).unwrap_err(), Errno::INVAL);
    }
}

#[test]
fn symbolic_links_lead_nowhere() {
    let shown = Shown::new();
    symlink("/etc", shown.path("out")).unwrap();
    let link = shown.look(c"out").unwrap();
    assert_eq!(FileType::from_raw_mode(link.stat.stx_mode.into()), FileType::Symlink);
    assert_eq!(shown.lower.readlink(link.id).unwrap(), b"/etc");
    assert_eq!(shown.lower.lookup(link.id, component(c"passwd")).unwrap_err(), Errno::NOTDIR);
    assert!(shown.lower.open_file(link.id, 0, false, USER).is_err());
    assert!(shown.lower.open_dir(link.id).is_err());
    assert_eq!(
        shown.lower.mkdir(link.id, component(c"made"), 0o755, 0, Caller::ROOT).unwrap_err(),
        Errno::NOTDIR
    );
    // A name that exists already, as a link to the outside, is not created through.
    let result = shown.lower.create(NodeId::ROOT, component(c"out"), 1, 0o644, 0, Caller::ROOT);
    assert_eq!(result.unwrap_err(), Errno::STALE);
    std::fs::write(shown.path("file"), "").unwrap();
    let file = shown.look(c"file").unwrap();
    assert_eq!(shown.lower.readlink(file.id).unwrap_err(), Errno::INVAL);
}

#[test]
fn a_name_that_flips_to_a_link_is_never_followed() {
    let shown = Shown::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "").unwrap();
    let (name, link, spare) = (shown.path("d"), shown.path("link"), shown.path("spare"));
    std::fs::create_dir(&name).unwrap();
    symlink(outside.path(), &link).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stopped = &stop;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::rename(&name, &spare).unwrap();
                std::fs::rename(&link, &name).unwrap();
                std::fs::rename(&name, &link).unwrap();
                std::fs::rename(&spare, &name).unwrap();
            }
        });
        for _ in 0..3000 {
            if let Ok(found) = shown.look(c"d") {
                let secret = shown.lower.lookup(found.id, component(c"secret"));
                assert!(matches!(secret, Err(Errno::NOENT | Errno::NOTDIR)), "{secret:?}");
                shown.lower.forget(found.id, 1);
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn forged_ids_and_handles_are_errors() {
    let shown = Shown::new();
    let lower = &shown.lower;
    for id in [0, 2, 3, 33, 1 << 20, 1 << 32 | 1, u64::MAX, u64::MAX - 1].map(NodeId) {
        assert_eq!(lower.stat(id, None).unwrap_err(), Errno::STALE);
        assert_eq!(lower.lookup(id, component(c"x")).unwrap_err(), Errno::STALE);
        assert_eq!(lower.open_file(id, 0, false, USER).unwrap_err(), Errno::STALE);
        assert_eq!(lower.list(id, None, 0, |_, _| Ok(true)).unwrap_err(), Errno::STALE);
        assert_eq!(lower.readlink(id).unwrap_err(), Errno::STALE);
        lower.forget(id, u64::MAX);
    }
    for handle in [0, 1, u64::MAX] {
        assert_eq!(lower.file(handle).unwrap_err(), Errno::BADF);
        assert_eq!(lower.file(handle).map(|_| ()).unwrap_err(), Errno::BADF);
        assert!(lower.list(NodeId::ROOT, Some(handle), 0, |_, _| Ok(true)).is_err());
        lower.close(handle);
        lower.close_dir(handle);
    }
    assert!(lower.stat(NodeId::ROOT, Some(9)).is_ok());
    assert!(lower.list(NodeId::ROOT, None, u64::MAX, |_, _| Ok(true)).is_err());
}

#[test]
fn a_listing_goes_on_without_names_that_went_meanwhile() {
    let shown = Shown::new();
    let path = |i: u32| shown.dir.path().join(format!("{i:0>4}"));
    (0..200).for_each(|i| std::fs::write(path(i), b"").unwrap());
    let (mut names, mut next) = (Vec::new(), 0);
    let mut some = |names: &mut Vec<Vec<u8>>, most: usize| {
        let mut left = most;
        let cookie = next;
        let take = |_: BorrowedFd<'_>, entry: DirEntry<'_>| {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            names.push(entry.name.to_bytes().to_vec());
            next = entry.next;
            Ok(true)
        };
        shown.lower.list(NodeId::ROOT, None, cookie, take).unwrap();
    };
    some(&mut names, 50);
    // All of the directory is read ahead by now.
    let seen: HashSet<Vec<u8>> = names.iter().cloned().collect();
    let all: Vec<String> = (0..200).map(|i| format!("{i:0>4}")).collect();
    let (kept, gone): (Vec<_>, Vec<_>) = all.iter().partition(|name| seen.contains(name.as_bytes()));
    for name in gone.iter().skip(1) {
        let name = CString::new(name.as_str()).unwrap();
        shown.lower.unlink(NodeId::ROOT, component(&name)).unwrap();
    }
    names.clear();
    some(&mut names, 500);
    let names: Vec<_> = names.iter().filter(|name| !matches!(&name[..], b"." | b"..")).collect();
    assert_eq!(names, [gone[0].as_bytes()], "{} were listed before", kept.len());
}

#[test]
fn what_a_caller_makes_is_the_callers() {
    if needs_root() {
        return;
    }
    let shown = Shown::new();
    // Nobody but root may enter: permissions are for the asking side to judge.
    std::fs::set_permissions(shown.dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let lower = &shown.lower;
    let (found, _) = lower.create(NodeId::ROOT, component(c"f"), 2, 0o666, 0o027, USER).unwrap();
    assert_eq!((found.stat.stx_uid, found.stat.stx_gid), (1234, 2345));
    assert_eq!(found.stat.stx_mode & 0o7777, 0o640);
    let dir = lower.mkdir(NodeId::ROOT, component(c"d"), 0o777, 0o002, USER).unwrap();
    assert_eq!((dir.stat.stx_uid, dir.stat.stx_mode & 0o7777), (1234, 0o775));
    let link = lower.symlink(NodeId::ROOT, component(c"l"), c"anywhere", USER).unwrap();
    assert_eq!(link.stat.stx_gid, 2345);
    let node = lower.mknod(NodeId::ROOT, component(c"n"), 0o020600, (1, 3), 0, USER).unwrap();
    assert_eq!((node.stat.stx_rdev_major, node.stat.stx_rdev_minor, node.stat.stx_uid), (1, 3, 1234));
    let file = std::fs::File::open(shown.path("f")).unwrap();
    assert_eq!(file.metadata().unwrap().uid(), 1234);
    // And the next one is root's again.
    let found = lower.mkdir(NodeId::ROOT, component(c"r"), 0o755, 0, Caller::ROOT).unwrap();
    assert_eq!((found.stat.stx_uid, found.stat.stx_gid), (0, 0));
}

#[test]
fn setgid_directories_hand_their_group_down() {
    if needs_root() {
        return;
    }
    let shown = Shown::new();
    let dir = shown.path("d");
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(1234), Some(77)).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o2775)).unwrap();
    let parent = shown.look(c"d").unwrap();
    let sub = shown.lower.mkdir(parent.id, component(c"sub"), 0o755, 0, USER).unwrap();
    assert_eq!((sub.stat.stx_gid, sub.stat.stx_mode & 0o7777), (77, 0o2755));
    // The bit was for the asking side to drop: what still has it may have it.
    let caller = Caller { group: Some(77), ..USER };
    let (file, _) = shown.lower.create(parent.id, component(c"f"), 1, 0o2755, 0, caller).unwrap();
    assert_eq!((file.stat.stx_gid, file.stat.stx_mode & 0o7777), (77, 0o2755));
}

#[test]
fn writes_clear_setuid_unless_told_otherwise() {
    if needs_root() {
        return;
    }
    let shown = Shown::new();
    let path = shown.path("f");
    let lower = &shown.lower;
    let setuid = || {
        let _keep = credentials::KeepSetid::when(true).unwrap();
        std::fs::write(&path, "data").unwrap();
        std::os::unix::fs::chown(&path, Some(1234), Some(2345)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).unwrap();
    };
    setuid();
    let found = shown.look(c"f").unwrap();
    let opening = lower.open_file(found.id, 2, false, USER).unwrap();
    let write = |kill| {
        lower
            .writing(opening.file.as_fd(), kill, Caller { uid: 1000, gid: 1000, group: None }, || {
                rustix::io::pwrite(opening.file.as_fd(), b"x", 0)
            })
            .unwrap();
        mode(&path)
    };
    assert_eq!(write(false), 0o6777, "root's own write");
    assert_eq!(write(true), 0o777, "anybody's write");

    let resize = |kill_setid| {
        setuid();
        let changes = Changes { size: Some(2), kill_setid, ..Changes::default() };
        lower.change(found.id, &changes, USER).unwrap();
        mode(&path)
    };
    assert_eq!((resize(false), resize(true)), (0o6777, 0o777));

    let open = |kill| {
        setuid();
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::TRUNC;
        lower.close(lower.open_file(found.id, flags.bits(), kill, USER).unwrap().handle);
        mode(&path)
    };
    assert_eq!((open(false), open(true)), (0o6777, 0o777));

    let fallocate = |caller| {
        setuid();
        lower.fallocate(opening.file.as_fd(), 0, 0, 100, caller, || false).unwrap();
        mode(&path)
    };
    assert_eq!((fallocate(Caller::ROOT), fallocate(USER)), (0o6777, 0o777));

    setuid();
    let changes = Changes { uid: Some(5), ..Changes::default() };
    assert_eq!(lower.change(found.id, &changes, Caller::ROOT).unwrap().stx_mode & 0o7777, 0o777, "chown");
    let changes = Changes { mode: Some(0o6755), ..Changes::default() };
    assert_eq!(lower.change(found.id, &changes, USER).unwrap().stx_mode & 0o7777, 0o6755, "chmod");
}

#[test]
fn writes_clear_file_capabilities() {
    if needs_root() {
        return;
    }
    let shown = Shown::new();
    std::fs::write(shown.path("f"), "data").unwrap();
    let found = shown.look(c"f").unwrap();
    // cap_net_raw, effective: revision 2.
    let capability: Vec<u8> =
        [0x0200_0001u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let name = c"security.capability";
    let lower = &shown.lower;
    let has = || lower.getxattr(found.id, name, 100).is_ok();
    let set = || lower.setxattr(found.id, name, &capability, 0, false).unwrap();
    set();
    assert!(has());
    let opening = lower.open_file(found.id, 2, false, USER).unwrap();
    lower
        .writing(opening.file.as_fd(), true, Caller { uid: 1000, gid: 1000, group: None }, || {
            rustix::io::pwrite(opening.file.as_fd(), b"x", 0)
        })
        .unwrap();
    assert!(!has(), "write");
    set();
    lower.change(found.id, &Changes { gid: Some(3), ..Changes::default() }, Caller::ROOT).unwrap();
    assert!(!has(), "chown");
    set();
    lower.change(found.id, &Changes { size: Some(0), kill_setid: true, ..Changes::default() }, USER).unwrap();
    assert!(!has(), "truncate");
}

#[test]
fn files_without_a_name_stay_reachable_while_open_and_while_known() {
    let shown = Shown::new();
    let lower = &shown.lower;
    let (found, opening) = lower.create(NodeId::ROOT, component(c"f"), 2, 0o600, 0, Caller::ROOT).unwrap();
    lower.unlink(NodeId::ROOT, component(c"f")).unwrap();
    assert_eq!(lower.stat(found.id, None).unwrap().stx_nlink, 0);
    lower.change(found.id, &Changes { size: Some(9), ..Changes::default() }, Caller::ROOT).unwrap();
    let again = lower.open_file(found.id, 0, false, USER).unwrap();
    lower.close(opening.handle);
    lower.close(again.handle);
    assert_eq!(lower.stat(found.id, None).unwrap().stx_size, 9, "known, and somebody may hold it O_PATH");
    lower.forget(found.id, 1);
    assert_eq!(lower.memory().nameless, 0);

    let dir = lower.mkdir(NodeId::ROOT, component(c"d"), 0o755, 0, Caller::ROOT).unwrap();
    lower.rmdir(NodeId::ROOT, component(c"d")).unwrap();
    assert!(lower.stat(dir.id, None).is_ok(), "somebody may be in it");
    assert_eq!(lower.lookup(dir.id, component(c"x")).unwrap_err(), Errno::NOENT);
    lower.forget(dir.id, 1);

    let (found, opening) = lower.tmpfile(NodeId::ROOT, 2, 0o600, 0, Caller::ROOT).unwrap();
    assert_eq!(lower.stat(found.id, None).unwrap().stx_nlink, 0);
    let named = lower.link(found.id, NodeId::ROOT, component(c"named")).unwrap();
    assert_eq!((named.id, named.stat.stx_nlink), (found.id, 1));
    lower.close(opening.handle);
    assert_eq!(shown.look(c"named").unwrap().id, found.id);
}

#[test]
fn a_file_replaced_by_rename_stays_reachable() {
    let shown = Shown::new();
    let lower = &shown.lower;
    std::fs::write(shown.path("old"), "old").unwrap();
    std::fs::write(shown.path("new"), "newer").unwrap();
    let (old, new) = (shown.look(c"old").unwrap(), shown.look(c"new").unwrap());
    let (from, to) = (component(c"new"), component(c"old"));
    assert_eq!(lower.rename(NodeId::ROOT, from, NodeId::ROOT, to, 1).unwrap_err(), Errno::EXIST);
    lower.rename(NodeId::ROOT, from, NodeId::ROOT, to, 2).unwrap();
    lower.rename(NodeId::ROOT, from, NodeId::ROOT, to, 2).unwrap();
    lower.rename(NodeId::ROOT, from, NodeId::ROOT, to, 0).unwrap();
    assert_eq!(lower.stat(old.id, None).unwrap().stx_nlink, 0);
    assert_eq!(shown.look(c"old").unwrap().id, new.id);
    assert_eq!(lower.rename(NodeId::ROOT, from, NodeId::ROOT, to, 0x100).unwrap_err(), Errno::INVAL);
}

#[test]
fn concurrent_renames_and_lookups_agree() {
    let shown = Shown::new();
    let lower = &shown.lower;
    let mut inos = HashMap::new();
    for name in ["a", "b"] {
        std::fs::create_dir(shown.path(name)).unwrap();
        std::fs::write(shown.path(name).join("f"), name).unwrap();
        inos.insert(std::fs::metadata(shown.path(name).join("f")).unwrap().ino(), ());
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                lower.rename(NodeId::ROOT, component(c"a"), NodeId::ROOT, component(c"b"), 2).unwrap();
            }
        });
        for _ in 0..2000 {
            let dir = shown.look(c"a").unwrap();
            let file = lower.lookup(dir.id, component(c"f")).unwrap();
            assert!(inos.contains_key(&file.stat.stx_ino));
            lower.forget(file.id, 1);
            lower.forget(dir.id, 1);
        }
    });
    assert_eq!(lower.node_count(), 0);
}

#[test]
fn a_race_to_create_is_decided_by_the_asking_side() {
    let shown = Shown::new();
    std::fs::write(shown.path("f"), "").unwrap();
    let create = |flags: rustix::fs::OFlags| {
        shown.lower.create(NodeId::ROOT, component(c"f"), flags.bits(), 0o644, 0, USER).unwrap_err()
    };
    assert_eq!(create(rustix::fs::OFlags::RDWR), Errno::STALE);
    assert_eq!(create(rustix::fs::OFlags::RDWR | rustix::fs::OFlags::EXCL), Errno::EXIST);
}

#[test]
fn only_regular_files_are_opened() {
    let shown = Shown::new();
    let pipe = shown.lower.mknod(NodeId::ROOT, component(c"p"), 0o010644, (0, 0), 0, Caller::ROOT).unwrap();
    assert_eq!(shown.lower.open_file(pipe.id, 0, false, USER).unwrap_err(), Errno::NXIO);
}

#[test]
fn attributes_are_set_without_opening() {
    if needs_root() {
        return;
    }
    let shown = Shown::new();
    symlink("x", shown.path("l")).unwrap();
    std::fs::write(shown.path("f"), "").unwrap();
    for name in [c"l", c"f"] {
        let found = shown.look(name).unwrap();
        let changes = Changes {
            uid: Some(7),
            gid: Some(8),
            atime: Some(NewTime::At(-5, 999_999_999)),
            mtime: Some(NewTime::At(1 << 33, 1)),
            ..Changes::default()
        };
        let stat = shown.lower.change(found.id, &changes, Caller::ROOT).unwrap();
        assert_eq!((stat.stx_uid, stat.stx_gid), (7, 8));
        assert_eq!((stat.stx_atime.tv_sec, stat.stx_atime.tv_nsec), (-5, 999_999_999));
        assert_eq!((stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec), (1 << 33, 1));
    }
    let found = shown.look(c"f").unwrap();
    let changes = Changes { mode: Some(0o4711), mtime: Some(NewTime::Now), ..Changes::default() };
    let stat = shown.lower.change(found.id, &changes, Caller::ROOT).unwrap();
    assert_eq!(stat.stx_mode & 0o7777, 0o4711);
    assert!(stat.stx_mtime.tv_sec > 1_700_000_000 && stat.stx_mtime.tv_sec < 1 << 33);
}

#[test]
fn extended_attributes_of_all_kinds_of_inodes() {
    if needs_root() {
        return;
    }
    let shown = Shown::new();
    let lower = &shown.lower;
    std::fs::write(shown.path("f"), "").unwrap();
    std::fs::create_dir(shown.path("d")).unwrap();
    symlink("f", shown.path("l")).unwrap();
    for name in [c"f", c"d", c"l"] {
        let id = shown.look(name).unwrap().id;
        let key = c"trusted.shunt";
        assert_eq!(lower.getxattr(id, key, 100).unwrap_err(), Errno::NODATA);
        lower.setxattr(id, key, b"value", 1, false).unwrap();
        assert_eq!(lower.setxattr(id, key, b"value", 1, false).unwrap_err(), Errno::EXIST);
        assert_eq!(lower.getxattr(id, key, 0).unwrap(), XattrAnswer::Size(5));
        assert_eq!(lower.getxattr(id, key, 4).unwrap_err(), Errno::RANGE);
        assert_eq!(lower.getxattr(id, key, 100).unwrap(), XattrAnswer::Bytes(b"value".to_vec()));
        assert_eq!(
            lower.listxattr(id, 100, Caller::ROOT).unwrap(),
            XattrAnswer::Bytes(b"trusted.shunt\0".to_vec())
        );
        assert_eq!(lower.listxattr(id, 0, USER).unwrap(), XattrAnswer::Size(0), "not for everybody");
    }
    // The link itself, not what it leads to.
    let link = shown.look(c"l").unwrap().id;
    lower.removexattr(link, c"trusted.shunt").unwrap();
    let file = shown.look(c"f").unwrap().id;
    assert!(lower.getxattr(file, c"trusted.shunt", 9).is_ok());
    let user = lower.setxattr(link, c"user.x", b"", 0, false).unwrap_err();
    assert_eq!(user, Errno::PERM, "as on any file system");
    // And through an open file.
    let opening = lower.open_file(file, 0, false, USER).unwrap();
    lower.setxattr(file, c"user.x", b"y", 0, false).unwrap();
    assert_eq!(lower.getxattr(file, c"user.x", 9).unwrap(), XattrAnswer::Bytes(b"y".to_vec()));
    lower.removexattr(file, c"user.x").unwrap();
    lower.close(opening.handle);
}

#[test]
fn ids_are_shown_under_other_numbers() {
    if needs_root() {
        return;
    }
    let ids = IdMaps { users: "1234:0,0:1234".parse().unwrap(), groups: "2345:50".parse().unwrap() };
    let shown = Shown::with(LowerOptions { ids, ..LowerOptions::default() });
    let caller = Caller { uid: 0, gid: 50, group: None };
    let made = shown.lower.mkdir(NodeId::ROOT, component(c"d"), 0o755, 0, caller).unwrap();
    assert_eq!((made.stat.stx_uid, made.stat.stx_gid), (0, 50));
    let lower = std::fs::metadata(shown.path("d")).unwrap();
    assert_eq!((lower.uid(), lower.gid()), (1234, 2345));
    let changes = Changes { uid: Some(1234), ..Changes::default() };
    assert_eq!(shown.lower.change(made.id, &changes, Caller::ROOT).unwrap().stx_uid, 1234);
    assert_eq!(std::fs::metadata(shown.path("d")).unwrap().uid(), 0);
}

#[test]
fn a_read_only_view_changes_nothing() {
    let shown = Shown::with(LowerOptions { read_only: true, ..LowerOptions::default() });
    std::fs::write(shown.path("f"), "").unwrap();
    let found = shown.look(c"f").unwrap();
    let lower = &shown.lower;
    assert_eq!(lower.open_file(found.id, 1, false, USER).unwrap_err(), Errno::ROFS);
    assert!(lower.open_file(found.id, 0, false, USER).is_ok());
    let mkdir = lower.mkdir(NodeId::ROOT, component(c"d"), 0o755, 0, Caller::ROOT);
    assert_eq!(mkdir.unwrap_err(), Errno::ROFS);
    assert_eq!(lower.unlink(NodeId::ROOT, component(c"f")).unwrap_err(), Errno::ROFS);
    let changes = Changes { mode: Some(0), ..Changes::default() };
    assert_eq!(lower.change(found.id, &changes, Caller::ROOT).unwrap_err(), Errno::ROFS);
}

#[test]
fn many_nodes_cost_few_descriptors_and_little_memory() {
    let shown = Shown::new();
    if !shown.lower.has_handles() {
        eprintln!("skipped: no file handles here");
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let nodes = 20_000;
    for number in 0..nodes / 10 {
        let dir = CString::new(format!("d{number}")).unwrap();
        let dir = shown.lower.mkdir(NodeId::ROOT, component(&dir), 0o755, 0, Caller::ROOT).unwrap();
        for number in 1..10 {
            let name = CString::new(format!("f{number}")).unwrap();
            shown.lower.mknod(dir.id, component(&name), 0o100644, (0, 0), 0, Caller::ROOT).unwrap();
        }
    }
    let memory = shown.lower.memory();
    assert_eq!(memory.nodes, nodes);
    // Other tests run meanwhile.
    assert!(descriptors() < before + shown.lower.limits.dirs + 200);
    let per_node = memory.node_bytes / nodes;
    println!("{per_node} bytes per node");
    assert!(per_node <= 110, "{per_node}");
}

#[test]
fn inodes_are_held_by_descriptor_where_handles_do_not_work() {
    if !Path::new("/proc/self").exists() {
        return;
    }
    // FAT and FUSE are tested on mounts; here a file system without handles at all.
    let lower = Lower::open(LowerOptions { source: "/proc/self".into(), ..LowerOptions::default() }).unwrap();
    if lower.has_handles() {
        eprintln!("skipped: /proc has file handles");
        return;
    }
    assert!(lower.node_limit().is_some());
    let found = lower.lookup(NodeId::ROOT, component(c"status")).unwrap();
    assert!(lower.stat(found.id, None).is_ok());
    let opening = lower.open_file(found.id, 0, false, USER).unwrap();
    let mut bytes = [0; 5];
    rustix::io::pread(opening.file.as_fd(), &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"Name:");
    assert_eq!(lower.lookup(NodeId::ROOT, component(c"status")).unwrap().id, found.id);
    // A magic link is a link: it is not followed out of the source.
    let root = lower.lookup(NodeId::ROOT, component(c"root")).unwrap();
    assert_eq!(lower.lookup(root.id, component(c"etc")).unwrap_err(), Errno::NOTDIR);
}

#[test]
fn what_is_mounted_later_is_not_seen() {
    if needs_root() {
        return;
    }
    let shown = Shown::new();
    if shown.lower.attached().is_some() {
        eprintln!("skipped: no private view");
        return;
    }
    std::fs::write(shown.path("f"), "").unwrap();
    // In a mount namespace of its own, so that nothing stays behind whatever happens.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sys::unshare_fs().unwrap();
            // SAFETY: this thread's own mount namespace; no descriptor changes its meaning.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
            let private =
                rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
            rustix::mount::mount_change("/", private).unwrap();
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("tmpfs", shown.dir.path(), "tmpfs", flags, None::<&CStr>).unwrap();
            assert!(!shown.path("f").exists());
            assert!(shown.look(c"f").is_ok(), "the source is still what it was");
        });
    });
}

/// Setgid without group execution marks no program: it stays when a member of the group, as the source has it, writes.
#[test]
fn members_keep_setgid_without_execution() {
    if needs_root() {
        return;
    }
    let ids = IdMaps { groups: "2345:50".parse().unwrap(), ..IdMaps::default() };
    let shown = Shown::with(LowerOptions { ids, ..LowerOptions::default() });
    let lower = &shown.lower;
    let path = shown.path("f");
    std::fs::write(&path, "data").unwrap();
    std::os::unix::fs::chown(&path, Some(1), Some(2345)).unwrap();
    let found = shown.look(c"f").unwrap();
    let (member, other) = (Caller { gid: 50, ..USER }, Caller { gid: 60, ..USER });
    for (caller, kept) in [(member, 0o2000), (other, 0)] {
        let marked = || {
            let _keep = credentials::KeepSetid::when(true).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o2766)).unwrap();
        };
        let setgid = || mode(&path) & 0o2000;
        marked();
        let changes = Changes { size: Some(2), kill_setid: true, ..Changes::default() };
        lower.change(found.id, &changes, caller).unwrap();
        assert_eq!(setgid(), kept, "truncate");
        marked();
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::TRUNC;
        let opening = lower.open_file(found.id, flags.bits(), true, caller).unwrap();
        assert_eq!(setgid(), kept, "O_TRUNC");
        marked();
        lower
            .writing(opening.file.as_fd(), true, caller, || rustix::io::pwrite(opening.file.as_fd(), b"x", 0))
            .unwrap();
        assert_eq!(setgid(), kept, "write");
        lower.close(opening.handle);
    }
}

#[test]
fn commands_in_the_dress_of_attributes_are_refused() {
    let shown = Shown::new();
    std::fs::write(shown.path("f"), "").unwrap();
    let id = shown.look(c"f").unwrap().id;
    for name in [c"system.nfs4_acl", c"system.data", c"system.posix_acl_"] {
        assert_eq!(shown.lower.setxattr(id, name, b"x", 0, false).unwrap_err(), Errno::OPNOTSUPP);
        assert_eq!(shown.lower.removexattr(id, name).unwrap_err(), Errno::OPNOTSUPP);
    }
}
