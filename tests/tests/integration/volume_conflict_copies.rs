//! A volume in which conflicts are resolved as they arise: this node's version stays at the path, the other one is put beside
//! it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, run};
use shunt_tests::{Volume, binary};

/// Returns all names below a directory, with the content and mode of each file.
fn tree(at: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut ahead = vec![at.to_owned()];
    while let Some(dir) = ahead.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.path().strip_prefix(at).unwrap().to_str().unwrap().to_owned();
            let Ok(metadata) = entry.metadata() else { continue };
            let text = match metadata.is_dir() {
                true => "/".to_owned(),
                false => fs::read_to_string(entry.path()).unwrap_or_default(),
            };
            let mode = metadata.mode() & 0o777;
            found.push((name, if mode == 0o600 { format!("{text} 600") } else { text }));
            if metadata.is_dir() {
                ahead.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn each_kind_leaves_this_machines_version_at_the_path() {
    needs_mount!();
    let volume = Volume::new();
    let mut set = binary::command(&["volume", "set", "--conflicts", "copy", "test"]);
    assert!(run(set.env("XDG_DATA_HOME", volume.aside())).ok().contains("conflicts      copy"));
    let (ant, bee) = (volume.mount_as("ant"), volume.mount_as("bee"));
    let soon = |what: &dyn Fn() -> bool| {
        let came = within(Duration::from_secs(30), what);
        assert!(came, "it does not come: {:#?} and {:#?}", tree(ant.at()), tree(bee.at()));
    };
    let begin = |at: &Path| {
        for name in ["changed.txt", "lost", "kept.txt", "mode", "moved", "same"] {
            fs::write(at.join(name), name).unwrap();
        }
        // The name is taken: by an existing file, and by an earlier conflict.
        fs::write(at.join("changed.theirs-ant.txt"), "there before").unwrap();
        for dir in ["tree", "gone", "dir", "one", "other"] {
            fs::create_dir(at.join(dir)).unwrap();
            fs::write(at.join(dir).join("inside"), dir).unwrap();
        }
    };
    begin(ant.at());
    soon(&|| tree(bee.at()) == tree(ant.at()) && ant.status()["pending"] == 0);
    // Files that are changed offline have to be cached.
    run(Command::new("cp").args(["-r", "--"]).arg(bee.at()).arg(volume.aside().join("read"))).ok();
    bee.set_online(false);
    let at = |name: &str| ant.at().join(name);
    fs::write(at("changed.txt"), "by ant").unwrap();
    fs::write(at("same"), "alike").unwrap();
    fs::remove_file(at("lost")).unwrap();
    fs::write(at("kept.txt"), "by ant").unwrap();
    fs::set_permissions(at("mode"), Permissions::from_mode(0o640)).unwrap();
    fs::rename(at("moved"), at("moved to ant")).unwrap();
    fs::remove_dir_all(at("tree")).unwrap();
    fs::write(at("gone/more"), "of ant").unwrap();
    fs::rename(at("dir"), at("dir of ant")).unwrap();
    fs::rename(at("one"), at("other/one")).unwrap();
    fs::write(at("new"), "of ant").unwrap();
    fs::write(at("odd.d"), "a file of ant").unwrap();
    let at = |name: &str| bee.at().join(name);
    fs::write(at("changed.txt"), "by bee").unwrap();
    fs::write(at("same"), "alike").unwrap();
    fs::write(at("lost"), "by bee").unwrap();
    fs::remove_file(at("kept.txt")).unwrap();
    fs::set_permissions(at("mode"), Permissions::from_mode(0o600)).unwrap();
    fs::rename(at("moved"), at("moved to bee")).unwrap();
    fs::write(at("tree/more"), "of bee").unwrap();
    fs::remove_dir_all(at("gone")).unwrap();
    fs::rename(at("dir"), at("dir of bee")).unwrap();
    fs::rename(at("other"), at("one/other")).unwrap();
    fs::write(at("new"), "of bee").unwrap();
    fs::create_dir(at("odd.d")).unwrap();
    fs::write(at("odd.d/inside"), "of bee").unwrap();
    soon(&|| ant.status()["pending"] == 0);
    bee.set_online(true);
    let expected = [
        ("changed.theirs-ant.txt", "there before"),
        ("changed.theirs-ant~2.txt", "by ant"),
        ("changed.txt", "by bee"),
        ("dir of bee", "/"),
        ("dir of bee/inside", "dir"),
        ("gone.theirs-ant", "/"),
        ("gone.theirs-ant/inside", "gone"),
        ("gone.theirs-ant/more", "of ant"),
        ("kept.theirs-ant.txt", "by ant"),
        ("lost", "by bee"),
        ("mode", "mode 600"),
        ("mode.theirs-ant", "mode"),
        ("moved to ant", "moved"),
        ("moved to bee", "moved"),
        ("new", "of bee"),
        ("new.theirs-ant", "of ant"),
        ("odd.d", "/"),
        ("odd.d/inside", "of bee"),
        ("odd.theirs-ant.d", "a file of ant"),
        ("other", "/"),
        ("other/inside", "other"),
        ("other/one", "/"),
        ("other/one/inside", "one"),
        ("same", "alike"),
        ("tree", "/"),
        ("tree/more", "of bee"),
    ]
    .map(|(name, text)| (name.to_owned(), text.to_owned()));
    soon(&|| tree(bee.at()) == expected && tree(ant.at()) == expected);
    soon(&|| bee.status()["pending"] == 0);
    for mount in [&ant, &bee] {
        let output = run(binary::command(&["volume", "conflicts", "--json"]).arg(mount.at())).ok();
        assert_eq!(output.trim(), "[]");
    }
    // In a second round the names of the first one exist.
    bee.set_online(false);
    fs::write(ant.at().join("new"), "ant again").unwrap();
    fs::write(bee.at().join("new"), "bee again").unwrap();
    soon(&|| ant.status()["pending"] == 0);
    bee.set_online(true);
    let read = |at: &Path, name: &str| fs::read_to_string(at.join(name)).unwrap_or_default();
    soon(&|| {
        [ant.at(), bee.at()].into_iter().all(|at| {
            read(at, "new") == "bee again"
                && read(at, "new.theirs-ant") == "of ant"
                && read(at, "new.theirs-ant~2") == "ant again"
        })
    });
    // Disabled again: a later conflict is shown as a directory.
    let mut set = binary::command(&["volume", "set", "--conflicts", "directory", "test"]);
    run(set.env("XDG_DATA_HOME", volume.aside())).ok();
    soon(&|| bee.status()["received"].as_u64() > Some(0) && ant.status()["pending"] == 0);
    bee.set_online(false);
    fs::write(ant.at().join("same"), "ant").unwrap();
    fs::write(bee.at().join("same"), "bee").unwrap();
    soon(&|| ant.status()["pending"] == 0);
    bee.set_online(true);
    soon(&|| bee.at().join("same").is_dir());
}
