//! Conflicts on real mounts: how they are shown, and the effect of each operation on them.

use std::cell::RefCell;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use shunt_test_support::cmd::Ran;
use shunt_test_support::{needs_mount, run};
use shunt_tests::polling::{names, read, refused, soon};
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary};

fn mv(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

fn volume(words: &[&str], paths: &[&Path]) -> Ran {
    run(binary::command(&["volume"]).args(words).args(paths))
}

fn conflicts(at: &Path) -> Vec<(String, String)> {
    let output = volume(&["conflicts", "--json"], &[at]).ok();
    let all: Vec<serde_json::Value> = serde_json::from_str(&output).unwrap();
    let word = |one: &serde_json::Value, key: &str| one[key].as_str().unwrap().to_owned();
    all.iter().map(|one| (word(one, "path"), word(one, "kind"))).collect()
}

/// ConflictingNodes nodes in conflict: `ant` changed first, `bee` was offline.
struct ConflictingNodes {
    volume: Volume,
    ant: Mount,
    bee: Mount,
}

impl ConflictingNodes {
    fn with(both: impl Fn(&Path), first: impl Fn(&Path), late: impl Fn(&Path)) -> Self {
        let volume = Volume::new();
        let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
        both(ant.at());
        fs::write(ant.at().join("begun"), "").unwrap();
        soon(|| bee.at().join("begun").exists());
        // Files that are changed offline have to be cached.
        run(Command::new("cp").args(["-r", "--"]).arg(bee.at()).arg(volume.aside().join("read"))).ok();
        bee.set_online(false);
        first(ant.at());
        late(bee.at());
        soon(|| ant.status()["pending"] == 0);
        bee.set_online(true);
        Self { volume, ant, bee }
    }

    /// A conflict about one file, to which each node wrote its own name.
    fn of_a_file() -> Self {
        let two = Self::with(
            |at| fs::write(at.join("file"), "both").unwrap(),
            |at| fs::write(at.join("file"), "ant").unwrap(),
            |at| fs::write(at.join("file"), "bee").unwrap(),
        );
        soon(|| two.late("file").is_dir());
        two
    }

    fn late(&self, name: &str) -> PathBuf {
        self.bee.at().join(name)
    }

    fn first(&self, name: &str) -> PathBuf {
        self.ant.at().join(name)
    }

    /// Waits until both nodes show the same files, without a conflict.
    #[track_caller]
    fn agree(&self, expected: &[(&str, &str)]) {
        let mut all: Vec<_> = expected.iter().map(|(name, _)| (*name).to_owned()).collect();
        all.push("begun".to_owned());
        all.sort();
        for at in [self.bee.at(), self.ant.at()] {
            soon(|| names(at) == all && expected.iter().all(|(name, text)| read(&at.join(name)) == *text));
        }
        assert!(conflicts(self.bee.at()).is_empty());
    }
}

#[test]
fn every_kind_is_listed_and_resolved_by_name() {
    needs_mount!();
    let two = ConflictingNodes::with(
        |at| {
            for name in ["changed", "lost", "kept", "mode", "moved"] {
                fs::write(at.join(name), name).unwrap();
            }
            fs::create_dir_all(at.join("tree")).unwrap();
            fs::write(at.join("tree/inside"), "").unwrap();
        },
        |at| {
            fs::write(at.join("changed"), "by ant").unwrap();
            fs::remove_file(at.join("lost")).unwrap();
            fs::write(at.join("kept"), "by ant").unwrap();
            fs::set_permissions(at.join("mode"), Permissions::from_mode(0o640)).unwrap();
            fs::rename(at.join("moved"), at.join("moved to ant")).unwrap();
            fs::remove_dir_all(at.join("tree")).unwrap();
            fs::write(at.join("new"), "of ant").unwrap();
            fs::write(at.join("odd"), "a file of ant").unwrap();
        },
        |at| {
            fs::write(at.join("changed"), "by bee").unwrap();
            fs::write(at.join("lost"), "by bee").unwrap();
            fs::remove_file(at.join("kept")).unwrap();
            fs::set_permissions(at.join("mode"), Permissions::from_mode(0o600)).unwrap();
            fs::rename(at.join("moved"), at.join("moved to bee")).unwrap();
            fs::write(at.join("tree/more"), "of bee").unwrap();
            fs::write(at.join("new"), "of bee").unwrap();
            fs::create_dir(at.join("odd")).unwrap();
            fs::write(at.join("odd/inside"), "of bee").unwrap();
        },
    );
    let all = [
        ("changed", "modify/modify"),
        ("kept", "delete/modify"),
        ("lost", "modify/delete"),
        ("mode", "attributes/attributes"),
        ("moved to bee", "move/move"),
        ("new", "create/create"),
        ("odd", "create/create"),
        ("tree", "modify/delete"),
    ]
    .map(|(path, kind)| (path.to_owned(), kind.to_owned()));
    soon(|| conflicts(two.bee.at()) == all);
    assert!(conflicts(two.ant.at()).is_empty(), "it arose elsewhere");
    assert_eq!(conflicts(&two.late("new")), [all[5].clone()]);
    // A deleted side is a symlink to the other.
    assert_eq!(fs::read_link(two.late("lost/ant")).unwrap(), Path::new("bee"));
    assert_eq!(fs::read_link(two.late("kept/bee")).unwrap(), Path::new("ant"));
    assert_eq!(read(&two.late("lost/ant")), "by bee");
    assert_eq!(names(&two.late("tree/bee")), ["more"]);
    assert_eq!(fs::metadata(two.late("mode/bee")).unwrap().mode() & 0o777, 0o600);
    let listed: Vec<serde_json::Value> =
        serde_json::from_str(&volume(&["conflicts", "--json"], &[&two.late("lost")]).ok()).unwrap();
    assert_eq!(listed[0]["sides"][0]["node"], "bee");
    assert_eq!((&listed[0]["sides"][0]["size"], &listed[0]["sides"][0]["here"]), (&6.into(), &true.into()));
    assert_eq!(listed[0]["sides"][1]["what"], "deleted");

    // No change after a restart, and offline.
    let ConflictingNodes { volume: fixture, ant, bee } = two;
    drop(bee);
    let two = ConflictingNodes { bee: fixture.mount_as("bee"), volume: fixture, ant };
    assert_eq!(conflicts(two.bee.at()), all);
    two.bee.set_online(false);
    let output = volume(&["resolve", "--keep", "cat"], &[&two.late("new")]).fails();
    assert!(output.contains("new: there is no version of cat; choose bee or ant"), "{output}");
    let output = volume(&["resolve", "--keep", "bee"], &[&two.late("begun")]).fails();
    assert!(output.contains("begun: there is no conflict"), "{output}");
    volume(&["resolve", "--keep", "ant"], &[&two.late("changed"), &two.late("lost"), &two.late("odd")]).ok();
    assert_eq!((read(&two.late("changed")), two.late("lost").exists()), ("by ant".into(), false));
    assert_eq!(read(&two.late("odd")), "a file of ant");
    volume(&["resolve", "--keep", "bee", "--all"], &[two.bee.at()]).ok();
    assert!(conflicts(two.bee.at()).is_empty());
    assert_eq!(fs::metadata(two.late("mode")).unwrap().mode() & 0o777, 0o600);
    two.bee.set_online(true);
    soon(|| two.first("tree/more").exists());
    two.agree(&[
        ("changed", "by ant"),
        ("mode", "mode"),
        ("moved to bee", "moved"),
        ("new", "of bee"),
        ("odd", "a file of ant"),
        ("tree", ""),
    ]);
    drop(two.volume);
}

#[test]
fn both_versions_can_be_kept() {
    needs_mount!();
    let two = ConflictingNodes::of_a_file();
    volume(&["resolve", "--keep", "both"], &[&two.late("file")]).ok();
    assert_eq!(read(&two.late("file")), "ant");
    two.agree(&[("file", "ant"), ("file.conflict-bee", "bee")]);
}

#[test]
fn conflict_directory_is_immutable() {
    needs_mount!();
    let two = ConflictingNodes::of_a_file();
    let (place, entry) = (two.late("file"), two.late("file/bee"));
    let begun = two.late("begun");
    refused(fs::write(place.join("new"), ""), Errno::PERM);
    refused(fs::create_dir(place.join("new")), Errno::PERM);
    refused(symlink("x", place.join("new")), Errno::PERM);
    refused(fs::hard_link(&begun, place.join("new")), Errno::PERM);
    refused(mv(&place, &two.late("other")), Errno::BUSY);
    refused(mv(&begun, &place), Errno::ISDIR);
    refused(mv(&entry, &two.late("other")), Errno::BUSY);
    refused(mv(&entry, &place.join("ant")), Errno::BUSY);
    refused(mv(&begun, &entry), Errno::BUSY);
    refused(mv(&begun, &place.join("new")), Errno::BUSY);
    refused(fs::set_permissions(&place, Permissions::from_mode(0o700)), Errno::PERM);
    refused(fs::File::open(&place).unwrap().set_modified(std::time::UNIX_EPOCH), Errno::PERM);
    let set = rustix::fs::setxattr(&place, "user.x", b"y", rustix::fs::XattrFlags::empty());
    assert_eq!(set, Err(Errno::PERM));
    refused(fs::remove_dir(&place), Errno::NOTEMPTY);
    refused(fs::remove_dir(&entry), Errno::NOTDIR);
    refused(fs::remove_file(&place), Errno::ISDIR);
    refused(fs::remove_file(place.join("new")), Errno::NOENT);
    refused(fs::read(&place), Errno::ISDIR);
    assert_eq!(names(&place), ["ant", "bee"]);
    // Entries are files: this node's is pending, the other one is the file that the other nodes have.
    fs::write(&entry, "bee again").unwrap();
    fs::write(place.join("ant"), "ant, by bee").unwrap();
    soon(|| read(&two.first("file")) == "ant, by bee");
    assert_eq!(read(&entry), "bee again");
    fs::remove_file(place.join("ant")).unwrap();
    two.agree(&[("file", "bee again")]);
}

#[test]
fn rm_rf_removes_one_version() {
    needs_mount!();
    let two = ConflictingNodes::of_a_file();
    // In name order; after the first removal the path is no directory any more.
    run(Command::new("rm").arg("-rf").arg(two.late("file")));
    two.agree(&[("file", "bee")]);
    run(Command::new("rm").arg("-rf").arg(two.late("file"))).ok();
    two.agree(&[]);
}

/// Writes through the handle go to the deleted file. The fsync must not claim that they are durable in the restored one.
#[test]
fn a_file_that_comes_back_while_its_deleted_one_is_written_does_not_claim_what_is_written() {
    needs_mount!();
    let open = RefCell::new(None);
    let two = ConflictingNodes::with(
        |at| fs::write(at.join("file"), "both").unwrap(),
        |at| fs::write(at.join("file"), "ant").unwrap(),
        |at| {
            let file = File::options().read(true).write(true).open(at.join("file")).unwrap();
            fs::remove_file(at.join("file")).unwrap();
            file.write_all_at(b"deleted", 0).unwrap();
            file.sync_all().unwrap();
            assert_eq!(file.metadata().unwrap().nlink(), 0);
            open.replace(Some(file));
        },
    );
    let file = open.take().unwrap();
    soon(|| two.late("file").is_dir() && file.metadata().unwrap().nlink() > 0);
    file.write_all_at(b"more", 0).unwrap();
    refused(file.sync_all(), Errno::STALE);
    let mut seen = [0; 16];
    let len = file.read_at(&mut seen, 0).unwrap();
    assert_eq!(&seen[..len], b"moreted");
    drop(file);
    assert_eq!(read(&two.late("file/ant")), "ant");
    volume(&["resolve", "--keep", "ant"], &[&two.late("file")]).ok();
    two.agree(&[("file", "ant")]);
}

/// A file with attributes is read and written through the daemon and the page cache, while the kernel knows the length of the
/// restored file.
#[test]
fn a_deleted_file_that_came_back_is_not_shown_up_to_the_length_of_the_other() {
    needs_mount!();
    let open = RefCell::new(None);
    let two = ConflictingNodes::with(
        |at| {
            fs::write(at.join("file"), "what both have").unwrap();
            rustix::fs::setxattr(at.join("file"), "user.test", b"1", XattrFlags::empty()).unwrap();
        },
        |at| fs::write(at.join("file"), "ant").unwrap(),
        |at| {
            let file = File::options().read(true).write(true).open(at.join("file")).unwrap();
            fs::remove_file(at.join("file")).unwrap();
            let mut seen = [0; 32];
            assert_eq!(file.read_at(&mut seen, 0).unwrap(), 14);
            open.replace(Some(file));
        },
    );
    let file = open.take().unwrap();
    soon(|| two.late("file").is_dir() && file.metadata().unwrap().len() == 3);
    refused(file.read_at(&mut [0; 32], 0), Errno::STALE);
    refused(file.write_at(b"more", 0), Errno::STALE);
    refused(file.sync_all(), Errno::STALE);
    drop(file);
    assert_eq!(read(&two.late("file/ant")), "ant");
    volume(&["resolve", "--keep", "ant"], &[&two.late("file")]).ok();
    two.agree(&[("file", "ant")]);
}

/// The kernel lists nothing in a removed directory for as long as it holds the inode: here because it is open.
#[test]
fn a_directory_that_comes_back_shows_what_is_in_it() {
    needs_mount!();
    let open = RefCell::new(None);
    let two = ConflictingNodes::with(
        |at| {
            fs::create_dir(at.join("tree")).unwrap();
            fs::write(at.join("tree/inside"), "both").unwrap();
        },
        |at| fs::write(at.join("tree/inside"), "ant").unwrap(),
        |at| {
            open.replace(Some(fs::File::open(at.join("tree")).unwrap()));
            fs::remove_dir_all(at.join("tree")).unwrap();
        },
    );
    soon(|| two.late("tree/ant").is_dir());
    assert_eq!(names(&two.late("tree/ant")), ["inside"]);
    assert_eq!(read(&two.late("tree/ant/inside")), "ant");
    drop(open);
}
