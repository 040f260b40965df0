//! Stat attributes and extended attributes.

use super::*;

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
        assert_eq!(
            lower.listxattr(id, 0, USER).unwrap(),
            XattrAnswer::Size(0),
            "trusted attributes are hidden from unprivileged callers"
        );
    }
    // The link itself, not its target.
    let link = shown.look(c"l").unwrap().id;
    lower.removexattr(link, c"trusted.shunt").unwrap();
    let file = shown.look(c"f").unwrap().id;
    assert!(lower.getxattr(file, c"trusted.shunt", 9).is_ok());
    let user = lower.setxattr(link, c"user.x", b"", 0, false).unwrap_err();
    assert_eq!(user, Errno::PERM, "the errno is that of a local file system");
    // Through an open file.
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
    let caller = Caller { uid: 0, gid: 50, group: None, pid: None };
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
fn commands_in_the_dress_of_attributes_are_refused() {
    let shown = Shown::new();
    std::fs::write(shown.path("f"), "").unwrap();
    let id = shown.look(c"f").unwrap().id;
    for name in [c"system.nfs4_acl", c"system.data", c"system.posix_acl_"] {
        assert_eq!(shown.lower.setxattr(id, name, b"x", 0, false).unwrap_err(), Errno::OPNOTSUPP);
        assert_eq!(shown.lower.removexattr(id, name).unwrap_err(), Errno::OPNOTSUPP);
    }
}
