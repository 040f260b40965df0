//! Directories: large ones, concurrent changes, and consistency of all ways to list them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FileType;
use shunt_test_support::run;
use shunt_tests::getdents::{list, list_from};
use shunt_tests::{Fixture, Plan, fixture};

shunt_tests::behaviours! { everywhere:
    listing_is_complete_and_typed, inode_numbers_agree, dot_and_dotdot, empty_directories, positions_are_stable,
    rewind_sees_new_entries, changes_while_reading, two_readers_of_one_directory,
}

fn listing_is_complete_and_typed(s: &Fixture) {
    fs::write(s.path("file"), b"").unwrap();
    fs::create_dir(s.path("dir")).unwrap();
    symlink("x", s.path("link")).unwrap();
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, s.path("pipe"), FileType::Fifo, mode, 0).unwrap();
    let kinds: HashMap<_, _> =
        list(s.mnt()).into_iter().map(|e| (e.name.into_string().unwrap(), e.kind)).collect();
    assert_eq!(kinds.len(), 4);
    assert_eq!(kinds["file"], FileType::RegularFile);
    assert_eq!(kinds["dir"], FileType::Directory);
    assert_eq!(kinds["link"], FileType::Symlink);
    assert_eq!(kinds["pipe"], FileType::Fifo);
}

fn inode_numbers_agree(s: &Fixture) {
    fs::create_dir(s.path("d")).unwrap();
    for n in 0..300 {
        fs::write(s.path(format!("d/{n}")), b"").unwrap();
    }
    fs::hard_link(s.path("d/0"), s.path("d/again")).unwrap();
    // Listed twice: with names that the kernel has cached already, and again after the listing has filled the cache.
    for _ in 0..2 {
        let listed = list(&s.path("d"));
        assert_eq!(listed.len(), 301);
        for entry in &listed {
            let m = fs::symlink_metadata(s.path("d").join(&entry.name)).unwrap();
            assert_eq!(entry.ino, m.ino(), "{:?}", entry.name);
            assert_eq!(m.ino(), fs::symlink_metadata(s.lower("d").join(&entry.name)).unwrap().ino());
            assert_eq!(m.ino(), File::open(s.path("d").join(&entry.name)).unwrap().metadata().unwrap().ino());
        }
    }
}

fn dot_and_dotdot(s: &Fixture) {
    fs::create_dir_all(s.path("a/b")).unwrap();
    let all = list_from(&File::open(s.path("a/b")).unwrap(), 0);
    let ino = |name: &str| all.iter().find(|e| e.name == name).unwrap_or_else(|| panic!("no {name}")).ino;
    assert_eq!(ino("."), fs::metadata(s.path("a/b")).unwrap().ino());
    assert_eq!(ino(".."), fs::metadata(s.path("a")).unwrap().ino());
    let root = list_from(&File::open(s.mnt()).unwrap(), 0);
    assert_eq!(root.iter().filter(|e| e.name == "." || e.name == "..").count(), 2);
}

fn empty_directories(s: &Fixture) {
    fs::create_dir(s.path("d")).unwrap();
    assert_eq!(list(&s.path("d")).len(), 0);
    assert_eq!(list_from(&File::open(s.path("d")).unwrap(), 0).len(), 2);
}

fn positions_are_stable(s: &Fixture) {
    for n in 0..2000 {
        fs::write(s.path(format!("entry-{n:05}")), b"").unwrap();
    }
    let dir = File::open(s.mnt()).unwrap();
    let all = list_from(&dir, 0);
    assert_eq!(all.len(), 2002);
    assert_eq!(list_from(&dir, 0), all, "rewinding gives the same again");
    for at in [0, 1, 2, 700, 1333, 2000] {
        let rest = list_from(&dir, all[at].next);
        assert_eq!(rest, all[at + 1..], "going on after entry {at}");
    }
    // Another handle, and a listing that lost an entry already read: the offset still refers to the same position.
    let other = File::open(s.mnt()).unwrap();
    let gone = all.iter().take(400).rposition(|e| e.name != "." && e.name != "..").unwrap();
    fs::remove_file(s.mnt().join(&all[gone].name)).unwrap();
    let names =
        |entries: &[shunt_tests::getdents::Entry]| entries.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&list_from(&other, all[700].next)), names(&all[701..]));
}

fn rewind_sees_new_entries(s: &Fixture) {
    fs::write(s.path("a"), b"").unwrap();
    let dir = File::open(s.mnt()).unwrap();
    assert_eq!(list_from(&dir, 0).len(), 3);
    fs::write(s.path("b"), b"").unwrap();
    assert_eq!(list_from(&dir, 0).len(), 4);
    fs::remove_file(s.path("a")).unwrap();
    fs::rename(s.path("b"), s.path("c")).unwrap();
    let names: Vec<_> = list_from(&dir, 0)
        .into_iter()
        .map(|e| e.name)
        .filter(|n| !n.as_encoded_bytes().starts_with(b"."))
        .collect();
    assert_eq!(names, ["c"]);
}

fn changes_while_reading(s: &Fixture) {
    for n in 0..1000 {
        fs::write(s.path(format!("stays-{n:04}")), b"").unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0u32;
            while !stop.load(Ordering::Relaxed) {
                fs::write(s.path(format!("comes-{n:08}")), b"").unwrap();
                if n >= 50 {
                    fs::remove_file(s.path(format!("comes-{:08}", n - 50))).unwrap();
                }
                n += 1;
            }
        });
        let check = || {
            for round in 0..20 {
                let listed = list(s.mnt());
                let names: HashSet<_> = listed.iter().map(|e| &e.name).collect();
                assert_eq!(names.len(), listed.len(), "round {round}: an entry came twice");
                let stays = listed.iter().filter(|e| e.name.as_encoded_bytes().starts_with(b"stays")).count();
                assert_eq!(stays, 1000, "round {round}: entries that were never touched are missing");
            }
        };
        let checked = std::panic::catch_unwind(check);
        stop.store(true, Ordering::Relaxed);
        checked.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
}

#[test]
fn inode_numbers_survive_a_remount() {
    let Some(mut s) = Plan::tmpfs().set_or_skip() else { return };
    fs::create_dir(s.path("d")).unwrap();
    fs::write(s.path("d/f"), b"").unwrap();
    let inos = |s: &Fixture| ["d", "d/f"].map(|n| fs::metadata(s.path(n)).unwrap().ino());
    let before = inos(&s);
    s.remount();
    assert_eq!(inos(&s), before);
}

fn two_readers_of_one_directory(s: &Fixture) {
    for n in 0..500 {
        fs::write(s.path(format!("{n}")), b"").unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10).for_each(|_| assert_eq!(list(s.mnt()).len(), 500)));
        }
    });
}

#[test]
fn fifty_thousand_entries() {
    fixture::perform(Plan::tmpfs().patience(120), |s| {
        const MANY: usize = 50_000;
        for n in 0..MANY {
            File::create(s.lower(format!("a-name-of-some-length-{n}"))).unwrap();
        }
        let listed = list(s.mnt());
        assert_eq!(listed.len(), MANY);
        assert_eq!(listed.iter().map(|e| &e.name).collect::<HashSet<_>>().len(), MANY);
        assert_eq!(listed.iter().map(|e| e.ino).collect::<HashSet<_>>().len(), MANY);
        let all = list_from(&File::open(s.mnt()).unwrap(), 0);
        let from_middle = list_from(&File::open(s.mnt()).unwrap(), all[MANY / 2].next);
        assert_eq!(from_middle, all[MANY / 2 + 1..]);
        // Removing while reading, as `rm -r` does.
        run(std::process::Command::new("find").arg(s.mnt()).args(["-type", "f", "-delete"])).ok();
        assert_eq!(fs::read_dir(s.src()).unwrap().count(), 0);
    });
}
