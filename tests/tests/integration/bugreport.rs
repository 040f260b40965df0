//! `shunt bugreport`: the archive is useful, contains no name, and is complete or not there.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use shunt_test_support::cmd::{one_line, within};
use shunt_test_support::{needs_mount, needs_tools, run_for, sh};
use shunt_tests::fixture::{Plan, perform};
use shunt_tests::volume::Mount;
use shunt_tests::{binary, mounts, unprivileged};

/// Texts that must not occur in an archive, in any case of letters. No marker is a word of the program.
const MARKERS: [&str; 16] = [
    "wolpertinger",
    "zwiebelfisch",
    "quetzalweg",
    "krummhorn",
    "hunterzwo",
    "akiazq7x",
    "203.0.113.77",
    "2001:db8::77",
    "grimseya",
    "drachenfels",
    "eyJhbGci",
    "Gürteltier",
    "schnabeltier",
    "moorhuhn",
    "kapuziner",
    "49301234567",
];

/// Lines as daemons, libraries and stores write them.
const LOG_LINES: &str = r#"
2026-11-28T15:08:51Z ERROR shunt_volume: cannot reach postgres://grimseya:hunterzwo@drachenfels.example:5432/moorhuhn: timed out
2026-11-28T15:08:51Z WARN shunt_volume: store s3://kapuziner/moorhuhn?key=AKIAZQ7X: 403, password=hunterzwo token hunterzwo
2026-11-28T15:08:51Z WARN shunt_fuse: lookup failed name=Gürteltier der Familie errno=2 parent=17
2026-11-28T15:08:51Z WARN peer 203.0.113.77:4433 and [2001:db8::77]:4433 closed the connection, Authorization: Bearer eyJhbGci.e30.x
{"level":"WARN","fields":{"message":"cannot open Gürteltier","path":"/srv/schnabeltier/x","node":"drachenfels","hunterzwo":1}}
call +49301234567 or 0049301234567, mail grimseya@drachenfels.example, cannot open "the plan of \"Gürteltier\" file": failed
"#;

/// Unpacks an archive, and returns its only directory.
fn unpack(archive: &Path) -> PathBuf {
    let dir = archive.with_extension("unpacked");
    fs::create_dir(&dir).unwrap();
    run_for(20, Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&dir)).ok();
    let entries: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.into_iter().next().unwrap()
}

/// All files below a directory, with their contents.
fn files(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push((path.clone(), fs::read_to_string(&path).expect("text"))),
        }
    }
    all
}

/// Asserts that no file has a marker, and that the files that a maintainer needs are there.
fn examine(archive: &Path) -> Vec<(PathBuf, String)> {
    let all = files(&unpack(archive));
    for (path, text) in &all {
        for (number, line) in text.lines().enumerate() {
            for marker in MARKERS {
                let leaks = line.to_lowercase().contains(&marker.to_lowercase());
                assert!(!leaks, "{}:{}: {marker} in {line}", path.display(), number + 1);
            }
        }
    }
    for name in ["README.txt", "versions.txt", "settings.txt", "doctor.json", "journal.txt", "kernel.txt"] {
        assert!(
            all.iter().any(|(path, text)| path.ends_with(name) && !text.is_empty() || name == "journal.txt")
        );
    }
    let named = |name: &str| &all.iter().find(|(path, _)| path.ends_with(name)).unwrap().1;
    assert!(named("versions.txt").contains(&format!("shunt {}\n", env!("CARGO_PKG_VERSION"))));
    assert!(named("settings.txt").contains("inotify.max_user_watches"));
    let doctor: Value = serde_json::from_str(named("doctor.json")).unwrap();
    assert!(
        doctor["findings"].as_array().unwrap().iter().any(|finding| finding["check"] == "kernel.version")
    );
    all
}

/// Runs `bugreport -o FILE` to its end.
fn report(command: &mut Command, archive: &Path) {
    let printed = run_for(60, command.arg("-o").arg(archive)).ok();
    assert!(printed.contains("names replaced; look through it before you send it: tar -xzf "), "{printed}");
    assert_eq!(fs::metadata(archive).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A mirror and a volume whose paths, options and names are markers, and requests of their users.
fn plant(dir: &Path, shunt: &dyn Fn(&[&str]) -> Command) -> Vec<Mount> {
    let place = |name: &str| {
        let path = dir.join("Wolpertinger GmbH").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let (source, mirrored) = (place("quetzalweg"), place("krummhorn mnt"));
    let log = place("schnabeltier logs").join("zwiebelfisch.log");
    fs::write(&log, LOG_LINES).unwrap();
    let mut mirror = shunt(&["mirror", "--daemon", "-vvv", "--cache", "none", "-o", "fsname=moorhuhn"]);
    run_for(20, mirror.arg(format!("--log-file={}", log.display())).arg(&source).arg(&mirrored)).ok();
    let mirror = Mount::of(&mirrored);
    fs::write(mirrored.join("Gürteltier der Familie.txt"), "hunterzwo").unwrap();
    assert!(fs::metadata(mirrored.join("kapuziner")).is_err());

    let (data, at) = (place("moorhuhn-data"), place("moorhuhn"));
    run_for(20, shunt(&["volume", "create", "kapuziner"]).env("XDG_DATA_HOME", &data)).ok();
    let mut volume = shunt(&["volume", "mount", "--daemon", "-vv", "--node", "drachenfels", "--cache"]);
    volume.arg(place("cache").join("quetzalweg")).arg("--log-file").arg(dir.join("zwiebelfisch-volume.log"));
    volume.arg("kapuziner").arg(&at).env("XDG_DATA_HOME", &data).env("AWS_SECRET_ACCESS_KEY", "hunterzwo");
    run_for(20, &mut volume).ok();
    let volume = Mount::of(&at);
    fs::write(at.join("Gürteltier"), "schnabeltier").unwrap();
    let _ = run_for(20, shunt(&["volume", "pin"]).arg(at.join("Gürteltier")));
    vec![mirror, volume]
}

#[test]
fn an_archive_has_no_names_and_is_useful() {
    needs_mount!();
    needs_tools!("tar");
    let dir = tempfile::tempdir().unwrap();
    let shunt = |args: &[&str]| binary::command(args);
    let mounts = plant(dir.path(), &shunt);
    let archive = dir.path().join("report.tar.gz");
    report(&mut shunt(&["bugreport"]), &archive);
    let all = examine(&archive);
    let ends_with = |name: &'static str| all.iter().filter(move |(path, _)| path.ends_with(name));
    let options: Vec<_> = ends_with("options.txt").map(|(_, text)| text).collect();
    let mirror = "shunt mirror --background --daemon -vvv --cache none -o fsname=name-";
    assert!(options.iter().any(|text| text.contains(mirror)), "{options:#?}");
    assert!(
        options
            .iter()
            .all(|text| text.contains("\nsuper options rw,user_id=0,group_id=0,default_permissions")),
        "{options:#?}"
    );
    assert!(options.iter().any(|text| text.contains("volume mount --background --daemon -vv --node name-")));
    let is_stat =
        |text: &str| serde_json::from_str::<Value>(text).unwrap()["requests"]["create"]["count"] == 1;
    assert!(ends_with("stat.json").any(|(_, text)| is_stat(text)));
    // Words of Shunt's messages, and the same replacement everywhere.
    assert!(ends_with("log.txt").any(|(_, text)| text.contains("lookup failed name=name-")), "{all:#?}");
    drop(mounts);
}

#[test]
fn an_unprivileged_user_packs_an_archive() {
    needs_mount!();
    needs_tools!("fusermount3", "tar");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    unprivileged::perform(&s, |shunt| {
        let mounts = plant(s.aside(), shunt);
        let archive = s.aside().join("report.tar.gz");
        report(&mut shunt(&["bugreport"]), &archive);
        let all = examine(&archive);
        assert!(all.iter().any(|(path, _)| path.ends_with("stat.json")));
        // Dropping the mounts would ask without this user's directory of sockets.
        for mount in &mounts {
            shunt_test_support::patiently(|| run_for(30, shunt(&["umount"]).arg(mount.at()))).ok();
        }
    });
}

#[test]
fn a_daemon_that_does_not_answer_delays_no_report() {
    needs_mount!();
    perform(Plan::tmpfs(), |mirror| {
        let archive = mirror.aside().join("report.tar.gz");
        // The log of another daemon is on the mount that does not answer.
        let (source, mnt) = (mirror.aside().join("other"), mirror.aside().join("other-mnt"));
        fs::create_dir(&source).and_then(|()| fs::create_dir(&mnt)).unwrap();
        let mut other = binary::command(&["mirror", "--daemon", "--log-file"]);
        run_for(20, other.arg(mirror.path("log")).arg(&source).arg(&mnt)).ok();
        let other = Mount::of(&mnt);
        mounts::stop(mirror.pid());
        let ran = run_for(60, binary::command(&["bugreport", "-o"]).arg(&archive));
        mounts::signal(mirror.pid(), Signal::CONT);
        drop(other);
        ran.ok();
        let all = examine(&archive);
        let doctor = &all.iter().find(|(path, _)| path.ends_with("doctor.json")).unwrap().1;
        let doctor: Value = serde_json::from_str(doctor).unwrap();
        let silent = |f: &Value| f["check"] == "mounts.daemon" && f["level"] == "error";
        assert!(doctor["findings"].as_array().unwrap().iter().any(silent), "{doctor:#}");
        let _ = fs::remove_file(mirror.lower("log"));
    });
}

#[test]
fn standard_output_gets_the_archive_alone() {
    needs_tools!("tar");
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("report.tar.gz");
    let out = File::create(&archive).unwrap();
    let mut command = binary::command(&["bugreport", "-o", "-"]);
    assert!(command.current_dir(dir.path()).stdout(out).status().unwrap().success());
    examine(&archive);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let failed =
        binary::command(&["bugreport", "-o", "-"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    one_line(&String::from_utf8_lossy(&failed.stderr), "cannot write to standard output: no space");
}

#[test]
fn a_full_disk_leaves_no_part_of_an_archive() {
    needs_tools!("mount");
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    sh(dir.path(), "mount -t tmpfs -o size=4k none small").ok();
    let ran = run_for(60, binary::command(&["bugreport"]).current_dir(&small));
    let left = fs::read_dir(&small).unwrap().count();
    let unmounted = sh(dir.path(), "umount small");
    let printed = ran.fails();
    one_line(&printed, "no space left on device; ");
    assert!(printed.contains("cannot write shunt-bugreport-"), "{printed}");
    assert_eq!(left, 0);
    unmounted.ok();
}

#[test]
fn a_file_is_never_overwritten_and_an_interruption_leaves_none() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("report");
    fs::write(&archive, "mine").unwrap();
    let printed = run_for(60, binary::command(&["bugreport", "-o"]).arg(&archive)).fails();
    one_line(&printed, "remove it, or name another file with -o");
    assert_eq!(fs::read(&archive).unwrap(), b"mine");
    fs::remove_file(&archive).unwrap();
    let mut command = binary::command(&["bugreport", "-o"]);
    let mut child = command.arg(&archive).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    mounts::signal(child.id(), Signal::INT);
    let complete = child.wait().unwrap().success();
    assert!(within(std::time::Duration::from_secs(2), || archive.exists() == complete));
}
