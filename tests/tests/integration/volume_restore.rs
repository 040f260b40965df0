//! `shunt volume restore` by root in directories of a user who concurrently exchanges names: nothing outside of them changes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shunt_test_support::{User, needs_mount, run};
use shunt_tests::polling::{names, read, soon};
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary};

const NOBODY: u32 = 65534;
/// Duration of the repeated restores.
const TIME: Duration = Duration::from_secs(4);

/// A mounted volume with a directory of `nobody`, and outside of it a directory of root with one file.
struct RestoreFixture {
    mount: Mount,
    volume: Volume,
}

impl RestoreFixture {
    fn new() -> Self {
        let volume = Volume::new();
        fs::set_permissions(volume.aside(), Permissions::from_mode(0o755)).unwrap();
        let mount = volume.mount_as("ant");
        let scene = Self { mount, volume };
        fs::create_dir(scene.theirs()).unwrap();
        chown(scene.theirs(), Some(NOBODY), Some(NOBODY)).unwrap();
        fs::create_dir(scene.victim()).unwrap();
        fs::write(scene.victim().join("secret"), "of root").unwrap();
        fs::set_permissions(scene.victim().join("secret"), Permissions::from_mode(0o600)).unwrap();
        scene
    }

    fn theirs(&self) -> PathBuf {
        self.mount.at().join("theirs")
    }

    fn victim(&self) -> PathBuf {
        self.volume.aside().join("of-root")
    }

    /// Waits until everything is committed. Returns the number of the last commit.
    fn settled(&self) -> u64 {
        soon(|| self.mount.status()["pending"] == 0);
        let log = ["volume", "log", "--json", "-n", "1"];
        let output = run(binary::command(&log).arg(self.mount.at())).ok();
        let last: serde_json::Value = serde_json::from_str(&output).unwrap();
        last[0]["seq"].as_u64().unwrap()
    }

    /// Runs restores as root for a while, and `exchange` as `nobody` concurrently.
    fn contend(&self, restore: &[&Path], exchange: impl Fn() + Sync) -> usize {
        let over = AtomicBool::new(false);
        let mut done = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                User::new(NOBODY).run(|| {
                    while !over.load(Ordering::Relaxed) {
                        exchange();
                    }
                });
            });
            let begun = Instant::now();
            while begun.elapsed() < TIME && self.is_unharmed() {
                let ran = run(binary::command(&["volume", "restore"]).args(restore));
                assert!(ran.status.is_some_and(|status| status.code().is_some()), "{ran:?}");
                done += usize::from(ran.success());
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(
            self.is_unharmed(),
            "{}",
            run(std::process::Command::new("ls").arg("-la").arg(self.victim())).out
        );
        done
    }

    fn is_unharmed(&self) -> bool {
        let (of, secret) = (self.victim(), self.victim().join("secret"));
        let mode = |path: &Path| fs::symlink_metadata(path).map(|is| (is.mode() & 0o7777, is.uid())).ok();
        names(&of) == ["secret"]
            && mode(&of) == Some((0o755, 0))
            && mode(&secret) == Some((0o600, 0))
            && read(&secret) == "of root"
    }
}

fn as_of(path: &Path, seq: u64) -> PathBuf {
    // As a user writes it; the command finds the history entry.
    format!("{}@#{seq}", path.display()).into()
}

/// The temporary file is exchanged for a symlink to root's file, which must not get the mode of the restored one.
#[test]
fn a_temporary_file_is_exchanged_while_root_restores_it() {
    needs_mount!();
    let scene = RestoreFixture::new();
    let (theirs, notes, secret) =
        (scene.theirs(), scene.theirs().join("notes"), scene.victim().join("secret"));
    User::new(NOBODY).run(|| {
        fs::write(&notes, vec![7; 16 << 20]).unwrap();
        fs::set_permissions(&notes, Permissions::from_mode(0o666)).unwrap();
    });
    let seq = scene.settled();
    scene.contend(&[&as_of(&notes, seq)], || {
        for name in names(&theirs).iter().filter(|name| name.starts_with('.')) {
            let name = theirs.join(name);
            if fs::rename(&name, theirs.join("away")).is_ok() {
                symlink(&secret, &name).ok();
            }
        }
    });
    let restored = run(binary::command(&["volume", "restore"]).arg(as_of(&notes, seq)));
    restored.ok();
    let is = fs::metadata(&notes).unwrap();
    assert_eq!((is.mode() & 0o7777, is.uid(), is.len()), (0o666, NOBODY, 16 << 20));
}

/// A directory that is being restored is exchanged for a symlink to root's directory.
#[test]
fn a_directory_is_exchanged_while_root_fills_it() {
    needs_mount!();
    let scene = RestoreFixture::new();
    let (tree, victim) = (scene.theirs().join("tree"), scene.victim());
    let (sub, away) = (tree.join("sub"), tree.join("away"));
    User::new(NOBODY).run(|| {
        fs::create_dir_all(&sub).unwrap();
        (0..40).for_each(|n| fs::write(sub.join(format!("file-{n}")), "theirs").unwrap());
    });
    let seq = scene.settled();
    scene.contend(&[&as_of(&tree, seq)], || {
        if fs::rename(&sub, &away).is_ok() {
            symlink(&victim, &sub).ok();
            std::thread::sleep(Duration::from_millis(1));
            fs::remove_file(&sub).ok();
            fs::rename(&away, &sub).ok();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
}

/// An ancestor of the file is exchanged for a symlink to root's directory.
#[test]
fn a_directory_on_the_way_is_exchanged_while_root_restores() {
    needs_mount!();
    let scene = RestoreFixture::new();
    let (notes, way, victim) = (scene.theirs().join("notes"), scene.theirs().join("way"), scene.victim());
    let away = scene.theirs().join("away");
    User::new(NOBODY).run(|| {
        fs::write(&notes, "theirs").unwrap();
        fs::create_dir(&way).unwrap();
    });
    let seq = scene.settled();
    let restored = scene.contend(&[&as_of(&notes, seq), Path::new("--to"), &way.join("notes")], || {
        fs::rename(&way, &away).ok();
        symlink(&victim, &way).ok();
        std::thread::sleep(Duration::from_millis(1));
        fs::remove_file(&way).ok();
        fs::rename(&away, &way).ok();
        std::thread::sleep(Duration::from_millis(1));
    });
    assert!(restored > 0, "it works where the directory is there");
    fs::remove_dir_all(&way).unwrap();
    User::new(NOBODY).run(|| symlink(&victim, &way).unwrap());
    let mut restore = binary::command(&["volume", "restore", "--to"]);
    let output = run(restore.arg(way.join("notes")).arg(as_of(&notes, seq))).fails();
    assert!(output.contains("is a symbolic link of another user: give the path of"), "{output}");
    assert!(scene.is_unharmed());
}

/// Symlinks of root, and of a user in the user's own directories, are followed as usual.
#[test]
fn links_of_the_caller_lead_to_what_is_restored() {
    needs_mount!();
    let scene = RestoreFixture::new();
    let file = scene.mount.at().join("dir/file");
    fs::create_dir(scene.mount.at().join("dir")).unwrap();
    fs::write(&file, "first").unwrap();
    let seq = scene.settled();
    fs::write(&file, "second").unwrap();
    scene.settled();
    let link = scene.volume.aside().join("link");
    symlink(scene.mount.at().join("dir"), &link).unwrap();
    run(binary::command(&["volume", "restore"]).arg(as_of(&link.join("file"), seq))).ok();
    assert_eq!(read(&file), "first");
    // A directory that belongs to another user by now does not change its owner.
    let tree = scene.mount.at().join("tree");
    fs::create_dir(&tree).unwrap();
    let seq = scene.settled();
    chown(&tree, Some(NOBODY), None).unwrap();
    let output = run(binary::command(&["volume", "restore"]).arg(as_of(&tree, seq))).fails();
    assert!(output.contains("belongs to user 65534, but its earlier version to user 0"), "{output}");
}
