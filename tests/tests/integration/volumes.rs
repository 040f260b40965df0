//! Volumes from the view of programs.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use shunt_test_support::cmd::within;
use shunt_test_support::{User, needs_mount, needs_tools, requirement, run, run_for, sh, tools};
use shunt_tests::pjdfstest::{ALL_CASES, Pjdfstest};
use shunt_tests::polling::soon;
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary};

/// Typical work of a program, and its result after the next mount.
#[test]
fn changes_survive_a_remount() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(&[]);
    let at = mount.at();
    fs::create_dir_all(at.join("a/b")).unwrap();
    fs::write(at.join("a/file"), "content").unwrap();
    fs::hard_link(at.join("a/file"), at.join("a/b/other")).unwrap();
    symlink("../a/file", at.join("link")).unwrap();
    fs::rename(at.join("a/file"), at.join("moved")).unwrap();
    let set =
        |name: &str| rustix::fs::setxattr(at.join("moved"), name, b"y", rustix::fs::XattrFlags::empty());
    set("user.x").unwrap();
    // As with ext4.
    assert_eq!((set("user."), set("nope.x")), (Err(Errno::INVAL), Err(Errno::OPNOTSUPP)));
    run(Command::new("mkfifo").arg(at.join("pipe"))).ok();
    fs::set_permissions(at.join("moved"), fs::Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(at.join("moved")).unwrap();
    assert_eq!((before.nlink(), before.len()), (2, 7));
    assert_eq!(fs::metadata(at.join("a")).unwrap().nlink(), 3);
    drop(mount);

    let mount = volume.mount(&[]);
    let at = mount.at();
    let after = fs::metadata(at.join("moved")).unwrap();
    assert_eq!(after.ino(), before.ino());
    assert_eq!((after.mode() & 0o7777, after.modified().unwrap()), (0o640, before.modified().unwrap()));
    assert_eq!(fs::read_to_string(at.join("a/b/other")).unwrap(), "content");
    assert_eq!(fs::read_link(at.join("link")).unwrap().to_str(), Some("../a/file"));
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(at.join("moved"), "user.x", &mut value), Ok(1));
    let mut names: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "link", "moved", "pipe"]);
    for entry in fs::read_dir(at).unwrap() {
        use std::os::unix::fs::DirEntryExt as _;
        let entry = entry.unwrap();
        assert_eq!(entry.ino(), fs::symlink_metadata(entry.path()).unwrap().ino());
    }
}

/// Setid bits set while the file is open are cleared by a write through passthrough.
#[test]
fn rights_that_a_file_gets_while_it_is_open_end_with_a_write() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(&["-o", "suid,allow_other"]);
    let path = mount.at().join("program");
    fs::write(&path, "x").unwrap();
    let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    set(0o777);
    let file = User::new(1001).run(|| {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"y", 0).unwrap();
        file
    });
    for _ in 0..2 {
        set(0o6777);
        assert_eq!(mode(), 0o6777, "nobody wrote yet");
        User::new(1001).run(|| file.write_all_at(b"z", 0).unwrap());
        assert_eq!(mode(), 0o777);
    }
    // A chown to the same owner, which clears the bits of a file, leaves those of a directory.
    let directory = mount.at().join("directory");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o6777)).unwrap();
    std::os::unix::fs::chown(&directory, None, None).unwrap();
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o6777);
}

/// Root's setuid program restored from history by another user is not setuid.
#[test]
fn restore_by_another_user_drops_owner_rights() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(&["-o", "suid,allow_other"]);
    let program = mount.at().join("program");
    fs::write(&program, "x").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    assert!(within(Duration::from_secs(20), || mount.status()["pending"] == 0), "{}", mount.status());
    let output = run(binary::command(&["volume", "log", "--json", "-n", "1"]).arg(mount.at())).ok();
    let last: serde_json::Value = serde_json::from_str(&output).unwrap();
    let then = mount.at().join(format!(".shunt-history/program@#{}", last[0]["seq"]));
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let restore =
        |to: &std::path::Path| run(binary::command(&["volume", "restore"]).arg(&then).arg("--to").arg(to));
    let [theirs, roots] = ["theirs", "roots"].map(|name| place.path().join(name));
    User::new(1001).run(|| restore(&theirs)).ok();
    restore(&roots).ok();
    let is = |path| fs::metadata(path).map(|of| (of.uid(), of.mode() & 0o7777)).unwrap();
    assert_eq!((is(&theirs), is(&roots)), ((1001, 0o755), (0, 0o6755)));
}

/// The kernel knows all attributes of a file created through the mount; it requests the birth time once for all files.
#[test]
fn attributes_of_new_files_are_not_asked_for() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(&[]);
    let path = |at: u32| mount.at().join(format!("file{at}"));
    (0..100).for_each(|at| drop(File::create_new(path(at)).unwrap()));
    // Pushing changes does not invalidate the kernel's caches.
    assert!(within(Duration::from_secs(20), || mount.status()["pending"] == 0), "{}", mount.status());
    let asked = || {
        let requests = &mount.stat()["requests"];
        let count = |name: &str| requests[name]["count"].as_u64().unwrap_or(0);
        count("getattr") + count("statx") + count("lookup")
    };
    let before = asked();
    (0..100).for_each(|at| assert_eq!(fs::metadata(path(at)).unwrap().len(), 0));
    let requests = asked() - before;
    assert!(requests < 10, "{requests} requests");
}

#[test]
fn files_are_passed_through() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let volume = Volume::new();
    let mount = volume.mount(&[]);
    let stat = mount.stat();
    requirement!(stat["passthrough"]["enabled"] == true, "no passthrough: {}", stat["passthrough"]["reason"]);
    let path = mount.at().join("file");
    let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    // Time and size after writes that bypass the daemon.
    let written = file.metadata().unwrap().modified().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    file.write_all_at(b"more", 200_000).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 200_004);
    assert!(fs::metadata(&path).unwrap().modified().unwrap() > written);
    drop(file);
    let stat = mount.stat();
    assert!(stat["passthrough"]["opens"].as_u64().unwrap() > 0, "{stat}");
    assert!(stat["requests"]["WRITE"].is_null() && stat["requests"]["write"].is_null(), "{stat}");
    drop(mount);
    let mount = volume.mount(&[]);
    assert_eq!(fs::read(mount.at().join("file")).unwrap().len(), 200_004);
}

#[test]
fn an_open_file_outlives_its_name() {
    needs_mount!();
    for args in [&[][..], &["--passthrough", "off"]] {
        let volume = Volume::new();
        let mount = volume.mount(args);
        let path = mount.at().join("file");
        let mut file =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all(b"still").unwrap();
        assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().len()), (0, 5));
        let mut read = [0; 5];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"still");
        drop(file);
        assert!(!path.exists());
    }
}

/// Two programs list a directory while names are created and removed.
#[test]
fn a_listing_goes_on_where_it_was() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(&[]);
    let name = |n: usize| mount.at().join(format!("{n:05}"));
    (0..3000).for_each(|n| drop(File::create(name(n)).unwrap()));
    let mut seen = 0;
    for entry in fs::read_dir(mount.at()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        seen += 1;
    }
    assert_eq!(seen, 3000);
    assert_eq!(fs::read_dir(mount.at()).unwrap().count(), 0);
}

/// A killed daemon loses nothing that was synced.
#[test]
fn synced_data_survives_the_daemon() {
    needs_mount!();
    let volume = Volume::new();
    for round in 0..3 {
        let mount = volume.mount(&[]);
        let kept: Vec<_> = (0..20).map(|n| mount.at().join(format!("{round}-{n}"))).collect();
        for path in &kept {
            let mut file = File::create(path).unwrap();
            write!(file, "kept in {}", path.display()).unwrap();
            file.sync_all().unwrap();
            fs::write(path.with_extension("not"), "this may go").unwrap();
        }
        mount.kill();
        let mount = volume.mount(&[]);
        for path in &kept {
            assert_eq!(fs::read_to_string(path).unwrap(), format!("kept in {}", path.display()));
        }
        fs::remove_file(&kept[0]).unwrap();
        File::open(mount.at()).unwrap().sync_all().unwrap();
        mount.kill();
        let mount = volume.mount(&[]);
        assert!(!kept[0].exists());
        drop(mount);
    }
}

#[test]
fn it_is_mounted_once() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(&[]);
    let output = run_for(20, &mut volume.mount_command(&[])).fails();
    assert!(output.contains("mounted already"), "{output}");
    let status = run(binary::command(&["volume", "status", "--json"]).arg(mount.at())).ok();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!((status["name"].as_str(), status["node"].as_str()), (Some("test"), Some("here")));
}

#[test]
fn git_works_on_it() {
    needs_mount!();
    needs_tools!("git");
    let volume = Volume::new();
    let mount = volume.mount(&[]);
    let script = "
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q one && cd one && seq 1 2000 > numbers && mkdir -p d/e && cp /etc/passwd d/e
        git add . && git commit -qm first && git gc -q
        for n in 1 2 3 4 5; do echo $n > d/$n && git add . && git commit -qm $n; done
        cd .. && git clone -q one two && git -C two fsck --full --strict && cd two && git diff --exit-code HEAD
        git checkout -q HEAD~3 && git status --porcelain";
    let ran = run_for(60, Command::new("sh").args(["-ec", script]).current_dir(mount.at()));
    assert_eq!(ran.ok(), "");
}

#[test]
fn rsync_finds_nothing_to_do_afterwards() {
    needs_mount!();
    needs_tools!("rsync");
    let volume = Volume::new();
    let source = volume.aside().join("source");
    // With a timestamp in the past: rsync compares seconds, and would not update a directory modified in the current one,
    // although it may change in the next when names are created in it.
    sh(volume.aside(), &format!(
        "mkdir -p {0}/d && cp -a /etc/hosts /etc/passwd {0}/d && ln -s d/hosts {0}/l && ln {0}/d/hosts {0}/h \
         && touch -d @1500000000 {0}/d {0}",
        source.display()
    ))
    .ok();
    let rsync = |mount: &shunt_tests::volume::Mount| {
        let mut command = Command::new("rsync");
        command.args(["-aHXi", "--checksum"]).arg(format!("{}/", source.display())).arg(mount.at());
        run(&mut command).ok()
    };
    let mount = volume.mount(&[]);
    assert!(rsync(&mount).contains("d/hosts"));
    assert_eq!(rsync(&mount), "");
    drop(mount);
    assert_eq!(rsync(&volume.mount(&[])), "");
}

fn fsx(args: &[&str], operations: u32) {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(args);
    shunt_tests::fsx::run(mount.at(), volume.aside(), operations, &[]);
}

#[test]
fn fsx_passed_through() {
    fsx(&[], 4000);
}

#[test]
fn fsx_through_the_daemon() {
    fsx(&["--passthrough", "off"], 4000);
}

#[test]
fn pjdfstest() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let tool = tools::tool("pjdfstest");
    requirement!(tool.is_some(), "no pjdfstest (run tests/setup)");
    let volume = Volume::new();
    let mount = volume.mount(&["-o", "suid,dev"]);
    fs::set_permissions(mount.at(), fs::Permissions::from_mode(0o777)).unwrap();
    let suite = Pjdfstest {
        tool: &tool.unwrap(),
        aside: volume.aside(),
        elsewhere: "/dev/shm",
        expected_failures: &[],
        remount: false,
    };
    assert!(suite.run(mount.at(), &[]) >= ALL_CASES, "the suite did not really run");
}

#[test]
fn open_reader_sees_later_write() {
    needs_mount!();
    let volume = Volume::new();
    let mount = volume.mount(&[]);
    let path = mount.at().join("file");
    fs::write(&path, "before").unwrap();
    let mut reader = File::open(&path).unwrap();
    fs::write(&path, "afterwards").unwrap();
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(read, "afterwards");
}

/// Waits until a name shows this content, or does not exist.
#[track_caller]
fn shows(at: &std::path::Path, content: Option<&str>) {
    let seen = || fs::read_to_string(at).ok();
    let same = within(std::time::Duration::from_secs(20), || seen().as_deref() == content);
    assert!(same, "{}: {:?}, not {content:?}", at.display(), seen());
}

#[test]
fn two_machines_meet() {
    needs_mount!();
    let volume = Volume::new();
    let (one, two) = (volume.mount_as("one"), volume.mount_as("two"));
    fs::create_dir(one.at().join("d")).unwrap();
    fs::write(one.at().join("d/file"), "from one").unwrap();
    shows(&two.at().join("d/file"), Some("from one"));
    fs::write(two.at().join("d/file"), "from two, and longer").unwrap();
    shows(&one.at().join("d/file"), Some("from two, and longer"));
    fs::rename(one.at().join("d/file"), one.at().join("moved")).unwrap();
    shows(&two.at().join("moved"), Some("from two, and longer"));
    shows(&two.at().join("d/file"), None);

    let online = |mount: &shunt_tests::volume::Mount, word: &str| {
        run(binary::command(&["volume", word]).arg(mount.at())).ok();
    };
    online(&one, "offline");
    fs::write(one.at().join("while off"), "the network").unwrap();
    fs::remove_file(one.at().join("moved")).unwrap();
    fs::write(two.at().join("meanwhile"), "on it").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!two.at().join("while off").exists() && !one.at().join("meanwhile").exists());
    // It stays so until it is set online again.
    drop(one);
    let one = volume.mount_as("one");
    assert_eq!(one.status()["state"], "offline");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!two.at().join("while off").exists() && !one.at().join("meanwhile").exists());
    online(&one, "online");
    shows(&two.at().join("while off"), Some("the network"));
    shows(&two.at().join("moved"), None);
    shows(&one.at().join("meanwhile"), Some("on it"));
}

/// Problems of a volume are reported and counted in the exit code, and repaired if an intact copy exists.
#[test]
fn a_volume_is_checked_and_repaired() {
    needs_tools!("sqlite3", "script");
    let dir = tempfile::tempdir().unwrap();
    let shunt = |args: &[&str]| {
        let mut command = Command::new(binary::shunt());
        run(command.args(["volume"]).args(args).arg("notes").env("XDG_DATA_HOME", dir.path()))
    };
    shunt(&["create"]).ok();
    let sound = shunt(&["check", "--read", "--json"]).ok();
    assert!(sound.contains("\"problem_count\":0"), "{sound}");
    shunt(&["gc"]).ok();
    // On a terminal, progress is shown.
    let line = format!("{} volume check notes", binary::shunt().display());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]).env("XDG_DATA_HOME", dir.path());
    let shown = run(&mut terminal).ok();
    assert!(shown.contains("checking: ") && shown.contains("problems  0"), "{shown}");
    let meta = dir.path().join("shunt/volumes/notes/meta.db");
    run(Command::new("sqlite3").arg(meta).arg("UPDATE object SET names = 3")).ok();
    let wrong = shunt(&["check"]).fails();
    assert!(wrong.contains("volume notes has 1 problem"), "{wrong}");
    shunt(&["check", "--repair"]).ok();
    shunt(&["check"]).ok();
}

/// Programs that look for holes treat a file without blocks as one hole, and copy nothing.
#[test]
fn holes_of_what_was_written_here_take_no_blocks() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as_with("bee", &["--cache-mode", "cached"]));
    let (size, name) = (64 << 20, "sparse");
    let whole = size / 512;
    let file = fs::File::create(ant.at().join(name)).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(&[7; 8192], size / 2).unwrap();
    drop(file);
    // Not the cached number from a time when less data was present.
    let blocks = |mount: &Mount| {
        let path = mount.at().join(name);
        statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BLOCKS).map_or(0, |found| found.stx_blocks)
    };
    soon(|| (16..1024).contains(&blocks(&ant)));
    // Nothing is cached: all of it may be data.
    soon(|| blocks(&bee) == whole);
    assert!(fs::read(bee.at().join(name)).unwrap() == fs::read(ant.at().join(name)).unwrap());
}

#[test]
fn copies_of_what_is_not_here_are_whole() {
    needs_mount!();
    needs_tools!("tar", "rsync");
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as_with("bee", &["--cache-mode", "cached"]));
    let bytes: Vec<u8> =
        (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).take(3 << 20).collect();
    let copies = [
        "cp --sparse=auto {} q",
        "cp --sparse=always {} q",
        "rsync -S {} q",
        "tar -cSf - {} | tar -xOf - > q",
    ];
    for n in 0..copies.len() {
        fs::write(ant.at().join(n.to_string()), &bytes).unwrap();
    }
    let last = bee.at().join((copies.len() - 1).to_string());
    soon(|| fs::metadata(&last).is_ok_and(|metadata| metadata.len() == bytes.len() as u64));
    for (n, copy) in copies.iter().enumerate() {
        let file = bee.at().join(n.to_string());
        assert!(fs::metadata(&file).unwrap().blocks() >= bytes.len() as u64 / 512, "{copy}");
        sh(
            bee.at(),
            &copy.replace("{}", &n.to_string()).replace(" q", &format!(" {}/q", volume.aside().display())),
        )
        .ok();
        assert!(fs::read(volume.aside().join("q")).unwrap() == bytes, "{copy}");
        fs::remove_file(volume.aside().join("q")).unwrap();
    }
    // If the content is unavailable, reading fails, and never returns zeros.
    fs::write(ant.at().join("gone"), &bytes).unwrap();
    soon(|| fs::metadata(bee.at().join("gone")).is_ok_and(|metadata| metadata.len() == bytes.len() as u64));
    bee.set_online(false);
    for copy in ["cp --sparse=always gone q", "tar -cSf q gone"] {
        sh(bee.at(), &copy.replace(" q", &format!(" {}/q", volume.aside().display()))).fails();
    }
    bee.set_online(true);
}
