//! Ids that outlive the engine's node table, on each file system that can be mounted here.

use std::ffi::CStr;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use tempfile::TempDir;

use super::credentials::privileged;
use super::node_id::Ident;
use super::*;

/// Directories for sources: on the machine's disk (usually ext4) and on a tmpfs.
fn source_dirs() -> Vec<TempDir> {
    if !privileged() {
        eprintln!("skipped: needs root");
        return Vec::new();
    }
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    vec![tempfile::tempdir().unwrap(), shm]
}

fn engine(source: &Path, resumes: bool) -> Lower {
    Lower::open(LowerOptions { source: source.into(), resumes, ..LowerOptions::default() }).unwrap()
}

fn component(name: &CStr) -> Component<'_> {
    Component::new(name).unwrap()
}

fn look(lower: &Lower, parent: NodeId, name: &CStr) -> NodeId {
    lower.lookup(parent, component(name)).unwrap().id
}

/// A tree with one inode of each kind: `d/e/f`, `d/link`, `d/pipe`, and `outside` next to the source.
fn tree(dir: &Path) -> PathBuf {
    let source = dir.join("source");
    std::fs::create_dir_all(source.join("d/e")).unwrap();
    std::fs::write(source.join("d/e/f"), "inside").unwrap();
    symlink("/etc", source.join("d/link")).unwrap();
    assert!(Command::new("mkfifo").arg(source.join("d/pipe")).status().unwrap().success());
    std::fs::create_dir(dir.join("outside")).unwrap();
    std::fs::write(dir.join("outside/secret"), "outside").unwrap();
    source
}

/// Returns all ids of the tree, from the top.
fn ids(lower: &Lower) -> Vec<NodeId> {
    let d = look(lower, NodeId::ROOT, c"d");
    let e = look(lower, d, c"e");
    vec![d, e, look(lower, e, c"f"), look(lower, d, c"link"), look(lower, d, c"pipe")]
}

#[test]
fn a_new_engine_serves_ids_of_the_previous_one() {
    for dir in source_dirs() {
        let source = tree(dir.path());
        let first = engine(&source, false);
        let before = ids(&first);
        let inos: Vec<_> = before.iter().map(|&id| first.stat(id, None).unwrap().stx_ino).collect();
        drop(first);
        let lower = engine(&source, true);
        for (&id, &ino) in before.iter().zip(&inos) {
            assert!(!lower.holds(id));
            assert_eq!(lower.stat(id, None).unwrap().stx_ino, ino);
            assert!(lower.holds(id), "the inode is kept until FORGET");
            lower.forget(id, 3);
            assert!(!lower.holds(id));
        }
        let [d, e, f, link, pipe] = before[..] else { unreachable!() };
        assert_eq!(look(&lower, e, c"f"), f, "the id stays the same");
        lower.list(d, None, 0, |_, _| Ok(true)).unwrap();
        assert_eq!(lower.readlink(link).unwrap(), b"/etc");
        let opening = lower.open_file(f, 2, false, Caller::ROOT).unwrap();
        assert_eq!(opening.file.node, f);
        lower.close(opening.handle);
        assert_eq!(lower.open_file(pipe, 0, false, Caller::ROOT).unwrap_err(), Errno::NXIO);
        lower.mkdir(e, component(c"made"), 0o755, 0, Caller::ROOT).unwrap();
        lower.rename(d, component(c"e"), NodeId::ROOT, component(c"moved"), 0).unwrap();
        assert_eq!(look(&lower, NodeId::ROOT, c"moved"), e, "a rename changes no id");
        assert_eq!(look(&lower, e, c"f"), f);
    }
}

#[test]
fn forgotten_inode_is_found_by_its_id_and_its_directory() {
    for dir in source_dirs() {
        let source = tree(dir.path());
        let lower = engine(&source, false);
        for id in ids(&lower) {
            lower.forget(id, 1);
            assert!(!lower.holds(id));
            let found = lower.reconnect(id).unwrap();
            assert_eq!(found.id, id);
            assert!(lower.holds(id), "the reconnected inode has a lookup count");
            lower.forget(id, 1);
        }
        assert!(lower.nodes.is_empty());
        let [d, e, f, ..] = ids(&lower)[..] else { unreachable!() };
        assert_eq!(lower.parent(e).unwrap().id, d);
        assert_eq!(lower.parent(d).unwrap().id, NodeId::ROOT);
        assert_eq!(lower.parent(NodeId::ROOT).unwrap().id, NodeId::ROOT);
        assert_eq!(lower.reconnect(NodeId::ROOT).unwrap().id, NodeId::ROOT);
        assert_eq!(lower.parent(f).unwrap_err(), Errno::NOTDIR);
    }
}

#[test]
fn inode_dropped_by_the_lower_kernel_is_found_in_its_last_directory() {
    let turn = shunt_test_support::memory::drop_at_will();
    for dir in source_dirs() {
        let source = tree(dir.path());
        let lower = engine(&source, false);
        let all = ids(&lower);
        let [d, e, f, link, pipe] = all[..] else { unreachable!() };
        lower.rename(d, component(c"link"), e, component(c"moved"), 0).unwrap();
        lower.rename(d, component(c"e"), NodeId::ROOT, component(c"up"), 0).unwrap();
        let (made, opening) = lower.create(d, component(c"new"), 2, 0o644, 0, Caller::ROOT).unwrap();
        lower.close(opening.handle);
        for id in [d, e, f, link, pipe, made.id] {
            lower.forget(id, 9);
            turn.forget_names();
            assert_eq!(lower.reconnect(id).unwrap().id, id);
            lower.forget(id, 9);
        }
        // The file moves within the source without the engine's knowledge, and then its directory moves out of the
        // source.
        std::fs::rename(source.join("d/pipe"), source.join("pipe")).unwrap();
        std::fs::rename(source.join("d"), dir.path().join("outside/d")).unwrap();
        turn.forget_names();
        assert_eq!(lower.reconnect(made.id).unwrap_err(), Errno::STALE);
        look(&lower, NodeId::ROOT, c"pipe");
        lower.forget(pipe, 9);
        turn.forget_names();
        assert_eq!(lower.reconnect(pipe).unwrap().id, pipe);
    }
}

#[test]
fn inode_never_looked_up_is_found_by_a_search() {
    let turn = shunt_test_support::memory::drop_at_will();
    for dir in source_dirs() {
        let source = tree(dir.path());
        std::fs::hard_link(source.join("d/e/f"), source.join("d/more")).unwrap();
        let all = ids(&engine(&source, false));
        let lower = engine(&source, false);
        let secret = forged(&dir.path().join("outside/secret"));
        std::fs::remove_file(source.join("d/e/f")).unwrap();
        turn.forget_names();
        let lost: Vec<_> =
            all.iter().chain([&secret]).copied().filter(|&id| lower.reconnect(id).is_err()).collect();
        let searched: Vec<_> = lost.iter().copied().filter(|&id| lower.is_worth_a_search(id)).collect();
        lower.search(&searched, |_| true);
        turn.forget_names();
        for id in all {
            assert_eq!(lower.reconnect(id).unwrap().id, id);
        }
        assert_eq!(lower.reconnect(secret).unwrap_err(), Errno::STALE);
        assert!(!lower.is_where_noted(secret));
    }
}

/// The handles are resolved one by one: each search ends once it has found its inode.
#[test]
fn each_of_many_files_is_found_again() {
    let turn = shunt_test_support::memory::drop_at_will();
    for dir in source_dirs() {
        let source = tree(dir.path());
        (0..300).for_each(|n| std::fs::write(source.join(format!("d/{n}")), "").unwrap());
        let ids: Vec<_> = (0..300).map(|n| forged(&source.join(format!("d/{n}")))).collect();
        let lower = engine(&source, false);
        turn.forget_names();
        for (n, id) in ids.into_iter().enumerate() {
            if lower.reconnect(id).is_err() {
                assert!(n == 0, "the first walk noted all inodes");
                lower.search(&[id], |left| left > 0);
                assert_eq!(lower.reconnect(id).unwrap().id, id);
            }
        }
    }
}

#[test]
fn deleted_inodes_are_stale_and_linked_ones_are_not() {
    for dir in source_dirs() {
        let source = tree(dir.path());
        let lower = engine(&source, false);
        let [d, e, f, ..] = ids(&lower)[..] else { unreachable!() };
        lower.link(f, d, component(c"more")).unwrap();
        lower.unlink(e, component(c"f")).unwrap();
        lower.forget(f, 9);
        assert_eq!(lower.reconnect(f).unwrap().id, f, "the inode is found by its other name");
        lower.unlink(d, component(c"more")).unwrap();
        assert_eq!(
            lower.reconnect(f).unwrap_err(),
            Errno::STALE,
            "an inode without a name is stale, even while it is known"
        );
        lower.forget(f, 9);
        assert_eq!(lower.reconnect(f).unwrap_err(), Errno::STALE);
        lower.rmdir(d, component(c"e")).unwrap();
        assert_eq!(lower.reconnect(e).unwrap_err(), Errno::STALE);
        lower.forget(e, 9);
        assert_eq!(lower.reconnect(e).unwrap_err(), Errno::STALE);
    }
}

/// Returns the id that an inode would have if it were below the source.
fn forged(path: &Path) -> NodeId {
    let file =
        rustix::fs::openat(rustix::fs::CWD, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap();
    let handle = handle::FileHandle::of(file.as_fd()).unwrap();
    let ino = std::fs::symlink_metadata(path).unwrap().ino();
    let (_, generation) = codec::Codec::of(&handle, ino).unwrap();
    Ident { mount: 0, ino, generation }.id().unwrap()
}

#[test]
fn forged_id_outside_the_source_gives_estale() {
    for dir in source_dirs() {
        let source = tree(dir.path());
        let lower = engine(&source, false);
        // Forging works: the id of an inode inside is valid.
        assert_eq!(lower.reconnect(forged(&source.join("d/e/f"))).unwrap().id, ids(&lower)[2]);
        let device = std::fs::metadata(&source).unwrap().dev();
        let same = |path: &&Path| std::fs::metadata(path).unwrap().dev() == device;
        let top = source.ancestors().take_while(same).last().unwrap();
        let siblings = ["", "outside", "outside/secret"].map(|name| dir.path().join(name));
        let outside = [top.to_owned()].into_iter().chain(siblings).collect::<Vec<_>>();
        for path in outside.iter().chain([&source]) {
            let id = forged(path);
            assert_eq!(lower.reconnect(id).unwrap_err(), Errno::STALE, "{}", path.display());
            assert_eq!(lower.stat(id, None).unwrap_err(), Errno::STALE, "{}", path.display());
            assert!(lower.open_file(id, 0, false, Caller::ROOT).is_err());
            assert!(lower.open_dir(id, Caller::ROOT).is_err());
            assert!(lower.parent(id).is_err());
            assert!(!lower.holds(id));
        }
        // An inode moved out of the source is rejected once it is forgotten; its directory immediately.
        let [_, e, f, ..] = ids(&lower)[..] else { unreachable!() };
        std::fs::rename(source.join("d/e"), dir.path().join("outside/e")).unwrap();
        lower.forget(f, 9);
        lower.forget(e, 9);
        assert_eq!(lower.reconnect(e).unwrap_err(), Errno::STALE);
        assert_eq!(lower.reconnect(f).unwrap_err(), Errno::STALE);
    }
}
