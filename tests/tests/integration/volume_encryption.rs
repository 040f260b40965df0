//! An encrypted volume, whose stores know neither contents nor names.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::XattrFlags;
use shunt_test_support::{needs_mount, run};
use shunt_tests::polling::{names, read, soon};
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary};

/// Text in every name, symlink target, attribute and file of these tests.
const SECRET: &str = "zanzibar";

struct EncryptedVolume {
    volume: Volume,
}

impl EncryptedVolume {
    fn new() -> Self {
        let volume = Volume::new();
        let hidden = Self { volume };
        run(hidden.command(&["create", "diary", "--encrypt", "--key-file"]).arg(hidden.key())).ok();
        hidden
    }

    fn key(&self) -> PathBuf {
        self.volume.aside().join("key")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = binary::command(&["volume"]);
        command.args(words);
        command.env("XDG_DATA_HOME", self.volume.aside()).env("HOME", self.volume.aside());
        command.env_remove("XDG_CONFIG_HOME");
        command
    }

    fn mount_command(&self, node: &str) -> Command {
        let at = self.volume.aside().join(format!("at-{node}"));
        fs::create_dir_all(&at).unwrap();
        let mut command = self.command(&["mount", "--daemon", "--node", node, "diary"]);
        command.arg(at).arg("--cache").arg(self.volume.aside().join(format!("of-{node}")));
        command
    }

    fn mount(&self, node: &str) -> Mount {
        run(self.mount_command(node).arg("--key-file").arg(self.key())).ok();
        Mount::of(&self.volume.aside().join(format!("at-{node}")))
    }

    fn store(&self) -> PathBuf {
        self.volume.aside().join("shunt/volumes/diary")
    }
}

/// Returns the files below a directory that contain some bytes, in their name or content.
fn holding(at: &Path, what: &[u8]) -> Vec<PathBuf> {
    let (mut found, mut ahead) = (Vec::new(), vec![at.to_owned()]);
    while let Some(path) = ahead.pop() {
        if path.is_dir() {
            ahead.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if fs::read(&path).unwrap().windows(what.len()).any(|window| window == what) {
            found.push(path);
        }
    }
    found
}

#[test]
fn no_name_is_in_the_stores_and_all_is_on_the_machines() {
    needs_mount!();
    let hidden = EncryptedVolume::new();
    assert!(
        run(&mut hidden.mount_command("ant"))
            .fails()
            .contains("is encrypted: give its key with --key-file FILE")
    );
    // Settings that nodes rely on are sealed; settings for the stores alone need no key.
    run(&mut hidden.command(&["set", "--keep-days", "40", "diary"])).ok();
    let refused = run(&mut hidden.command(&["set", "--quota", "100M", "diary"])).fails();
    assert!(refused.contains("sealed with its key") && refused.contains("--key-file FILE"), "{refused}");
    run(hidden.command(&["set", "--quota", "100M", "diary", "--key-file"]).arg(hidden.key())).ok();
    let (ant, bee) = (hidden.mount("ant"), hidden.mount("bee"));
    let at = |name: &str| ant.at().join(name.replace('Z', SECRET));
    let there = |name: &str| bee.at().join(name.replace('Z', SECRET));
    fs::create_dir_all(at("dir-Z/deep-Z")).unwrap();
    fs::write(at("dir-Z/file-Z"), SECRET.repeat(1000)).unwrap();
    fs::write(at("dir-Z/small"), SECRET).unwrap();
    symlink(format!("../{SECRET}"), at("dir-Z/link")).unwrap();
    symlink("t".repeat(4095), at("long")).unwrap();
    let longest = format!("{SECRET}{}", "n".repeat(255 - SECRET.len()));
    fs::write(at(&longest), "").unwrap();
    rustix::fs::setxattr(at("dir-Z"), "user.zanzibar", SECRET.as_bytes(), XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(at("dir-Z/small"), "user.gone-zanzibar", b"", XattrFlags::empty()).unwrap();
    rustix::fs::removexattr(at("dir-Z/small"), "user.gone-zanzibar").unwrap();
    soon(|| ant.status()["pending"] == 0);
    soon(|| names(&there("dir-Z")) == ["deep-zanzibar", &format!("file-{SECRET}"), "link", "small"]);
    soon(|| names(bee.at()).len() == 3 && there(&longest).exists());
    assert_eq!(read(&there("dir-Z/file-Z")), SECRET.repeat(1000));
    assert_eq!(fs::read_link(there("dir-Z/link")).unwrap().to_str(), Some("../zanzibar"));
    assert_eq!(fs::read_link(there("long")).unwrap().as_os_str().len(), 4095);
    let mut value = [0; 20];
    let length = rustix::fs::getxattr(there("dir-Z"), "user.zanzibar", &mut value).unwrap();
    assert_eq!(&value[..length], SECRET.as_bytes());

    // In the other direction, with existing names: renamed, replaced, removed.
    fs::rename(there("dir-Z/file-Z"), there("dir-Z/deep-Z/moved-Z")).unwrap();
    fs::rename(there("dir-Z/small"), there("dir-Z/link")).unwrap();
    fs::remove_file(there("long")).unwrap();
    rustix::fs::removexattr(there("dir-Z"), "user.zanzibar").unwrap();
    soon(|| names(&at("dir-Z")) == ["deep-zanzibar", "link"] && read(&at("dir-Z/link")) == SECRET);
    soon(|| rustix::fs::getxattr(at("dir-Z"), "user.zanzibar", &mut [0; 20]).is_err());
    assert_eq!(read(&at("dir-Z/deep-Z/moved-Z")), SECRET.repeat(1000));

    // Two versions of one name.
    bee.set_online(false);
    fs::write(at("new-Z"), "of ant").unwrap();
    fs::write(there("new-Z"), "of bee").unwrap();
    soon(|| ant.status()["pending"] == 0);
    bee.set_online(true);
    soon(|| read(&there("new-Z/bee")) == "of bee" && read(&there("new-Z/ant")) == "of ant");
    fs::remove_file(there("new-Z/ant")).unwrap();
    soon(|| read(&at("new-Z")) == "of bee");
    soon(|| bee.status()["pending"] == 0);

    // The history of changes, with their authors.
    let log = run(hidden.command(&["log"]).arg(ant.at())).ok();
    assert!(log.contains("made     new-zanzibar"), "{log}");
    let history = run(hidden.command(&["history"]).arg(at("dir-Z/small"))).ok();
    assert!(history.contains("removed"), "{history}");
    let before = log.lines().find(|line| line.contains("made") && line.contains("small")).unwrap();
    let seq = before.split_whitespace().next().unwrap();
    assert!(names(&at(&format!(".shunt-history/dir-Z@#{seq}"))).contains(&"small".to_owned()));
    assert_eq!(ant.status()["quota"]["held"]["limit_bytes"], 100 << 20);

    assert_eq!(holding(&hidden.store(), SECRET.as_bytes()), Vec::<PathBuf>::new());
    assert!(!holding(&hidden.volume.aside().join("of-ant"), SECRET.as_bytes()).is_empty());
    drop((ant, bee));
    // Also after the WAL was checkpointed into the database file.
    let key = hidden.key();
    run(hidden.command(&["check", "--read", "diary", "--key-file"]).arg(&key)).ok();
    run(hidden.command(&["gc", "diary", "--key-file"]).arg(&key)).ok();
    assert!(run(&mut hidden.command(&["check", "diary"])).fails().contains("is encrypted"));
    assert_eq!(holding(&hidden.store(), SECRET.as_bytes()), Vec::<PathBuf>::new());
    // A new node reads the whole tree.
    let cat = hidden.mount("cat");
    soon(|| read(&cat.at().join("dir-zanzibar/deep-zanzibar/moved-zanzibar")) == SECRET.repeat(1000));
}

#[test]
fn tampered_data_is_reported_in_one_line_and_rejected() {
    needs_mount!();
    let hidden = EncryptedVolume::new();
    let (ant, bee) = (hidden.mount("ant"), hidden.mount("bee"));
    fs::write(ant.at().join("kept"), "what was here before").unwrap();
    fs::write(ant.at().join("tool"), "#!/bin/sh").unwrap();
    soon(|| bee.at().join("tool").exists() && read(&bee.at().join("kept")) == "what was here before");
    drop(bee);
    let mode = |at: &Path| fs::metadata(at.join("tool")).unwrap().permissions().mode();
    fs::set_permissions(ant.at().join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    soon(|| ant.status()["pending"] == 0);
    drop(ant);
    run(hidden.command(&["check", "diary", "--key-file"]).arg(hidden.key())).ok();

    // Changes 0755 to 04755 in the last commit that contains the former.
    let db = rusqlite::Connection::open(hidden.store().join("meta.db")).unwrap();
    let mut query = db.prepare("SELECT seq, change FROM log ORDER BY seq DESC").unwrap();
    let all = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let (seq, mut change, at): (i64, Vec<u8>, usize) = all
        .filter_map(|row| {
            let (seq, change): (i64, Vec<u8>) = row.unwrap();
            let at = change.windows(2).position(|pair| pair == [0xed, 0x03])?;
            Some((seq, change, at))
        })
        .next()
        .unwrap();
    change[at + 1] = 0x13;
    db.execute("UPDATE log SET change = ? WHERE seq = ?", rusqlite::params![change, seq]).unwrap();

    let bee = hidden.mount("bee");
    let status = || run(binary::command(&["volume", "status"]).arg(bee.at())).ok();
    soon(|| status().contains("stopped"));
    let status = status();
    let line = status.lines().find(|line| line.contains("tampered with")).unwrap_or_default();
    assert!(line.contains(&format!("commit {seq} in the name of ant was changed")), "{status}");
    assert_eq!(mode(bee.at()) & 0o7777, 0o644);
    assert_eq!(read(&bee.at().join("kept")), "what was here before");
    fs::write(bee.at().join("own"), "goes on").unwrap();
    assert_eq!(read(&bee.at().join("own")), "goes on");
    drop(bee);
    let ran = run(hidden.command(&["check", "diary", "--key-file"]).arg(hidden.key()));
    assert!(ran.out.contains("tampered with: commit"), "{ran:?}");
    assert!(ran.fails().contains("has 1 problem"));
}

#[test]
fn only_an_encrypted_volume_of_an_older_format_is_upgraded() {
    let hidden = EncryptedVolume::new();
    let done = run(hidden.command(&["upgrade-format", "diary", "--key-file"]).arg(hidden.key())).ok();
    assert!(done.contains("is of format 3 already"), "{done}");
    assert!(run(&mut hidden.command(&["upgrade-format", "diary"])).fails().contains("--key-file FILE"));
    assert!(run(&mut hidden.command(&["upgrade-format", "test"])).fails().contains("--encrypt"));
    let history =
        run(hidden.command(&["gc", "--history-days", "1", "diary", "--key-file"]).arg(hidden.key()));
    assert!(history.fails().contains("omit --history-days"));
}
