//! Volumes of unprivileged users, and options of mount(8).

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, needs_tools, patiently, run, run_for, sh};
use shunt_tests::{Plan, Volume, binary, mounts, unprivileged};

/// Mounted through fusermount3: everything works, through the daemon.
#[test]
fn an_unprivileged_user_has_volumes() {
    needs_mount!();
    needs_tools!("fusermount3");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    unprivileged::perform(&s, |shunt| {
        let volume = |words: &[&str]| {
            let mut command = shunt(&["volume"]);
            command
                .args(words)
                .env("XDG_DATA_HOME", s.aside().join("data"))
                .env("XDG_CACHE_HOME", s.aside().join("cache"));
            command
        };
        let mount = || run_for(30, volume(&["mount", "--daemon", "notes"]).arg(s.mnt())).ok();
        run(&mut volume(&["create", "notes"])).ok();
        mount();
        assert_eq!(mounts::count(s.mnt()), 1);
        fs::create_dir(s.path("d")).unwrap();
        fs::write(s.path("d/f"), b"mine").unwrap();
        fs::rename(s.path("d/f"), s.path("g")).unwrap();
        assert_eq!(fs::read(s.path("g")).unwrap(), b"mine");
        assert_eq!(fs::metadata(s.path("g")).unwrap().uid(), 65_534);
        // The user cannot create files of other users.
        let errno = std::os::unix::fs::chown(s.path("g"), Some(0), None).unwrap_err();
        assert_eq!(errno.kind(), std::io::ErrorKind::PermissionDenied);
        let status = run(volume(&["status", "--json"]).arg(s.mnt())).ok();
        assert!(status.contains("\"online\""), "{status}");
        let stat = run(shunt(&["stat", "--json"]).arg(s.mnt())).ok();
        let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
        assert!(stat["passthrough"]["reason"].is_string(), "{stat}");
        patiently(|| run_for(20, shunt(&["umount"]).arg(s.mnt()))).ok();
        mount();
        assert_eq!(fs::read(s.path("g")).unwrap(), b"mine");
        patiently(|| run_for(20, shunt(&["umount"]).arg(s.mnt()))).ok();
        assert_eq!(mounts::count(s.mnt()), 0);
    });
}

/// As in fstab: `notes /mnt/notes shunt.volume cache=DIR,nofail 0 0`.
#[test]
fn the_mount_helper() {
    needs_mount!();
    let volume = Volume::new();
    let helpers = volume.aside().join("helpers");
    fs::create_dir(&helpers).unwrap();
    run(binary::command(&["install-helpers", "--dir"]).arg(&helpers)).ok();
    let at = volume.aside().join("mnt");
    let options = format!("rw,nofail,noatime,node=here,cache={}", volume.cache().display());
    let mut mount = Command::new(helpers.join("mount.shunt.volume"));
    run_for(
        30,
        mount
            .args(["test".as_ref(), at.as_path()])
            .args(["-o", &options])
            .env("XDG_DATA_HOME", volume.aside()),
    )
    .ok();
    let written = fs::write(at.join("file"), "here");
    let options = mount_line(&at);
    let away = sh(
        volume.aside(),
        &format!("{} {}", helpers.join("umount.fuse.shunt.volume").display(), at.display()),
    );
    let gone = within(Duration::from_secs(20), || mounts::count(&at) == 0);
    mounts::detach(&at);
    written.unwrap();
    assert!(options.contains("fuse.shunt.volume"), "{options}");
    assert!(options.contains("noatime"), "{options}");
    assert!(options.contains("nosuid,nodev"), "{options}");
    assert!(away.success() && gone, "{}", away.err);
}

fn mount_line(at: &Path) -> String {
    run(Command::new("grep").arg(at).arg("/proc/self/mountinfo")).out
}

/// A user has different uids on two nodes.
#[test]
fn owners_have_other_numbers_here() {
    needs_mount!();
    let volume = Volume::new();
    let (file, another) = (volume.aside().join("mnt/file"), volume.aside().join("mnt/another"));
    let owner = |path: &Path| fs::metadata(path).map(|metadata| (metadata.uid(), metadata.gid())).unwrap();
    let chown = std::os::unix::fs::chown::<&Path>;
    {
        let mount = volume.mount(&[]);
        fs::write(&file, "").unwrap();
        chown(&file, Some(1000), Some(100)).unwrap();
        fs::write(&another, "").unwrap();
        chown(&another, Some(2000), Some(200)).unwrap();
        fs::set_permissions(&another, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(mount.at().join("file"), file);
    }
    {
        let _mount = volume.mount(&["--uid-map", "1000:2000:10", "--gid-map", "100:200"]);
        assert_eq!(owner(&file), (2000, 200));
        // The volume's uid 2000 is another user than the local uid 2000.
        assert_eq!(owner(&another), (65_534, 65_534));
        let read = shunt_test_support::User::new(2000).run(|| fs::read(&another));
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        chown(&file, Some(2005), None).unwrap();
        assert_eq!(owner(&file), (2005, 200));
        // The local uid 1003 maps to no user: in the volume it is another user.
        let refused = chown(&file, Some(1003), None).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::OVERFLOW.raw_os_error()));
        chown(&file, Some(3000), None).unwrap();
        assert_eq!(owner(&file), (3000, 200));
        chown(&file, Some(2007), None).unwrap();
        // Files created by a user belong to that user on all nodes.
        fs::set_permissions(file.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
        shunt_test_support::User::new(2001).run(|| fs::write(file.with_file_name("made"), "").unwrap());
    }
    let _mount = volume.mount(&[]);
    assert_eq!(owner(&file), (1007, 100));
    assert_eq!(owner(&file.with_file_name("made")).0, 1001);
    assert_eq!(owner(&another), (2000, 200));
}
