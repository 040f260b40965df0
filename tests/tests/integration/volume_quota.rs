//! Quotas of a volume and of its users.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, chown};
use std::time::Duration;

use rustix::io::Errno;
use shunt_test_support::{needs_mount, run};
use shunt_tests::polling::soon;
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary};

const MIB: u64 = 1 << 20;

fn set(volume: &Volume, words: &[&str]) -> String {
    let mut command = binary::command(&["volume", "set"]);
    run(command.args(words).arg("test").env("XDG_DATA_HOME", volume.aside())).ok()
}

/// Waits until a node has received a limit of the volume.
fn limited(mount: &Mount, bytes: Option<u64>) {
    soon(|| mount.status()["quota"]["held"]["limit_bytes"].as_u64() == bytes);
}

fn held(mount: &Mount) -> (u64, u64) {
    let held = &mount.status()["quota"]["held"];
    (held["bytes"].as_u64().unwrap(), held["objects"].as_u64().unwrap())
}

fn of(mount: &Mount, user: u32) -> (u64, u64) {
    let status = mount.status();
    let users = status["quota"]["users"].as_array().unwrap();
    let held = users.iter().find(|held| held["user"] == user);
    held.map_or((0, 0), |held| (held["bytes"].as_u64().unwrap(), held["objects"].as_u64().unwrap()))
}

#[track_caller]
fn refused<T>(done: std::io::Result<T>) {
    assert_eq!(done.err().and_then(|error| Errno::from_io_error(&error)), Some(Errno::DQUOT));
}

/// Runs `check` on the counters of a node.
fn check(volume: &Volume, node: &str, words: &[&str]) -> shunt_test_support::cmd::Ran {
    let mut command = binary::command(&["volume", "check", "--cache"]);
    command.arg(volume.aside().join(format!("cache-{node}"))).args(words).arg("test");
    run(command.env("XDG_DATA_HOME", volume.aside()))
}

/// Writes until that fails. Returns the length of the file then.
fn fill(file: &mut File, chunk: usize) -> u64 {
    let bytes = vec![7; chunk];
    let mut written = file.seek(SeekFrom::End(0)).unwrap();
    loop {
        match file.write(&bytes) {
            Ok(some) => written += some as u64,
            Err(error) => {
                assert_eq!(Errno::from_io_error(&error), Some(Errno::DQUOT));
                return written;
            }
        }
        assert!(written < 64 * MIB, "nothing stops it");
    }
}

#[test]
fn volume_limit_is_enforced() {
    needs_mount!();
    let volume = Volume::new();
    assert!(set(&volume, &["--quota", "4M"]).contains("4.0 MiB"));
    let ant = volume.mount_as("ant");
    limited(&ant, Some(4 * MIB));
    let at = |name: &str| ant.at().join(name);
    // A single writer gets all of the quota, and no byte more.
    let mut file = OpenOptions::new().append(true).create(true).open(at("a")).unwrap();
    let long = fill(&mut file, 100_000);
    assert!((4 * MIB - 100_000..=4 * MIB).contains(&long), "{long}");
    fill(&mut file, 1000);
    fill(&mut file, 1);
    assert_eq!(fs::metadata(at("a")).unwrap().len(), 4 * MIB);
    refused(file.set_len(4 * MIB + 1));
    let longer = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 4 * MIB, 1);
    assert_eq!(longer, Err(Errno::DQUOT));
    // Overwriting is possible; so is creating an empty file.
    OpenOptions::new().write(true).open(at("a")).unwrap().write_at(b"new", 5).unwrap();
    let empty = File::create(at("b")).unwrap();
    refused(empty.write_at(b"x", 0));
    // Also while a reader uses the file through passthrough.
    let reader = File::open(at("b")).unwrap();
    refused(OpenOptions::new().write(true).open(at("b")).unwrap().write_at(b"x", 0));
    drop((reader, empty));
    assert_eq!(held(&ant), (4 * MIB, 2));
    let space = rustix::fs::statvfs(ant.at()).unwrap();
    assert_eq!((space.f_blocks * space.f_frsize, space.f_bfree), (4 * MIB, 0));
    // Truncated or removed data frees quota, but not while a removed file is open.
    file.set_len(3 * MIB).unwrap();
    fs::write(at("c"), vec![1; MIB as usize]).unwrap();
    fs::remove_file(at("c")).unwrap();
    fs::remove_file(at("a")).unwrap();
    assert_eq!(held(&ant), (3 * MIB, 2));
    refused(fs::write(at("d"), vec![1; MIB as usize + 1]));
    drop(file);
    soon(|| held(&ant) == (MIB, 2));
    fs::remove_file(at("d")).unwrap();
    refused(OpenOptions::new().write(true).open(at("b")).unwrap().set_len(5 * MIB));
    let hidden =
        OpenOptions::new().write(true).custom_flags(rustix::fs::OFlags::TMPFILE.bits() as i32).open(ant.at());
    let mut hidden = hidden.unwrap();
    fill(&mut hidden, 1 << 19);
    drop(hidden);
    // Users do not see the attributes that carry the limits.
    let mut names = [0; 1000];
    assert_eq!(rustix::fs::listxattr(ant.at(), &mut names).unwrap(), 0);
    // The limit is removed while the volume is mounted.
    set(&volume, &["--quota", "none"]);
    limited(&ant, None);
    fs::write(at("e"), vec![1; 6 * MIB as usize]).unwrap();
    set(&volume, &["--quota", "5M", "--quota-objects", "3"]);
    limited(&ant, Some(5 * MIB));
    // Usage exceeds the new limit: files can be overwritten in place and removed, but not extended or added.
    OpenOptions::new().write(true).open(at("e")).unwrap().write_at(b"new", 5).unwrap();
    refused(OpenOptions::new().append(true).open(at("e")).unwrap().write(b"x"));
    fs::create_dir(at("dir")).unwrap();
    refused(fs::create_dir(at("more")));
    refused(File::create(at("dir/more")));
    refused(std::os::unix::fs::symlink("x", at("more")));
    fs::hard_link(at("b"), at("dir/b")).unwrap();
    fs::rename(at("b"), at("e")).unwrap();
    // The replaced file counts until the kernel has forgotten it.
    soon(|| held(&ant) == (0, 2));
    fs::write(at("f"), b"x").unwrap();
    assert_eq!(held(&ant), (1, 3));
}

#[test]
fn users_have_limits_of_their_own() {
    needs_mount!();
    let volume = Volume::new();
    set(&volume, &["--user-quota", "each:1M", "--user-quota", "1001:2M", "--user-quota-objects", "1002:2"]);
    let ant = volume.mount_as("ant");
    let at = |name: &str| ant.at().join(name);
    soon(|| of(&ant, 1001) == (0, 0) && ant.status()["quota"]["users"].as_array().unwrap().len() >= 2);
    let file_of = |user: u32, name: &str| {
        drop(File::create(at(name)).unwrap());
        chown(at(name), Some(user), None).unwrap();
        OpenOptions::new().write(true).open(at(name)).unwrap()
    };
    for (user, limit) in [(1000, MIB), (1001, 2 * MIB)] {
        let mut file = file_of(user, &user.to_string());
        fill(&mut file, 4096);
        assert_eq!(of(&ant, user), (limit, 1));
    }
    // Nor by a chown to that user.
    fs::write(at("root"), vec![1; 3 * MIB as usize]).unwrap();
    refused(chown(at("root"), Some(1000), None));
    file_of(1002, "one");
    file_of(1002, "two");
    File::create(at("three")).unwrap();
    refused(chown(at("three"), Some(1002), None));
    chown(at("two"), Some(0), None).unwrap();
    chown(at("three"), Some(1002), None).unwrap();
    assert_eq!((of(&ant, 1002), of(&ant, 0)), ((0, 2), (3 * MIB, 2)));
    // The counters survive a restart, and match the files.
    let before = ant.status()["quota"].clone();
    soon(|| ant.status()["pending"] == 0);
    check(&volume, "ant", &[]).ok();
    ant.kill();
    let ant = volume.mount_as("ant");
    assert_eq!(ant.status()["quota"], before);
    drop(ant);
    let db = volume.aside().join("cache-ant/replica.db");
    let wrong = "UPDATE usage SET bytes = bytes + 5 WHERE owner = 1000";
    run(std::process::Command::new("sqlite3").arg(&db).arg(wrong)).ok();
    let output = check(&volume, "ant", &[]);
    assert!(output.out.contains("user 1000: 1048581 bytes"), "{output:?}");
    check(&volume, "ant", &["--repair"]).ok();
    check(&volume, "ant", &[]).ok();
}

/// Two offline nodes exceed a limit together: none of their data is lost, and nothing can be added afterwards.
#[test]
fn offline_writes_count_later() {
    needs_mount!();
    let volume = Volume::new();
    set(&volume, &["--quota", "1M"]);
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    [&ant, &bee].into_iter().for_each(|mount| limited(mount, Some(MIB)));
    for mount in [&ant, &bee] {
        mount.set_online(false);
        fs::write(mount.at().join(mount.at().file_name().unwrap()), vec![1; 700_000]).unwrap();
        refused(fs::write(mount.at().join("more"), vec![1; 400_000]));
        fs::remove_file(mount.at().join("more")).unwrap();
    }
    for mount in [&ant, &bee] {
        mount.set_online(true);
    }
    for mount in [&ant, &bee] {
        soon(|| held(mount) == (1_400_000, 2) && mount.status()["pending"] == 0);
        refused(fs::write(mount.at().join("more"), b"x"));
        fs::remove_file(mount.at().join("more")).unwrap();
    }
    let name = |mount: &Mount| mount.at().file_name().unwrap().to_owned();
    fs::remove_file(ant.at().join(name(&bee))).unwrap();
    soon(|| held(&bee) == (700_000, 1));
    fs::write(bee.at().join("more"), b"x").unwrap();
    soon(|| held(&ant) == (700_001, 2));
}

/// A file opened before the limit is written through passthrough: its growth counts for all other files.
#[test]
fn file_opened_before_the_limit_counts() {
    needs_mount!();
    let volume = Volume::new();
    let ant = volume.mount_as("ant");
    let before = File::create(ant.at().join("before")).unwrap();
    set(&volume, &["--quota", "1M"]);
    limited(&ant, Some(MIB));
    before.write_at(&vec![1; 2 * MIB as usize], 0).unwrap();
    let after = File::create(ant.at().join("after")).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    refused(after.write_at(b"x", 0));
    assert_eq!(held(&ant), (2 * MIB, 2));
    before.set_len(10).unwrap();
    after.write_at(b"x", 0).unwrap();
    drop(before);
    soon(|| held(&ant) == (11, 2));
}
