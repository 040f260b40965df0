//! Names, links and listings.

use super::*;

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
    assert!(shown.lower.open_dir(link.id, USER).is_err());
    assert_eq!(
        shown.lower.mkdir(link.id, component(c"made"), 0o755, 0, Caller::ROOT).unwrap_err(),
        Errno::NOTDIR
    );
    // A create must not follow an existing name that is a link to the outside.
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
    let mut some = |names: &mut Vec<Vec<u8>>, limit: usize| {
        let mut left = limit;
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
    // The whole directory is already buffered.
    let seen: HashSet<Vec<u8>> = names.iter().cloned().collect();
    let all: Vec<String> = (0..200).map(|i| format!("{i:0>4}")).collect();
    let (listed, unlisted): (Vec<_>, Vec<_>) = all.iter().partition(|name| seen.contains(name.as_bytes()));
    for name in unlisted.iter().skip(1) {
        let name = CString::new(name.as_str()).unwrap();
        shown.lower.unlink(NodeId::ROOT, component(&name)).unwrap();
    }
    names.clear();
    some(&mut names, 500);
    let names: Vec<_> = names.iter().filter(|name| !matches!(&name[..], b"." | b"..")).collect();
    assert_eq!(names, [unlisted[0].as_bytes()], "{} were listed before", listed.len());
}
