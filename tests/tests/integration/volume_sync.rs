//! One volume on several nodes: daemons with their own caches, over one store or through a gateway.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use shunt_test_support::cmd::{Ended, Ran};
use shunt_test_support::{needs_mount, port, run};
use shunt_tests::polling::{names, read, soon};
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary};

#[test]
fn kernel_caches_are_invalidated_at_once() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    fs::create_dir(ant.at().join("docs")).unwrap();
    fs::write(ant.at().join("docs/large"), vec![7; 3 << 20]).unwrap();
    soon(|| fs::read(bee.at().join("docs/large")).is_ok_and(|bytes| bytes == vec![7; 3 << 20]));
    // The kernel caches names and attributes for an hour.
    for round in 0..5 {
        let (from, to) = if round % 2 == 0 { (&ant, &bee) } else { (&bee, &ant) };
        let text = format!("round {round}");
        fs::write(from.at().join("docs/file"), &text).unwrap();
        soon(|| read(&to.at().join("docs/file")) == text);
    }
    // A name is added and removed: the other node's cached link count follows.
    let names_of = |mount: &Mount| fs::metadata(mount.at().join("docs/file")).unwrap().nlink();
    for (what, links) in [(true, 2), (false, 1)] {
        assert_ne!(names_of(&ant), links);
        let second = bee.at().join("docs/second");
        if what { fs::hard_link(bee.at().join("docs/file"), &second) } else { fs::remove_file(&second) }
            .unwrap();
        soon(|| names_of(&ant) == links);
    }
    fs::rename(bee.at().join("docs"), bee.at().join("papers")).unwrap();
    soon(|| !ant.at().join("docs").exists() && read(&ant.at().join("papers/file")) == "round 4");
    fs::remove_dir_all(ant.at().join("papers")).unwrap();
    soon(|| names(bee.at()).is_empty());
}

#[test]
fn two_versions_show_as_a_directory_until_one_is_removed() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    let (there, place) = (ant.at().join("file"), bee.at().join("file"));
    fs::write(&there, "of both").unwrap();
    soon(|| read(&place) == "of both");
    bee.set_online(false);
    fs::write(&place, "of bee, off the network").unwrap();
    fs::write(&there, "of ant").unwrap();
    soon(|| ant.status()["pending"] == 0);
    assert_eq!(read(&place), "of bee, off the network");
    bee.set_online(true);
    soon(|| place.is_dir());
    assert_eq!(names(&place), ["ant", "bee"]);
    assert_eq!(read(&place.join("ant")), "of ant");
    assert_eq!(read(&place.join("bee")), "of bee, off the network");
    assert_eq!(read(&there), "of ant", "it arose elsewhere");
    fs::write(place.join("new"), "").unwrap_err();
    fs::rename(&place, bee.at().join("moved")).unwrap_err();
    fs::remove_dir(&place).unwrap_err();
    // The first removed side decides, also offline, and the kernel shows the other one at once.
    bee.set_online(false);
    fs::remove_file(place.join("ant")).unwrap();
    assert_eq!(read(&place), "of bee, off the network");
    bee.set_online(true);
    soon(|| read(&there) == "of bee, off the network");
    assert_eq!(read(&place), "of bee, off the network");
}

/// A gateway that serves a volume.
struct Gateway<'a> {
    home: &'a Path,
    _serving: Ended,
}

impl<'a> Gateway<'a> {
    fn serve(volume: &'a Volume) -> Self {
        Self::at(volume.aside())
    }

    /// Serves the volume of a home directory: its own, or one that it has joined.
    fn at(home: &'a Path) -> Self {
        let log = home.join("served");
        let serve = |words: &[&str]| {
            let mut serve = Self::command(home, &["serve", "test"]);
            serve.args(words);
            let serve = serve.stdin(Stdio::null()).stdout(File::create(&log).unwrap()).spawn();
            let serving = Ended(serve.unwrap());
            soon(|| read(&log).contains("is served at "));
            serving
        };
        let address = format!("127.0.0.1:{}", port::reserve());
        Self { home, _serving: serve(&["--listen", &address, "--address", &address]) }
    }

    fn command(home: &Path, words: &[&str]) -> Command {
        let mut command = binary::command(&["volume"]);
        command.args(words).env("XDG_DATA_HOME", home).env("HOME", home).env_remove("XDG_CONFIG_HOME");
        command
    }

    /// Runs a command with this home directory.
    fn here(&self, words: &[&str]) -> Ran {
        run(&mut Self::command(self.home, words))
    }

    /// Makes a machine with another home directory a node.
    fn join(&self, node: &str, role: &str, home: &Path) {
        let token = self.here(&["invite", "test", "--role", role]).ok();
        let mut join = binary::command(&["volume", "join", "--node", node, token.trim()]);
        run(join.env("HOME", home).env_remove("XDG_CONFIG_HOME")).ok();
    }
}

#[test]
fn a_machine_without_the_stores_goes_through_a_gateway() {
    needs_mount!();
    let volume = Volume::new();
    let gateway = Gateway::serve(&volume);
    let token = gateway.here(&["invite", "test"]).ok();
    let away = tempfile::tempdir().unwrap();
    let join = || -> Command {
        let mut command = binary::command(&["volume", "join", "--node", "away", token.trim()]);
        command.env("HOME", away.path()).env_remove("XDG_CONFIG_HOME");
        command
    };
    run(&mut join()).ok();
    let again = run(&mut join()).fails();
    assert!(again.contains("is a node of volume test already"), "{again}");

    let home = volume.mount_as("home");
    let mount = volume.mount_from("away", away.path());
    fs::write(home.at().join("file"), vec![5; 2 << 20]).unwrap();
    soon(|| fs::read(mount.at().join("file")).is_ok_and(|bytes| bytes == vec![5; 2 << 20]));
    // Leases go through the gateway, too.
    soon(|| [&home, &mount].iter().all(|mount| mount.status()["peers"] == 1));
    fs::write(mount.at().join("file"), "back").unwrap();
    assert_eq!(read(&home.at().join("file")), "back");
    assert!(gateway.here(&["nodes", "list", "test"]).ok().contains("away"));
    gateway.here(&["nodes", "remove", "test", "away"]).ok();
    fs::write(mount.at().join("file"), "not any more").unwrap();
    soon(|| mount.status()["reason"].as_str().is_some_and(|reason| reason.contains("not known here")));
    assert_eq!(read(&home.at().join("file")), "back");
}

/// Two nodes behind a gateway that has no stores of its own either.
#[test]
fn a_gateway_stands_before_machines_and_behind_another() {
    needs_mount!();
    let volume = Volume::new();
    let front = Gateway::serve(&volume);
    let (branch, desk, lamp) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    front.join("branch", "write", branch.path());
    let refused =
        run(&mut Gateway::command(branch.path(), &["serve", "test", "--listen", "127.0.0.1:0"])).fails();
    assert!(
        refused.contains("branch has role write") && refused.contains("nodes role test branch gateway"),
        "{refused}"
    );
    front.here(&["nodes", "role", "test", "branch", "gateway"]).ok();
    let gateway = Gateway::at(branch.path());
    gateway.join("desk", "write", desk.path());
    gateway.join("lamp", "write", lamp.path());

    let home = volume.mount_as("home");
    let (desk, lamp) = (volume.mount_from("desk", desk.path()), volume.mount_from("lamp", lamp.path()));
    let all = [&home, &desk, &lamp];
    soon(|| all.iter().all(|mount| mount.status()["peers"] == 2));
    fs::write(home.at().join("file"), vec![5; 2 << 20]).unwrap();
    soon(|| {
        all.iter().all(|mount| fs::read(mount.at().join("file")).is_ok_and(|bytes| bytes == vec![5; 2 << 20]))
    });
    // Each node sees what another one closed, whichever way they are connected.
    for (n, mount) in all.into_iter().enumerate() {
        fs::write(mount.at().join("file"), n.to_string()).unwrap();
        for other in all {
            assert_eq!(read(&other.at().join("file")), n.to_string());
        }
    }
    soon(|| all.iter().all(|mount| mount.status()["pending"] == 0));
    let history = run(binary::command(&["volume", "history"]).arg(home.at().join("file"))).ok();
    assert!(history.contains("desk") && history.contains("lamp") && !history.contains("branch"), "{history}");
    // Each side of a conflict has the name of its node.
    desk.set_online(false);
    fs::write(desk.at().join("file"), "of desk").unwrap();
    fs::write(lamp.at().join("file"), "of lamp").unwrap();
    soon(|| lamp.status()["pending"] == 0);
    desk.set_online(true);
    soon(|| names(&desk.at().join("file")) == ["desk", "lamp"]);
}

#[test]
fn read_only_node_changes_nothing_and_sees_changes() {
    needs_mount!();
    let volume = Volume::new();
    let gateway = Gateway::serve(&volume);
    let away = tempfile::tempdir().unwrap();
    gateway.join("away", "read", away.path());
    let home = volume.mount_as("home");
    fs::write(home.at().join("file"), "first").unwrap();
    let mount = volume.mount_from("away", away.path());
    let file = mount.at().join("file");
    soon(|| read(&file) == "first");
    let is_refused = |what: &str, done: std::io::Result<()>| {
        let errno = done.unwrap_err().raw_os_error();
        assert_eq!(errno, Some(rustix::io::Errno::ROFS.raw_os_error()), "{what}");
    };
    let nothing_goes = || {
        is_refused("create", File::create(mount.at().join("new")).map(drop));
        is_refused("mkdir", fs::create_dir(mount.at().join("new")));
        is_refused("symlink", std::os::unix::fs::symlink("x", mount.at().join("new")));
        is_refused("write", File::options().write(true).open(&file).map(drop));
        is_refused("chmod", fs::set_permissions(&file, fs::Permissions::from_mode(0o600)));
        is_refused("rename", fs::rename(&file, mount.at().join("new")));
        is_refused("link", fs::hard_link(&file, mount.at().join("new")));
        is_refused("unlink", fs::remove_file(&file));
        let xattr = rustix::fs::setxattr(&file, "user.a", b"b", rustix::fs::XattrFlags::empty());
        is_refused("setxattr", xattr.map_err(Into::into));
    };
    nothing_goes();
    fs::write(home.at().join("file"), vec![3; 3 << 20]).unwrap();
    soon(|| fs::read(&file).is_ok_and(|bytes| bytes == vec![3; 3 << 20]));
    let status = mount.status();
    assert_eq!((&status["state"], &status["pending"]), (&"online".into(), &0.into()), "{status}");
    assert_eq!(status["read_only"], true);
    // Also offline, after a new mount.
    drop(mount.umount());
    drop(mount);
    let Gateway { _serving: serving, .. } = gateway;
    drop(serving);
    let mount = volume.mount_from("away", away.path());
    is_refused("mkdir", fs::create_dir(mount.at().join("new")));
}

#[test]
fn a_node_that_may_only_read_from_now_on_keeps_its_changes_and_sees_those_of_others() {
    needs_mount!();
    let volume = Volume::new();
    let gateway = Gateway::serve(&volume);
    let away = tempfile::tempdir().unwrap();
    gateway.join("away", "write", away.path());
    let (home, mount) = (volume.mount_as("home"), volume.mount_from("away", away.path()));
    fs::write(home.at().join("large"), vec![8; 3 << 20]).unwrap();
    fs::create_dir(mount.at().join("sent")).unwrap();
    soon(|| home.at().join("sent").is_dir() && mount.at().join("large").exists());
    mount.set_online(false);
    // A change without content, and one with content.
    for (round, name) in ["directory", "file"].into_iter().enumerate() {
        let here = mount.at().join(name);
        if round == 0 { fs::create_dir(&here) } else { fs::write(&here, vec![9; 1 << 20]) }.unwrap();
        gateway.here(&["nodes", "role", "test", "away", "read"]).ok();
        mount.set_online(true);
        soon(|| {
            mount.status()["reason"].as_str().is_some_and(|reason| reason.contains("away has role read"))
        });
        assert_eq!(mount.status()["state"], "stopped");
        fs::write(home.at().join("news"), name).unwrap();
        soon(|| read(&mount.at().join("news")) == name);
        assert_eq!(fs::read(mount.at().join("large")).unwrap(), vec![8; 3 << 20]);
        let refused = fs::create_dir(mount.at().join("new")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
        assert!(mount.status()["pending"].as_u64().unwrap() > 0);
        gateway.here(&["nodes", "role", "test", "away", "write"]).ok();
        soon(|| mount.status()["read_only"] == false);
        mount.set_online(false);
        mount.set_online(true);
        soon(|| mount.status()["pending"] == 0 && home.at().join(name).exists());
        mount.set_online(false);
    }
    assert_eq!(fs::read(home.at().join("file")).unwrap(), vec![9; 1 << 20]);
}
