//! Ownership, modes, and the attributes that a write clears.

use super::*;

#[test]
fn created_file_belongs_to_the_caller() {
    if needs_root() {
        return;
    }
    let shown = Shown::new();
    // Only root may enter: checking permissions is the client's task.
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
    // The next file belongs to root again.
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
    // The client clears the bit if necessary: a mode that still has it is set as it is.
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
            .writing(
                opening.file.as_fd(),
                kill,
                Caller { uid: 1000, gid: 1000, group: None, pid: None },
                || rustix::io::pwrite(opening.file.as_fd(), b"x", 0),
            )
            .unwrap();
        mode(&path)
    };
    assert_eq!(write(false), 0o6777, "root's own write");
    assert_eq!(write(true), 0o777, "write of another user");

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
        .writing(opening.file.as_fd(), true, Caller { uid: 1000, gid: 1000, group: None, pid: None }, || {
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

/// Setgid without group execution does not mark a program: it stays when a member of the file's group on the source
/// writes.
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
