//! Close-to-open coherence between connected nodes. Nothing in these tests waits.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Dir, FileType, Mode, mknodat};
use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, pace, run};
use shunt_tests::polling::names;
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary};

#[track_caller]
fn connected(mounts: &[&Mount]) {
    let peers = mounts.len() - 1;
    let is_connected = |mount: &&Mount| {
        let status = mount.status();
        status["connected"] == true && status["peers"] == peers
    };
    assert!(within(Duration::from_secs(30), || mounts.iter().all(is_connected)), "they do not meet");
}

/// Checks both directions, in rounds that each find the kernel caches as the last one left them.
fn each_sees_what_the_other_closed(ant: &Mount, bee: &Mount, rounds: usize) {
    fs::create_dir(ant.at().join("docs")).unwrap();
    fs::write(ant.at().join("docs/file"), "first").unwrap();
    assert_eq!(fs::read_to_string(bee.at().join("docs/file")).unwrap(), "first");
    for round in 0..rounds {
        let (from, to) = if round % 2 == 0 { (ant.at(), bee.at()) } else { (bee.at(), ant.at()) };
        let (text, longer) = (format!("round {round}"), format!("{round} ").repeat(round * 100));
        // Truncated and rewritten, modified in place, and appended to.
        fs::write(from.join("docs/file"), &text).unwrap();
        assert_eq!(fs::read_to_string(to.join("docs/file")).unwrap(), text);
        File::options().write(true).open(from.join("docs/file")).unwrap().write_all_at(b"ROUND", 0).unwrap();
        assert_eq!(fs::read_to_string(to.join("docs/file")).unwrap(), text.to_uppercase());
        File::options()
            .append(true)
            .open(from.join("docs/file"))
            .unwrap()
            .write_all(longer.as_bytes())
            .unwrap();
        let mut file = File::open(to.join("docs/file")).unwrap();
        assert_eq!(file.metadata().unwrap().len() as usize, text.len() + longer.len());
        let mut read = String::new();
        file.read_to_string(&mut read).unwrap();
        assert_eq!(read, text.to_uppercase() + &longer);
        // New names: one that was looked up before, and one that replaces another.
        let new = format!("docs/new{round}");
        assert!(!to.join(&new).exists());
        fs::write(from.join(&new), &text).unwrap();
        assert_eq!(fs::read_to_string(to.join(&new)).unwrap(), text);
        fs::rename(from.join(&new), from.join("docs/taken")).unwrap();
        assert_eq!(fs::read_to_string(to.join("docs/taken")).unwrap(), text);
        assert!(!to.join(&new).exists());
        // Below a new directory.
        let deep = format!("docs/deep{round}/er");
        fs::create_dir_all(from.join(&deep)).unwrap();
        fs::write(from.join(&deep).join("file"), &text).unwrap();
        assert_eq!(fs::read_to_string(to.join(&deep).join("file")).unwrap(), text);
        assert_eq!(names(&to.join(&deep)), ["file"]);
        fs::remove_file(from.join(&deep).join("file")).unwrap();
        assert_eq!(names(&to.join(&deep)), Vec::<String>::new());
    }
}

#[test]
fn each_sees_what_the_other_closed_through_sqlite() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    connected(&[&ant, &bee]);
    each_sees_what_the_other_closed(&ant, &bee, 12);
}

#[test]
fn file_closed_before_peer_connects_is_seen_by_it() {
    needs_mount!();
    let volume = Volume::new();
    let ant = volume.mount_as("ant");
    for n in 0..200 {
        fs::write(ant.at().join(format!("file{n}")), format!("{n}")).unwrap();
    }
    let bee = volume.mount_as("bee");
    assert_eq!(names(bee.at()).len(), 200);
    assert_eq!(fs::read_to_string(bee.at().join("file199")).unwrap(), "199");
}

#[test]
fn file_open_before_peer_connects_is_seen_once_closed() {
    needs_mount!();
    let volume = Volume::new();
    let ant = volume.mount_as("ant");
    let files: Vec<File> =
        (0..20).map(|n| File::create(ant.at().join(format!("file{n}"))).unwrap()).collect();
    let bee = volume.mount_as("bee");
    connected(&[&ant, &bee]);
    // Earlier leases were released long ago.
    std::thread::sleep(Duration::from_secs(1));
    for (n, mut file) in files.into_iter().enumerate() {
        file.write_all(format!("of {n}").as_bytes()).unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(bee.at().join(format!("file{n}"))).unwrap(), format!("of {n}"));
    }
}

#[test]
fn a_dead_node_blocks_others_only_briefly() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    connected(&[&ant, &bee]);
    fs::write(ant.at().join("file"), "1").unwrap();
    bee.kill();
    let begun = Instant::now();
    fs::write(ant.at().join("file"), "2").unwrap();
    assert!(begun.elapsed() < pace::seconds(20), "{:?}", begun.elapsed());
    connected(&[&ant]);
    // Offline there is nothing to wait for.
    run(binary::command(&["volume", "offline"]).arg(ant.at())).ok();
    let begun = Instant::now();
    fs::write(ant.at().join("file"), "3").unwrap();
    assert!(begun.elapsed() < pace::seconds(2), "{:?}", begun.elapsed());
    assert_eq!(ant.status()["connected"], false);
}

#[test]
fn a_file_that_stays_open_holds_nobody_up() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    connected(&[&ant, &bee]);
    let mut log = File::create(ant.at().join("log")).unwrap();
    log.write_all(b"line\n").unwrap();
    let begun = Instant::now();
    names(bee.at());
    File::open(bee.at().join("log")).ok();
    assert!(begun.elapsed() < pace::seconds(4), "{:?}", begun.elapsed());
    drop(log);
    assert_eq!(fs::read_to_string(bee.at().join("log")).unwrap(), "line\n");
}

/// A listing returns a file without a lookup of its name, while the node that created it creates others all the time.
#[test]
fn file_from_listing_opens_in_its_closed_version() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    connected(&[&ant, &bee]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                fs::write(ant.at().join(format!("beside{}", n % 100)), "").unwrap();
            }
        });
        let _stops = StopOnDrop(&stop);
        let mut listing = Dir::read_from(File::open(bee.at()).unwrap()).unwrap();
        for n in 0..100 {
            let (name, text) = (format!("file{n}"), format!("text {n}"));
            // A file that is open would not be shown to other nodes.
            mknodat(CWD, ant.at().join(&name), FileType::RegularFile, Mode::RWXU, 0).unwrap();
            let is_listed = || {
                listing.rewind();
                listing.any(|entry| entry.unwrap().file_name().to_bytes() == name.as_bytes())
            };
            assert!(within(Duration::from_secs(10), is_listed), "{name} is not seen");
            fs::write(ant.at().join(&name), &text).unwrap();
            assert_eq!(fs::read_to_string(bee.at().join(&name)).unwrap(), text);
        }
    });
}

/// StopOnDrop the background thread, also after a failure.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn each_sees_what_the_other_closed_through_postgres() {
    needs_mount!();
    let Some(server) = shunt_test_support::servers::Postgres::start(false) else {
        shunt_test_support::skip::skip("PostgreSQL is not installed (run tests/setup)");
        return;
    };
    let (volume, meta) = (Volume::new(), server.tcp_address());
    let data = format!("file:{}", volume.aside().join("data").display());
    run(&mut binary::command(&["volume", "create", "shared", "--meta", &meta, "--data", &data])).ok();
    let (ant, bee) = (volume.mount_shared("ant", &meta), volume.mount_shared("bee", &meta));
    connected(&[&ant, &bee]);
    each_sees_what_the_other_closed(&ant, &bee, 6);
}
