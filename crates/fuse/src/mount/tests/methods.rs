//! Tests of every mount method, with the options as the mount table shows them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use shunt_test_support::Loop;

use super::super::*;
use super::{TestMountDir, answer_init, as_role, can_mount, found, line_of, my_role, skip};

fn everything() -> MountOptions {
    let mut opts = MountOptions::new().fsname("/a dir,with comma").subtype("shunt.test").max_read(65536);
    let unknown = opts
        .apply_str("ro,nosuid,nodev,noexec,noatime,nodiratime,sync,dirsync,allow_other,default_permissions")
        .unwrap();
    assert!(unknown.is_empty());
    opts
}

fn check_everything(line: &MountInfo, method: MountMethod) {
    assert_eq!(line.fstype, "fuse.shunt.test");
    assert_eq!(line.source, "/a dir,with comma");
    let has = |all: &str, one: &str| assert!(all.split(',').any(|o| o == one), "{one} in {line:?}");
    for option in ["ro", "nosuid", "nodev", "noexec", "noatime"] {
        has(&line.options, option);
    }
    if method != MountMethod::Fusermount {
        // Older helpers do not support it.
        has(&line.options, "nodiratime");
    }
    for option in [
        "ro",
        "sync",
        "dirsync",
        "user_id=0",
        "group_id=0",
        "allow_other",
        "default_permissions",
        "max_read=65536",
    ] {
        has(&line.super_options, option);
    }
}

#[test]
fn every_method_sets_every_option() {
    if !can_mount() {
        return;
    }
    for method in [MountMethod::Fsopen, MountMethod::Classic, MountMethod::Fusermount] {
        let mount_dir = TestMountDir::new();
        let mounted = match mount(&mount_dir.path(), &everything().method(method)) {
            Err(MountError::NoHelper) => {
                skip("no fusermount3");
                continue;
            }
            done => done.unwrap(),
        };
        assert_eq!(mounted.method, method);
        check_everything(&mount_dir.line().unwrap(), method);
        assert!(found(&mounted.mount) && mounted.mount.is_mounted());
        assert!(fuse_mounts().unwrap().iter().any(|line| line.id == mounted.mount.old_id()));
        mounted.mount.unmount(Unmount::Normal).unwrap();
        assert!(mount_dir.line().is_none() && !mounted.mount.is_mounted());
    }
}

#[test]
fn defaults_and_strictatime() {
    if !can_mount() {
        return;
    }
    for method in [MountMethod::Fsopen, MountMethod::Classic] {
        let mount_dir = TestMountDir::new();
        let opts = MountOptions::new().method(method);
        let first = mount(&mount_dir.path(), &opts).unwrap();
        let line = mount_dir.line().unwrap();
        assert_eq!((line.fstype.as_str(), line.options.as_str()), ("fuse", "rw,nosuid,nodev,relatime"));
        assert_eq!(
            (line.source.to_str(), line.super_options.as_str()),
            (Some("shunt"), "rw,user_id=0,group_id=0")
        );
        first.mount.unmount(Unmount::Normal).unwrap();

        let _second =
            mount(&mount_dir.path(), &opts.atime(Atime::Strict).nosuid(false).nodev(false)).unwrap();
        // The table shows strictatime as no option.
        assert_eq!(mount_dir.line().unwrap().options, "rw");
    }
}

#[test]
fn init_is_answered_before_anybody_sees_the_mount() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let detached = prepare(&MountOptions::new()).unwrap();
    assert_eq!(detached.method(), MountMethod::Fsopen);
    answer_init(detached.device().expect("fsopen provides the device before the mount is attached"));
    assert!(mount_dir.line().is_none());
    let mark = detached.mark().unwrap();
    let mounted = detached.attach(&mount_dir.path()).unwrap();
    assert_eq!(mounted.mount.mark(), mark, "the mount id is known before it is attached");
    assert!(found(&mounted.mount));
    assert_eq!(mounted.mount.waiting().unwrap(), 0);
}

#[test]
fn a_file_system_whose_root_is_a_file() {
    if !can_mount() {
        return;
    }
    for method in [MountMethod::Fsopen, MountMethod::Classic] {
        let mount_dir = TestMountDir::new();
        let file = mount_dir.outer().join("file");
        std::fs::write(&file, "").unwrap();
        let mounted = mount(&file, &MountOptions::new().root(RootKind::File).method(method)).unwrap();
        assert!(line_of(&file).is_some() && found(&mounted.mount));
        mounted.mount.unmount(Unmount::Normal).unwrap();
        assert!(line_of(&file).is_none());
    }
}

/// Makes a loop device over a sparse file, which is detached at the end.
fn loop_device(mount_dir: &TestMountDir) -> Option<Loop> {
    let image = mount_dir.outer().join("image");
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    Loop::over(&image)
}

#[test]
fn a_block_device_is_mounted_as_fuseblk() {
    if !can_mount() {
        return;
    }
    let dir = TestMountDir::new();
    let Some(device) = loop_device(&dir) else {
        skip("no loop device");
        return;
    };
    for method in [MountMethod::Fsopen, MountMethod::Classic] {
        let mount_dir = TestMountDir::new();
        let opts =
            MountOptions::new().blkdev(device.path()).blksize(1024).subtype("shunt.ext4").method(method);
        let mounted = mount(&mount_dir.path(), &opts).unwrap();
        let line = mount_dir.line().unwrap();
        assert_eq!((line.fstype.as_str(), line.source.to_str()), ("fuseblk.shunt.ext4", Some(device.path())));
        assert!(line.super_options.contains("blksize="), "{line:?}");
        assert_eq!(mounted.mount.waiting().unwrap(), 1, "the control directory of {:?}", mounted.mount.dev());
        let report = bdi::BdiTuning { read_ahead_kb: Some(256), ..Default::default() }.apply(&mounted.mount);
        assert_eq!(report.set, [("read_ahead_kb", 256)], "{report:?}");
        mounted.mount.unmount(Unmount::Normal).unwrap();
    }
}

#[test]
fn writers_are_let_loose() {
    if !can_mount() {
        return;
    }
    let mount_dir = TestMountDir::new();
    let mounted = mount(&mount_dir.path(), &MountOptions::new()).unwrap();
    let tuning =
        bdi::BdiTuning { max_ratio: Some(100), strict_limit: Some(false), read_ahead_kb: Some(1024) };
    let report = tuning.apply(&mounted.mount);
    assert!(report.refused.is_empty(), "{report:?}");
    let value = |file: &str| {
        std::fs::read_to_string(format!("/sys/class/bdi/{}/{file}", mounted.mount.dev()))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(
        (value("max_ratio"), value("strict_limit"), value("read_ahead_kb")),
        ("100".into(), "0".into(), "1024".into())
    );
    let refused = bdi::BdiTuning { max_ratio: Some(101), ..Default::default() }.apply(&mounted.mount);
    assert_eq!((refused.set.len(), refused.refused.len()), (0, 1));
    let Ok(limit) = bdi::DirtyLimit::open(&mounted.mount) else { return };
    let whole = limit.bytes().unwrap();
    limit.set(Some(whole / 10)).unwrap();
    assert!(limit.bytes().unwrap().abs_diff(whole / 10) < whole / 100, "{limit:?}");
    assert_eq!(value("strict_limit"), "1");
    limit.set(Some(u64::MAX)).unwrap_err();
    limit.set(None).unwrap();
    assert_eq!((value("max_ratio"), value("strict_limit")), ("100".into(), "0".into()));
}

const UNPRIVILEGED: &str = concat!(module_path!(), "::an_unprivileged_user_mounts_by_fusermount3");

/// An unprivileged user mounts through the helper, and root finds and removes the mount; also what the helper refuses.
///
/// Runs in a mount namespace of its own, where `/dev/fuse` is open to users, or is not.
#[test]
fn an_unprivileged_user_mounts_by_fusermount3() {
    match my_role().as_deref() {
        None => {}
        Some("namespace") => return with_users(&["stay", "leave", "other"]),
        Some("closed") => return with_users(&["denied"]),
        Some(role) => return unprivileged(role),
    }
    if !can_mount() {
        return;
    }
    if Command::new("fusermount3").arg("-V").stdout(Stdio::null()).status().is_err() {
        skip("no fusermount3");
        return;
    }
    for (mode, role) in [("666", "namespace"), ("600", "closed")] {
        let outer = TestMountDir::new();
        let set_up = r#"mknod -m "$1" "$2" c 10 229 && mount --bind "$2" /dev/fuse && shift 2 && exec "$@""#;
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", set_up, "sh", mode]).arg(outer.outer().join("fuse"));
        command.arg(std::env::current_exe().unwrap());
        as_role(&mut command, UNPRIVILEGED, role);
        assert!(command.status().unwrap().success(), "{role}");
    }
}

fn with_users(roles: &[&str]) {
    let mount_dir = TestMountDir::new();
    std::os::unix::fs::chown(mount_dir.path(), Some(65534), Some(65534)).unwrap();
    let mode: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(mount_dir.outer(), mode).unwrap();
    // The build directory may not be accessible to others.
    let exe = mount_dir.outer().join("exe");
    std::fs::copy("/proc/self/exe", &exe).unwrap();
    for role in roles {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&exe);
        as_role(&mut command, UNPRIVILEGED, role);
        command.env("SHUNT_TEST_PLACE", mount_dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        if *role == "stay" {
            assert!(lines.any(|line| line.unwrap() == "mounted"));
            root_removes_it(&mount_dir);
        }
        drop(child.stdin.take());
        let output: Vec<_> = lines.map_while(Result::ok).collect();
        assert!(child.wait().unwrap().success(), "{role}: {output:?}");
        assert!(mount_dir.line().is_none());
    }
}

fn root_removes_it(mount_dir: &TestMountDir) {
    let line = mount_dir.line().unwrap();
    assert_eq!((line.fstype.as_str(), line.source.to_str()), ("fuse.shunt.test", Some("a,b")));
    assert!(line.options.contains("nosuid,nodev,noexec") && line.super_options.contains("user_id=65534"));
    // Root has no access, and still finds which mount it is.
    assert!(std::fs::metadata(mount_dir.path()).is_err());
    let mount = MountPoint::find(&mount_dir.path()).unwrap();
    assert!(matches!(mount.id(), MountId::Unique(_)));
    mount.unmount(Unmount::Normal).unwrap();
}

fn unprivileged(role: &str) {
    let path = std::path::PathBuf::from(std::env::var_os("SHUNT_TEST_PLACE").unwrap());
    let mut opts = MountOptions::new().fsname("a,b").subtype("shunt.test").noexec(true);
    if role == "other" {
        opts = opts.allow_other(true);
        match mount(&path, &opts) {
            Err(MountError::AllowOther) => {}
            Ok(mounted) => mounted.mount.unmount(Unmount::Normal).unwrap(),
            Err(other) => panic!("{other}"),
        }
        return;
    }
    if role == "denied" {
        assert!(matches!(mount(&path, &opts), Err(MountError::DeviceDenied)));
        return;
    }
    let mounted = mount(&path, &opts).unwrap();
    assert_eq!(mounted.method, MountMethod::Fusermount);
    assert!(found(&mounted.mount));
    match role {
        "stay" => {
            println!("\nmounted");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        _ => {
            let busy = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
            assert!(matches!(mounted.mount.unmount(Unmount::Normal), Err(MountError::Busy(_))));
            mounted.mount.unmount(Unmount::Lazy).unwrap();
            drop(busy);
            assert!(!mounted.mount.is_mounted());
        }
    }
}
