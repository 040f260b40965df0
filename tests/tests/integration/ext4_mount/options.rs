//! Options of mount(8) and of ext4(5): supported ones take effect, and each of the others is accepted without effect, or
//! refused with the reason.

use std::fs::{self, File};
use std::time::Duration;

use rustix::process::Signal;
use shunt_test_support::cmd::{one_line, within};
use shunt_test_support::{needs_mount, needs_tools, pace, requirement, run_for, sh};
use shunt_tests::image::Mount;
use shunt_tests::{Image, mounts};

fn kill(mount: &Mount) {
    mounts::signal(mount.pid(), Signal::KILL);
    // The guardian removes the mount.
    assert!(within(Duration::from_secs(10), || mounts::count(mount.at()) == 0));
}

#[test]
fn options_without_effect_are_accepted() {
    needs_mount!();
    let image = Image::make(&[], 16).unwrap();
    for option in [
        "acl,user_xattr,data=ordered,barrier=1,errors=continue,noinit_itable",
        "daemon,iversion,mand,nobarrier,delalloc,stripe=4,commit=0",
        "ro,norecovery",
        "ro,noload",
    ] {
        let mount = image.by_shunt(&["-o", option]);
        assert!(mount.at().join("lost+found").is_dir(), "{option}");
    }
}

#[test]
fn unsupported_options_are_refused_with_reason() {
    needs_mount!();
    let image = Image::make(&[], 16).unwrap();
    for (option, reason) in [
        ("usrquota", "quotas of an image are not kept up to date"),
        ("data=journal", "file data does not go through the journal"),
        ("noacl", "always on"),
        ("pri=5", "swap"),
        ("errors=panic", "errors=remount-ro"),
        ("norecovery", "add ro"),
        ("commit=x", "commit"),
        ("zap", "unknown mount option `zap`: `shunt ext4 --help`"),
    ] {
        let err = run_for(20, &mut image.mount_command(&["-o", option])).fails();
        assert!(err.contains(reason), "{option}: {err}");
    }
}

#[test]
fn links_are_not_followed() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 16).unwrap();
    let mount = image.by_shunt(&["-o", "nosymfollow"]);
    fs::write(mount.at().join("file"), b"content").unwrap();
    std::os::unix::fs::symlink("file", mount.at().join("link")).unwrap();
    assert_eq!(fs::read_link(mount.at().join("link")).unwrap().to_str(), Some("file"));
    let error = fs::read(mount.at().join("link")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
}

/// A change without a sync becomes durable after this many seconds.
#[test]
fn changes_are_committed_at_the_age_given() {
    needs_mount!();
    let image = Image::make(&[], 16).unwrap();
    let is_there = |commit: &str| {
        let mount = image.by_shunt(&["--takeover", "off", "-o", commit]);
        fs::create_dir(mount.at().join(commit)).unwrap();
        std::thread::sleep(pace::seconds(2));
        kill(&mount);
        drop(mount);
        image.by_shunt(&[]).at().join(commit).is_dir()
    };
    assert!(is_there("commit=1"));
    assert!(!is_there("commit=600"));
    image.check();
}

/// With `norecovery`, an image whose journal needs recovery is refused, rather than shown with partial transactions.
#[test]
fn recovery_is_not_left_out_where_it_is_needed() {
    needs_mount!();
    let image = Image::make(&[], 16).unwrap();
    let mount = image.by_shunt(&["--takeover", "off"]);
    fs::write(mount.at().join("file"), b"content").unwrap();
    File::open(mount.at().join("file")).unwrap().sync_all().unwrap();
    kill(&mount);
    drop(mount);
    let before = fs::read(image.path()).unwrap();
    let err = run_for(20, &mut image.mount_command(&["-o", "ro,norecovery"])).fails();
    one_line(&err, "norecovery");
    assert!(fs::read(image.path()).unwrap() == before, "the image was changed");
    let mount = image.by_shunt(&["-o", "ro"]);
    assert_eq!(fs::read(mount.at().join("file")).unwrap(), b"content");
}

/// Corruption ends all changes if that is requested, otherwise only changes of the corrupt objects.
#[test]
fn damage_ends_changes() {
    needs_mount!();
    needs_tools!("debugfs");
    let goes_on = |errors: &str| {
        let image = Image::make(&["-b", "1024"], 16).unwrap();
        let mount = image.by_shunt(&[]);
        fs::create_dir(mount.at().join("damaged")).unwrap();
        fs::write(mount.at().join("damaged/file"), b"content").unwrap();
        mount.umount().ok();
        drop(mount);
        let zap = "debugfs -w -R 'zap_block -f /damaged -p 255 0' image";
        let zap = zap.replace("image", image.path().to_str().unwrap());
        sh(image.aside(), &zap).ok();
        let mount = image.by_shunt(&["-o", errors]);
        fs::create_dir(mount.at().join("before")).unwrap();
        let error = fs::metadata(mount.at().join("damaged/file")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EUCLEAN));
        match fs::create_dir(mount.at().join("after")) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EROFS));
                false
            }
        }
    };
    assert!(goes_on("errors=continue"));
    assert!(!goes_on("errors=remount-ro"));
}
