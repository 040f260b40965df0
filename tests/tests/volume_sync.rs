//! One volume on several machines: daemons with a cache each, over one store or through a gateway.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use shunt_tests::cmd::Ended;
use shunt_tests::look::{names, read, soon};
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary, needs_mount, run};

#[test]
fn what_the_kernel_knows_is_old_at_once() {
    needs_mount!();
    let volume = Volume::new();
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    fs::create_dir(ant.at().join("docs")).unwrap();
    fs::write(ant.at().join("docs/large"), vec![7; 3 << 20]).unwrap();
    soon(|| fs::read(bee.at().join("docs/large")).is_ok_and(|bytes| bytes == vec![7; 3 << 20]));
    // Names and attributes are believed for an hour.
    for round in 0..5 {
        let (from, to) = if round % 2 == 0 { (&ant, &bee) } else { (&bee, &ant) };
        let text = format!("round {round}");
        fs::write(from.at().join("docs/file"), &text).unwrap();
        soon(|| read(&to.at().join("docs/file")) == text);
    }
    // Another name, and one less: what the other knew of the file goes with it.
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
    // The first that is removed decides, off the network too, and the kernel shows the other at once.
    bee.set_online(false);
    fs::remove_file(place.join("ant")).unwrap();
    assert_eq!(read(&place), "of bee, off the network");
    bee.set_online(true);
    soon(|| read(&there) == "of bee, off the network");
    assert_eq!(read(&place), "of bee, off the network");
}

#[test]
fn a_machine_without_the_stores_goes_through_a_gateway() {
    needs_mount!();
    let volume = Volume::new();
    let log = volume.aside().join("served");
    let words = ["volume", "serve", "test", "--listen", "127.0.0.1:0"];
    let mut serve = binary::command(&words);
    serve.env("XDG_DATA_HOME", volume.aside()).env("HOME", volume.aside());
    // What it says is where it listens, and so where nodes find it.
    let serving = Ended(serve.stdin(Stdio::null()).stdout(File::create(&log).unwrap()).spawn().unwrap());
    soon(|| read(&log).contains("is served at "));
    let said = read(&log);
    let address =
        said.split("is served at ").nth(1).and_then(|rest| rest.split(',').next()).unwrap().to_owned();
    drop(serving);
    let mut serve =
        binary::command(&["volume", "serve", "test", "--listen", &address, "--address", &address]);
    serve.env("XDG_DATA_HOME", volume.aside()).env("HOME", volume.aside());
    let _serving = Ended(serve.stdin(Stdio::null()).stdout(File::create(&log).unwrap()).spawn().unwrap());
    soon(|| read(&log).contains("is served at "));

    let here = |words: &[&str]| {
        let mut command = binary::command(&["volume"]);
        run(command.args(words).env("XDG_DATA_HOME", volume.aside()).env("HOME", volume.aside()))
    };
    let token = here(&["invite", "test"]).ok();
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
    // Leases go through it too.
    soon(|| [&home, &mount].iter().all(|mount| mount.status()["others"] == 1));
    fs::write(mount.at().join("file"), "back").unwrap();
    assert_eq!(read(&home.at().join("file")), "back");
    assert!(here(&["nodes", "list", "test"]).ok().contains("away"));
    here(&["nodes", "remove", "test", "away"]).ok();
    fs::write(mount.at().join("file"), "not any more").unwrap();
    soon(|| mount.status()["reason"].as_str().is_some_and(|reason| reason.contains("not known here")));
    assert_eq!(read(&home.at().join("file")), "back");
}
