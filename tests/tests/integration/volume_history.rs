//! History: the log of a mounted volume, versions of paths, and views of the past.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;

use shunt_test_support::cmd::Ended;
use shunt_test_support::{needs_mount, port, run};
use shunt_tests::polling::{names, read, refused, soon};
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary};

fn log(words: &[&str], at: &Path) -> Vec<(String, String, String)> {
    let output = run(binary::command(&["volume", "log", "--json"]).args(words).arg(at)).ok();
    let all: Vec<serde_json::Value> = serde_json::from_str(&output).unwrap();
    let commits = all.iter().flat_map(|commit| {
        let node = commit["node"].as_str().unwrap();
        assert!(commit["seq"].is_u64() && commit["at"].as_str().unwrap().ends_with('Z'), "{commit}");
        commit["changes"].as_array().unwrap().iter().map(move |change| {
            let word = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
            (format!("{node} {}", word("what")), word("path"), word("detail"))
        })
    });
    commits.collect()
}

#[test]
fn the_log_says_who_did_what_to_which_path() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    let at = ant.at();
    let settled = || soon(|| ant.status()["pending"] == 0);
    fs::create_dir(at.join("old")).unwrap();
    // Empty, because creating and writing a file may take one or two commits.
    fs::File::create(at.join("old/file")).unwrap();
    settled();
    // Without O_TRUNC, which changes the mtime and may lead to a commit of its own.
    let file = OpenOptions::new().write(true).open(at.join("old/file")).unwrap();
    file.write_all_at(b"twelve bytes", 0).unwrap();
    drop(file);
    settled();
    fs::set_permissions(at.join("old/file"), Permissions::from_mode(0o600)).unwrap();
    settled();
    fs::rename(at.join("old"), at.join("new")).unwrap();
    settled();
    soon(|| bee.at().join("new/file").exists());
    fs::hard_link(bee.at().join("new/file"), bee.at().join("linked")).unwrap();
    soon(|| at.join("linked").exists());
    fs::remove_dir_all(at.join("new")).unwrap();
    settled();
    let output: Vec<_> = [
        ("ant removed", "new", ""),
        ("ant removed", "new/file", ""),
        ("bee linked", "linked", ""),
        ("ant moved", "new", "from old"),
        ("ant mode", "old/file", "0600"),
        ("ant wrote", "old/file", "12 bytes"),
        ("ant made", "old/file", "file"),
        ("ant made", "old", "directory"),
    ]
    .into_iter()
    .map(|(what, path, detail)| (what.to_owned(), path.to_owned(), detail.to_owned()))
    .collect();
    assert_eq!(log(&[], at), output);
    assert_eq!(log(&["-n", "3"], bee.at()), output[..3]);
    assert_eq!(log(&[], &bee.at().join("linked")), output[2..3]);
    assert_eq!(log(&["-n", "1"], &at.join("new")), output[..1]);
    let shown = run(binary::command(&["volume", "log"]).arg(at)).ok();
    assert!(shown.lines().nth(3).is_some_and(|line| line.contains("moved    new  (from old)")), "{shown}");
    let output = run(binary::command(&["volume", "log"]).arg(volume.aside())).fails();
    assert!(output.contains("is not in a mounted volume"), "{output}");
}

/// Waits until everything is committed. Returns the time and the number of the last commit.
#[track_caller]
fn settled(mount: &Mount) -> (String, u64) {
    soon(|| mount.status()["pending"] == 0);
    let output = run(binary::command(&["volume", "log", "--json", "-n", "1"]).arg(mount.at())).ok();
    let last: serde_json::Value = serde_json::from_str(&output).unwrap();
    let at = last[0]["at"].as_str().unwrap().to_owned();
    // The next commit gets another millisecond.
    std::thread::sleep(Duration::from_millis(2));
    (at, last[0]["seq"].as_u64().unwrap())
}

fn then(path: &Path, when: &str) -> PathBuf {
    let beside = beside(path, when);
    beside.with_file_name(".shunt-history").join(beside.file_name().unwrap())
}

fn beside(path: &Path, when: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("@");
    name.push(when);
    name.into()
}

fn history(path: &Path) -> Vec<(String, u64)> {
    let output = run(binary::command(&["volume", "history", "--json"]).arg(path)).ok();
    let all: Vec<serde_json::Value> = serde_json::from_str(&output).unwrap();
    let all = all.iter().map(|one| (one["what"].as_str().unwrap().to_owned(), one["size"].as_u64().unwrap()));
    // A slow machine commits a file between its creation or truncation and the write, and between the write and the change of
    // its times.
    let mut all: Vec<_> = all.filter(|(what, size)| what != "file" || *size > 0).collect();
    all.dedup();
    all
}

fn restore(words: &[&str], paths: &[&Path]) -> String {
    run(binary::command(&["volume", "restore"]).args(paths).args(words)).ok()
}

#[test]
fn files_and_directories_are_there_as_they_were() {
    are_there_as_they_were(&[], then);
}

#[test]
fn they_are_there_beside_their_names_where_that_is_asked_for() {
    are_there_as_they_were(&["--at-names"], beside);
}

fn are_there_as_they_were(options: &[&str], then: fn(&Path, &str) -> PathBuf) {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount_as_with("ant", options);
    let (at, file, dir) = (mount.at(), mount.at().join("file"), mount.at().join("dir"));
    let large: Vec<u8> = (0..3_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(dir.join("one"), "one").unwrap();
    fs::write(dir.join("sub/large"), &large).unwrap();
    symlink("one", dir.join("link")).unwrap();
    fs::write(&file, "first").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    rustix::fs::setxattr(&file, "user.x", b"y", rustix::fs::XattrFlags::empty()).unwrap();
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    let (first, number) = settled(&mount);
    fs::write(&file, "second, and longer").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(dir.join("one")).unwrap();
    fs::write(dir.join("two"), "two").unwrap();
    fs::write(dir.join("sub/large"), "small").unwrap();
    let (second, _) = settled(&mount);
    fs::remove_file(&file).unwrap();
    fs::rename(&dir, at.join("moved")).unwrap();
    let dir = at.join("moved");
    settled(&mount);

    for when in [first.clone(), format!("#{number}")] {
        let past = then(&file, &when);
        assert_eq!(read(&past), "first", "{when}");
        let seen = fs::metadata(&past).unwrap();
        assert_eq!((seen.len(), seen.mode() & 0o7777, seen.modified().unwrap()), (5, 0o600, modified));
        let mut value = [0; 8];
        assert_eq!(rustix::fs::getxattr(&past, "user.x", &mut value), Ok(1));
    }
    assert_eq!(read(&then(&file, &second)), "second, and longer");
    let past = then(&dir, &first);
    assert_eq!(names(&past), ["link", "one", "sub"]);
    assert_eq!(names(&then(&dir, &second)), ["link", "sub", "two"]);
    assert_eq!(fs::read_link(past.join("link")).unwrap(), Path::new("one"));
    assert_eq!(read(&past.join("link")), "one");
    assert_eq!(fs::read(past.join("sub/large")).unwrap(), large);
    let mut bytes = [0; 8];
    fs::File::open(past.join("sub/large")).unwrap().read_exact_at(&mut bytes, 7_000_000).unwrap();
    assert_eq!(bytes, large[7_000_000..7_000_008]);
    run(Command::new("find").arg(&past).arg("-ls")).ok();
    // The whole directory at that time, below the directory that is asked.
    assert_eq!(names(&at.join(".shunt-history").join(&first)), ["dir", "file"]);
    assert_eq!(names(&at.join(".shunt-history")), Vec::<String>::new());
    assert_eq!(names(at), ["moved"], "nothing of it is listed");
    for entry in fs::read_dir(&past).unwrap() {
        use std::os::unix::fs::DirEntryExt as _;
        let entry = entry.unwrap();
        assert_eq!(entry.ino(), fs::symlink_metadata(entry.path()).unwrap().ino());
    }
    for when in ["1999-12-31", "2999-12-31", "yesterday", "#999999", "#", ""] {
        refused(fs::metadata(then(&file, when)), Errno::NOENT);
    }

    // Read-only, for every caller.
    let old = then(&file, &first);
    refused(OpenOptions::new().append(true).open(&old), Errno::ROFS);
    refused(fs::write(&old, ""), Errno::ROFS);
    refused(fs::write(past.join("new"), ""), Errno::ROFS);
    refused(fs::create_dir(past.join("new")), Errno::ROFS);
    refused(fs::remove_file(&old), Errno::ROFS);
    refused(fs::remove_file(past.join("one")), Errno::ROFS);
    refused(fs::remove_dir(past.join("sub")), Errno::ROFS);
    refused(fs::rename(&old, at.join("back")), Errno::ROFS);
    refused(fs::rename(past.join("one"), at.join("back")), Errno::ROFS);
    refused(fs::rename(dir.join("two"), past.join("two")), Errno::ROFS);
    refused(fs::hard_link(&old, at.join("back")), Errno::ROFS);
    refused(symlink("x", past.join("new")), Errno::ROFS);
    refused(fs::set_permissions(&old, Permissions::from_mode(0o777)), Errno::ROFS);
    let set = rustix::fs::setxattr(&old, "user.z", b"y", rustix::fs::XattrFlags::empty());
    assert_eq!(set, Err(Errno::ROFS));

    // An existing file of such a name takes precedence.
    let real = beside(&file, &first);
    fs::write(at.join("back"), "real").unwrap();
    fs::rename(at.join("back"), &real).unwrap();
    assert_eq!(read(&real), "real");
    fs::remove_file(&real).unwrap();
    assert_eq!(fs::read(&real).is_ok(), options.contains(&"--at-names"));
    assert_eq!(read(&old), "first");

    // Offline, only cached parts of the history are available.
    mount.set_online(false);
    refused(fs::read(then(&file, &second)), Errno::NETUNREACH);
    refused(fs::metadata(then(&dir, "#1")), Errno::NETUNREACH);
    mount.set_online(true);
    assert_eq!(read(&then(&file, &second)), "second, and longer");
}

#[test]
fn versions_are_listed_and_brought_back() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount_as("ant");
    let (at, file) = (mount.at(), mount.at().join("file"));
    fs::write(&file, "1").unwrap();
    let (first, number) = settled(&mount);
    fs::write(&file, "22").unwrap();
    settled(&mount);
    // Replaced by another file, as editors do.
    fs::write(at.join("new"), "333").unwrap();
    settled(&mount);
    fs::rename(at.join("new"), &file).unwrap();
    settled(&mount);
    let what = |what: &str, size| (what.to_owned(), size);
    assert_eq!(history(&file), [what("file", 3), what("file", 2), what("file", 1)]);
    let shown = run(binary::command(&["volume", "history"]).arg(&file)).ok();
    assert!(
        shown.lines().next().is_some_and(|line| line.contains("ant") && line.ends_with("(now)")),
        "{shown}"
    );
    restore(&[], &[&file]);
    assert_eq!(read(&file), "22");
    restore(&[], &[&then(&file, &first)]);
    assert_eq!(read(&file), "1");
    settled(&mount);
    fs::remove_file(&file).unwrap();
    settled(&mount);
    assert_eq!(history(&file)[..2], [what("removed", 0), what("file", 1)]);
    restore(&[], &[&file]);
    assert_eq!(read(&file), "1");
    let output = run(binary::command(&["volume", "restore"]).arg(at.join("never"))).fails();
    assert!(output.contains("never: no other version of it is kept"), "{output}");

    // A tree, restored next to the present one.
    fs::create_dir_all(at.join("tree/sub")).unwrap();
    fs::write(at.join("tree/sub/a"), "a").unwrap();
    symlink("a", at.join("tree/sub/l")).unwrap();
    run(Command::new("mkfifo").arg(at.join("tree/pipe"))).ok();
    fs::set_permissions(at.join("tree"), Permissions::from_mode(0o750)).unwrap();
    let (full, _) = settled(&mount);
    fs::remove_dir_all(at.join("tree")).unwrap();
    settled(&mount);
    let aside = volume.aside().join("restored");
    let output = run(binary::command(&["volume", "restore"]).arg(at.join("tree"))).fails();
    assert!(output.contains("tree: it was a directory; name a time"), "{output}");
    restore(&["--to", aside.to_str().unwrap()], &[&then(&at.join("tree"), &full)]);
    assert_eq!(
        (names(&aside), names(&aside.join("sub"))),
        (vec!["pipe".into(), "sub".into()], vec!["a".into(), "l".into()])
    );
    assert_eq!(
        (read(&aside.join("sub/l")), fs::metadata(&aside).unwrap().mode() & 0o777),
        ("a".into(), 0o750)
    );

    // The retention is a setting of the volume, and `gc` drops older history.
    let volume_command = |words: &[&str]| {
        let mut command = binary::command(&["volume"]);
        run(command.args(words).env("XDG_DATA_HOME", volume.aside())).ok()
    };
    assert!(volume_command(&["set", "test"]).contains("keep-days      30"));
    volume_command(&["set", "--keep-versions", "1", "test"]);
    assert!(volume_command(&["set", "test"]).contains("keep-versions  1"));
    fs::write(at.join("often"), "1").unwrap();
    for n in 2..6 {
        settled(&mount);
        fs::write(at.join("often"), "1".repeat(n)).unwrap();
    }
    settled(&mount);
    assert_eq!(history(&at.join("often")).len(), 5);
    volume_command(&["gc", "test"]);
    assert_eq!(history(&at.join("often")), [what("file", 5), what("file", 4)]);
    volume_command(&["set", "--keep-days", "0", "test"]);
    volume_command(&["gc", "test"]);
    assert_eq!(history(&at.join("often")), [what("file", 5)]);
    refused(fs::metadata(then(&file, &format!("#{number}"))), Errno::NOENT);
    assert_eq!(read(&then(&at.join("often"), &settled(&mount).0)), "11111");
}

#[test]
fn the_past_is_there_through_a_gateway() {
    needs_mount!();
    let volume = Volume::new();
    let address = format!("127.0.0.1:{}", port::reserve());
    let here = |words: &[&str]| {
        let mut command = binary::command(&["volume"]);
        command.args(words).env("XDG_DATA_HOME", volume.aside()).env("HOME", volume.aside());
        command
    };
    let log = volume.aside().join("served");
    let mut serve = here(&["serve", "test", "--listen", &address, "--address", &address]);
    let serve = serve.stdin(Stdio::null()).stdout(fs::File::create(&log).unwrap());
    let _serving = Ended(serve.spawn().unwrap());
    soon(|| read(&log).contains("is served at "));
    let token = run(&mut here(&["invite", "test"])).ok();
    let away = tempfile::tempdir().unwrap();
    let mut join = binary::command(&["volume", "join", "--node", "away", token.trim()]);
    run(join.env("HOME", away.path()).env_remove("XDG_CONFIG_HOME")).ok();
    let mount = volume.mount_from("away", away.path());
    let file = mount.at().join("dir/file");
    fs::create_dir(mount.at().join("dir")).unwrap();
    fs::write(&file, vec![1; 2 << 20]).unwrap();
    let (first, _) = settled(&mount);
    fs::write(&file, "now").unwrap();
    settled(&mount);
    assert_eq!(fs::read(then(&file, &first)).unwrap(), vec![1; 2 << 20]);
    assert_eq!(names(&then(&mount.at().join("dir"), &first)), ["file"]);
    assert_eq!(history(&file), [("file".to_owned(), 3), ("file".to_owned(), 2 << 20)]);
    restore(&[], &[&file]);
    assert_eq!(fs::metadata(&file).unwrap().len(), 2 << 20);
}

/// Names that look like points in time are allowed: programs form names from dates.
#[test]
fn names_with_times_can_be_made() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount_as("ant");
    let at = mount.at();
    fs::write(at.join("report"), "one").unwrap();
    fs::create_dir(at.join("dir")).unwrap();
    let (moment, seq) = settled(&mount);
    for when in [moment.as_str(), "2020-01-01", &format!("#{seq}")] {
        let name = |what: &str| at.join(format!("{what}@{when}"));
        fs::copy(at.join("report"), name("report")).unwrap();
        fs::File::create_new(name("new")).unwrap();
        fs::create_dir(name("dir")).unwrap();
        fs::create_dir(name("")).unwrap();
        symlink("report", name("link")).unwrap();
        fs::hard_link(at.join("report"), name("hard")).unwrap();
        fs::write(at.join("other"), "other").unwrap();
        fs::rename(at.join("other"), name("moved")).unwrap();
        assert_eq!((read(&name("report")), read(&name("moved"))), ("one".into(), "other".into()));
        assert_eq!(names(&name("dir")), Vec::<String>::new());
    }
    let listed = names(at);
    assert!(listed.len() == 2 + 3 * 7 && listed.iter().all(|name| !name.starts_with(".shunt")), "{listed:?}");
    // They have a history of their own.
    let (now, _) = settled(&mount);
    let dated = at.join("report@2020-01-01");
    fs::write(&dated, "two").unwrap();
    settled(&mount);
    assert_eq!(read(&then(&dated, &now)), "one");
    restore(&[], &[&beside(&dated, &now)]);
    assert_eq!(read(&dated), "one");
}

/// Each directory has the history entry. Nothing can be created in it, and nothing else can take its name.
#[test]
fn the_entry_of_the_past_cannot_be_taken() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount_as("ant");
    let at = mount.at();
    fs::create_dir_all(at.join("dir/sub")).unwrap();
    fs::write(at.join("dir/sub/file"), "text").unwrap();
    let (_, seq) = settled(&mount);
    let past = at.join("dir/.shunt-history");
    let is = fs::metadata(&past).unwrap();
    assert!(is.is_dir() && is.mode() & 0o777 == 0o555);
    assert_eq!(read(&past.join(format!("#{seq}/sub/file"))), "text");
    assert_eq!(fs::canonicalize(past.join("..")).unwrap(), fs::canonicalize(at.join("dir")).unwrap());
    refused(fs::create_dir(&past), Errno::EXIST);
    refused(fs::create_dir(past.join("new")), Errno::ROFS);
    refused(fs::rename(at.join("dir/sub"), &past), Errno::PERM);
    refused(fs::remove_dir(&past), Errno::ROFS);
    refused(fs::rename(&past, at.join("moved")), Errno::ROFS);
    refused(fs::metadata(past.join("sub")), Errno::NOENT);
    run(Command::new("rm").arg("-r").arg(at.join("dir"))).ok();
    assert_eq!(names(at), Vec::<String>::new());
    let again = at.join(format!(".shunt-history/dir@#{seq}"));
    assert_eq!(read(&again.join("sub/file")), "text");
    restore(&[], &[&again]);
    assert_eq!(read(&at.join("dir/sub/file")), "text");
}
