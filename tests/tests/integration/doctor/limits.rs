//! Limits, privileges and devices that are missing or too small.

use std::process::Command;

use shunt_test_support::{User, needs_tools, run_for};
use shunt_tests::{binary, mount_namespace};

use super::report::Report;

const NOBODY: u32 = 65534;

/// Puts a file with this content in the place of another one.
fn replaced(path: &str, content: &str) -> String {
    format!("mkdir -p /run/fake; printf '{content}' > /run/fake/file; mount --bind /run/fake/file {path}\n")
}

/// Runs the work as root, and as a user without privileges who may open /dev/fuse.
fn as_root_and_nobody(setup: &str, work: impl Fn(bool) + Sync) {
    let open = "mknod -m 666 /run/open-fuse c 10 229; mount --bind /run/open-fuse /dev/fuse\n";
    mount_namespace::alone(&[open, setup].concat(), || {
        work(true);
        User::new(NOBODY).run(|| work(false));
    });
}

#[test]
fn few_open_files_are_a_warning_with_a_remedy() {
    needs_tools!("prlimit");
    as_root_and_nobody("", |_| {
        let limited = |args: &[&str]| {
            let mut command = Command::new("prlimit");
            command.arg("--nofile=1024:1024").arg(binary::shunt()).arg("doctor").args(args);
            command
        };
        let report = Report::of(&mut limited(&["--json"]));
        let fix = report.has("limits.open_files", "warning", "RLIMIT_NOFILE is 1024 (hard 1024)");
        assert!(fix.contains("ulimit -Hn") && fix.contains("LimitNOFILE="), "{fix}");
        assert_eq!(report.code, 0);
        let strict = run_for(60, &mut limited(&["--strict", "--quiet"]));
        assert_eq!(strict.status.and_then(|status| status.code()), Some(1), "{strict:?}");
        assert!(strict.out.contains("WARNING  RLIMIT_NOFILE is 1024"), "{strict:?}");
    });
}

#[test]
fn few_watches_and_instances_of_inotify_are_warnings() {
    for (name, limit) in [("watches", "8192"), ("instances", "8")] {
        let file = format!("/proc/sys/fs/inotify/max_user_{name}");
        as_root_and_nobody(&replaced(&file, &format!("{limit}\\n")), |_| {
            let report = Report::new();
            let message = format!("fs.inotify.max_user_{name} is {limit}");
            let fix = report.has(&format!("limits.inotify_{name}"), "warning", &message);
            assert!(fix.starts_with(&format!("sysctl -w fs.inotify.max_user_{name}=")), "{fix}");
            assert_eq!(report.code, 0);
        });
    }
}

#[test]
fn a_small_limit_of_pages_is_a_warning() {
    let file = "/proc/sys/fs/fuse/max_pages_limit";
    shunt_test_support::requirement!(std::path::Path::new(file).exists(), "this kernel has no {file}");
    as_root_and_nobody(&replaced(file, "32\\n"), |_| {
        let report = Report::new();
        let fix = report.has("kernel.max_pages_limit", "warning", "at most 128.0 KiB");
        assert_eq!(fix, "sysctl -w fs.fuse.max_pages_limit=256");
    });
}

#[test]
fn a_missing_device_is_an_error() {
    let setup = "mkdir /run/dev; mknod -m 666 /run/dev/null c 1 3; mount --bind /run/dev /dev\n";
    mount_namespace::alone(setup, || {
        let check = || {
            let report = Report::new();
            let fix = report.has("kernel.fuse", "error", "/dev/fuse: No such file");
            assert!(fix.starts_with("modprobe fuse") && fix.contains("--device /dev/fuse"), "{fix}");
            assert_eq!(report.code, 1);
        };
        check();
        User::new(NOBODY).run(check);
    });
}

#[test]
fn a_closed_device_is_an_error_for_users() {
    let setup = "mknod -m 600 /run/closed c 10 229; mount --bind /run/closed /dev/fuse\n";
    mount_namespace::alone(setup, || {
        Report::new().has("kernel.fuse", "ok", "can be opened");
        User::new(NOBODY).run(|| {
            let report = Report::new();
            let fix = report.has("kernel.fuse", "error", "this user may not open /dev/fuse");
            assert_eq!((fix, report.code), ("chmod 666 /dev/fuse", 1));
        });
    });
}

#[test]
fn a_fuse_conf_without_allow_other_concerns_users_only() {
    let state = |text: &str, level: &str, fix: &str| {
        as_root_and_nobody(&replaced("/etc/fuse.conf", text), |root| {
            let report = Report::new();
            if root {
                assert!(report.find("privileges.fuse_conf", "").is_none());
                return;
            }
            let found = report.has("privileges.fuse_conf", level, "/etc/fuse.conf");
            assert_eq!((found, report.code), (fix, 0));
            // A user's limits are named, and are no errors.
            report.has("privileges.capabilities", "note", "no privileges");
            report.has("kernel.fanotify", "note", "fanotify");
        });
    };
    state("#user_allow_other\\n", "note", "echo user_allow_other >> /etc/fuse.conf (as root)");
    state("user_allow_other\\n", "ok", "");
}

#[test]
fn a_helper_without_its_bit_is_an_error_for_users() {
    needs_tools!("fusermount3");
    let setup = "cp $(command -v fusermount3) /run/helper; chmod 755 /run/helper
        mount --bind /run/helper $(readlink -f $(command -v fusermount3))\n";
    as_root_and_nobody(setup, |root| {
        let report = Report::new();
        let level = if root { "note" } else { "error" };
        let fix = report.has("privileges.fusermount3", level, "is not set-user-id root");
        assert!(fix.contains("chmod 4755 "), "{fix}");
        assert_eq!(report.code, i32::from(!root));
    });
}

#[test]
fn a_full_disk_below_the_cache_is_a_warning() {
    let setup = "mkdir /run/small; mount -t tmpfs -o size=1m,mode=755 none /run/small; : > /run/small/fill
        head -c 1040000 /dev/zero > /run/small/fill || :\n";
    as_root_and_nobody(setup, |_| {
        let mut command = binary::command(&["doctor", "--json"]);
        let report = Report::of(command.env("XDG_CACHE_HOME", "/run/small/none"));
        let fix = report.has("environment.cache_space", "warning", "/run/small/none/shunt/volumes");
        assert!(fix.contains("--cache"), "{fix}");
    });
}
