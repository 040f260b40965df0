//! Volumes and replicas that an earlier release made: stored formats are contracts.
//!
//! `data/volume-of-replica-format-4.tar.gz` holds two stores, an open and an encrypted one, the caches of the node `old-node` that
//! wrote to them, and the key. The cache of the open one has a change that was made offline and was never pushed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use shunt_test_support::{needs_mount, run};
use shunt_tests::binary;
use shunt_tests::polling::{read, soon};
use shunt_tests::volume::Mount;

/// Unpacks the archive into a directory of the test.
fn unpack() -> tempfile::TempDir {
    let directory = shunt_tests::lower_fs::temp_dir();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/volume-of-replica-format-4.tar.gz");
    run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(directory.path())).ok();
    directory
}

fn mount(at: &Path, name: &str, cache: &str) -> Mount {
    let mountpoint: PathBuf = at.join(format!("mnt-{name}-{cache}"));
    fs::create_dir(&mountpoint).unwrap();
    let mut command = binary::command(&["volume", "mount", "--daemon", "--node", "old-node", name]);
    command.arg(&mountpoint).arg("--cache").arg(at.join(cache).join(name));
    command.arg("--meta").arg(format!("sqlite:{}", at.join(name).display()));
    if name == "secret" {
        command.arg("--key-file").arg(at.join("secret.key"));
    }
    run(&mut command).ok();
    Mount::of(&mountpoint)
}

fn check(mount: &Mount) {
    let at = mount.at();
    assert_eq!(read(&at.join("dir/renamed")), "by the version before\n");
    assert_eq!(fs::read_link(at.join("dir/link")).unwrap(), Path::new("renamed"));
    assert_eq!(read(&at.join("large")), "x".repeat(100_000));
    let mut color = [0; 16];
    let length = rustix::fs::getxattr(at.join("dir/renamed"), "user.color", &mut color).unwrap();
    assert_eq!(&color[..length], b"blue");
}

#[test]
fn a_replica_of_an_earlier_release_opens_and_pushes_what_it_had_pending() {
    needs_mount!();
    let directory = unpack();
    let node = mount(directory.path(), "plain", "caches");
    check(&node);
    assert_eq!(read(&node.at().join("dir/pending")), "made offline\n");
    assert_eq!(node.status()["state"], "offline", "the node stays offline until it is set online");
    assert!(node.status()["pending"].as_u64().unwrap() > 0);
    node.set_online(true);
    soon(|| node.status()["pending"] == 0);
    node.umount().ok();
    // A new replica has everything from the store.
    let other = mount(directory.path(), "plain", "new");
    check(&other);
    assert_eq!(read(&other.at().join("dir/pending")), "made offline\n");
}

#[test]
fn an_encrypted_volume_of_an_earlier_release_opens_with_its_replica_and_with_a_new_one() {
    needs_mount!();
    let directory = unpack();
    for cache in ["caches", "new"] {
        let node = mount(directory.path(), "secret", cache);
        check(&node);
        fs::write(node.at().join(cache), cache).unwrap();
        soon(|| node.status()["pending"] == 0);
        node.umount().ok();
    }
    let check = run(binary::command(&["volume", "check", "secret", "--meta"])
        .arg(format!("sqlite:{}", directory.path().join("secret").display()))
        .arg("--key-file")
        .arg(directory.path().join("secret.key")));
    check.ok();
}
