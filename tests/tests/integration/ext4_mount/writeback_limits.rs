//! Kernel settings of the daemon: memory reclaim and limits for dirty pages.

use std::fs;
use std::process::Command;

use shunt_test_support::cmd::one_line;
use shunt_test_support::{needs_mount, needs_tools, requirement, run_for, sh};
use shunt_tests::{Image, Plan, unprivileged};

/// Returns the `flags` of a thread, the ninth field of its `stat`.
fn flags(stat: &str) -> u64 {
    stat.rsplit(')').next().unwrap().split_whitespace().nth(6).unwrap().parse().unwrap()
}

/// No thread of the daemon waits for dirty pages of its own mount when it allocates memory.
#[test]
fn no_thread_waits_for_itself() {
    const LOCAL_THROTTLE: u64 = 0x10_0000;
    needs_mount!();
    // On a separate thread, because the setting applies to that thread only.
    let tried = std::thread::spawn(|| rustix::process::configure_io_flusher_behavior(true));
    if tried.join().unwrap().is_err() {
        return shunt_test_support::skip::kernel_cannot("no CAP_SYS_RESOURCE");
    }
    let image = Image::make(&[], 16).unwrap();
    let mount = image.by_shunt(&[]);
    fs::write(mount.at().join("file"), b"so that all threads are there").unwrap();
    let threads = fs::read_dir(format!("/proc/{}/task", mount.pid())).unwrap().flatten();
    let marked: Vec<bool> = threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .map(|stat| flags(&stat) & LOCAL_THROTTLE != 0)
        .collect();
    assert!(marked.len() > 3 && marked.iter().all(|&marked| marked), "{marked:?}");
    let ours = fs::read_to_string("/proc/self/stat").unwrap();
    assert_eq!(flags(&ours) & LOCAL_THROTTLE, 0, "it would be seen anywhere");
}

/// Writers may fill the page cache as with a disk, and reads use large requests.
#[test]
fn limits_are_raised() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 16).unwrap();
    for (args, expected) in [(&[][..], ["1024", "100", "0"]), (&["--read-only"], ["1024", "1", "1"])] {
        let mount = image.by_shunt(args);
        let limit = |name: &str| fs::read_to_string(mount.bdi().join(name)).unwrap().trim().to_owned();
        assert_eq!(["read_ahead_kb", "max_ratio", "strict_limit"].map(limit), expected);
    }
}

fn locked_kibibytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn memory_is_locked_where_that_is_wished() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 32).unwrap();
    for (args, locked) in [(&["-o", "mlock"][..], true), (&[], false)] {
        let mount = image.by_shunt(args);
        // Memory that the daemon allocates while it works must be locked, too.
        sh(mount.at(), "head -c 5000000 /dev/zero > file; sync file; rm file").ok();
        assert_eq!(locked_kibibytes(mount.pid()) > 1000, locked);
    }
    image.check();
}

/// A limit on locked memory would kill the daemon later, so the start fails.
#[test]
fn a_limit_on_locked_memory_is_told() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    needs_tools!("fusermount3");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    let image = super::image_for_users(&s);
    unprivileged::perform(&s, |shunt| {
        let command = shunt(&["ext4"]);
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -l 64; exec \"$0\" ext4 --daemon --mlock \"$1\" \"$2\""]);
        limited.arg(command.get_program()).arg(&image).arg(s.mnt());
        let ran = run_for(20, &mut limited);
        assert_eq!(ran.status.and_then(|status| status.code()), Some(5), "{ran:?}");
        one_line(&ran.err, "ulimit -l");
        assert!(ran.err.contains("64.0 KiB"), "{}", ran.err);
    });
}
