//! Files that others rename, replace or remove while they are in use.

use super::*;

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
    assert_eq!(lower.stat(found.id, None).unwrap().stx_size, 9, "a known inode that may be open with O_PATH");
    lower.forget(found.id, 1);
    assert_eq!(lower.memory().unlinked, 0);

    let dir = lower.mkdir(NodeId::ROOT, component(c"d"), 0o755, 0, Caller::ROOT).unwrap();
    lower.rmdir(NodeId::ROOT, component(c"d")).unwrap();
    assert!(lower.stat(dir.id, None).is_ok(), "the directory may be a working directory");
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
