//! Usage and mount errors: each gives one clear line and an exit code.

use crate::common::*;

#[test]
fn of_the_command_line() {
    for args in [&["mirror"][..], &["mirror", "/a", "/b", "--cache", "x"], &["dance"], &["umount"]] {
        let output = shunt(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    let line = fails(shunt(["mirror", "/a", "/b", "-o", "zap=1"]), 2);
    assert!(line.contains("unknown mount option `zap=1`"), "{line}");
    let line = fails(shunt(["mirror", "/", "/mnt", "--uid-map", "0:1", "--uid-map", "0:2"]), 2);
    assert!(line.contains("overlaps"), "{line}");
}

#[test]
fn of_places() {
    let Some(fixture) = Fixture::new() else { return };
    let (source, mountpoint) = (fixture.source(), fixture.mountpoint());
    let file = source.join("hello");
    let absent = fixture.path("absent");
    for (from, to, part) in [
        (&absent, &mountpoint, "no such directory"),
        (&file, &mountpoint, "not a directory"),
        (&source, &absent, "does not exist"),
        (&source, &file, "is not a directory"),
    ] {
        for daemon in [&[][..], &["--daemon"]] {
            let output = command("shunt").arg("mirror").args(daemon).args([from, to]).output().unwrap();
            let line = fails(output, 1);
            assert!(line.contains(part), "{line}");
        }
    }
    assert!(!fixture.is_mounted());
}

#[test]
fn of_mounts() {
    assert!(fails(shunt(["umount", "/proc"]), 3).contains("use umount(8)"));
    assert!(fails(shunt(["stat", "/proc"]), 3).contains("/proc"));
    assert!(fails(shunt(["upgrade", "/proc"]), 3).contains("/proc"));
    assert!(fails(shunt(["upgrade", "/nowhere/at/all"]), 1).contains("does not exist"));
    assert!(fails(shunt(["umount", "/nowhere/at/all"]), 1).contains("does not exist"));
}

#[test]
fn pages_and_completions_are_there() {
    let help = succeeds(shunt(["--help"]));
    assert!(help.contains("Exit codes:") && help.contains("Examples:"), "{help}");
    for command in ["mirror", "umount", "upgrade", "list", "stat", "install-helpers", "completions", "man"] {
        assert!(help.contains(command), "{command}");
        succeeds(shunt([command, "--help"]));
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(succeeds(shunt(["completions", shell])).contains("mirror"));
    }
    assert!(succeeds(shunt(["man"])).contains(".TH shunt 1"));
    let dir = tempfile::tempdir().unwrap();
    succeeds(shunt([std::ffi::OsStr::new("man"), "--dir".as_ref(), dir.path().as_os_str()]));
    for page in ["shunt.1", "shunt-mirror.1", "shunt-umount.1"] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
    assert!(!dir.path().join("shunt-__guardian.1").exists());
}

#[test]
fn helpers_are_links_to_this_binary() {
    let dir = tempfile::tempdir().unwrap();
    let install =
        || shunt([std::ffi::OsStr::new("install-helpers"), "--dir".as_ref(), dir.path().as_os_str()]);
    succeeds(install());
    succeeds(install());
    let link = dir.path().join("mount.shunt.mirror");
    assert_eq!(
        std::fs::canonicalize(&link).unwrap(),
        std::fs::canonicalize(env!("CARGO_BIN_EXE_shunt")).unwrap()
    );
    std::fs::remove_file(&link).unwrap();
    std::fs::write(&link, "somebody else's").unwrap();
    assert!(fails(install(), 1).contains("not a link"));
}
