//! A volume as the upper directory of an overlay.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use shunt_test_support::{needs_mount, run};
use shunt_tests::polling::{names, soon};
use shunt_tests::{Volume, mounts};

/// A mounted overlay, detached on drop even if files on it are open.
struct Overlay(PathBuf);

impl Overlay {
    fn mount(lower: &Path, upper: &Path, work: &Path, at: PathBuf) -> Self {
        fs::create_dir_all(&at).unwrap();
        let options =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        run(Command::new("mount").args(["-t", "overlay", "-o", &options, "overlay"]).arg(&at)).ok();
        Self(at)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        mounts::detach(&self.0);
    }
}

fn is_whiteout(path: &Path) -> bool {
    let found = path.symlink_metadata().unwrap();
    found.file_type().is_char_device() && found.rdev() == 0
}

#[test]
fn a_name_is_moved_and_another_left_at_once() {
    needs_mount!();
    let volume = Volume::new();
    let (here, there) = (volume.mount_as("here"), volume.mount_as("there"));
    let at = |name: &str| here.at().join(name);
    for name in ["one", "two", "three"] {
        fs::write(at(name), name).unwrap();
    }
    let moved = |from: &str, to: &str, flags| renameat_with(CWD, at(from), CWD, at(to), flags);
    moved("one", "new", RenameFlags::WHITEOUT).unwrap();
    assert!(is_whiteout(&at("one")));
    assert_eq!(fs::read_to_string(at("new")).unwrap(), "one");
    // An existing target is replaced, unless RENAME_NOREPLACE forbids it.
    assert!(moved("two", "three", RenameFlags::WHITEOUT | RenameFlags::NOREPLACE).is_err());
    moved("two", "three", RenameFlags::WHITEOUT).unwrap();
    assert!(is_whiteout(&at("two")));
    assert_eq!(fs::read_to_string(at("three")).unwrap(), "two");
    assert!(moved("new", "three", RenameFlags::WHITEOUT | RenameFlags::EXCHANGE).is_err());
    // Another node sees both, too.
    soon(|| names(there.at()) == ["new", "one", "three", "two"]);
    assert!(is_whiteout(&there.at().join("one")));
}

#[test]
fn an_overlay_keeps_its_changes_on_a_volume() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount_as("here");
    let (upper, work) = (mount.at().join("upper"), mount.at().join("work"));
    let lower = volume.aside().join("lower");
    for dir in [&upper, &work, &lower, &lower.join("dir"), &lower.join("gone")] {
        fs::create_dir(dir).unwrap();
    }
    for name in ["removed", "moved", "changed", "gone/file", "dir/file"] {
        fs::write(lower.join(name), name).unwrap();
    }
    let over = Overlay::mount(&lower, &upper, &work, volume.aside().join("over"));
    let at = |name: &str| over.0.join(name);
    fs::remove_file(at("removed")).unwrap();
    fs::rename(at("moved"), at("dir/moved")).unwrap();
    fs::write(at("changed"), "anew").unwrap();
    fs::remove_dir_all(at("gone")).unwrap();
    // Opaque: the directory below is hidden.
    fs::create_dir(at("gone")).unwrap();
    assert_eq!(names(&at("")), ["changed", "dir", "gone"]);
    assert_eq!(names(&at("gone")), [""; 0]);
    drop(over);
    for name in ["removed", "moved"] {
        assert!(is_whiteout(&upper.join(name)), "{name}");
    }
    drop(mount);
    // Everything is present at the next mount.
    let mount = volume.mount_as("here");
    let over = Overlay::mount(&lower, &upper, &work, volume.aside().join("over"));
    let at = |name: &str| over.0.join(name);
    assert_eq!(names(&at("")), ["changed", "dir", "gone"]);
    assert_eq!(names(&at("dir")), ["file", "moved"]);
    assert_eq!(names(&at("gone")), [""; 0]);
    assert_eq!(fs::read_to_string(at("changed")).unwrap(), "anew");
    assert_eq!(fs::read_to_string(at("dir/moved")).unwrap(), "moved");
    drop(over);
    drop(mount);
}
