//! Tests of lookup counts, and of every order in which mount, daemon and program can end.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::common::*;
use super::mirror_cli::eventually;

const FILES: usize = 200;

fn many() -> CountingFs {
    let small = CountingFs::new();
    (0..FILES).for_each(|n| {
        small.add(1, &format!("file{n}"), 0o100_644);
    });
    small
}

fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

fn visit(mount: &Mount) {
    for n in 0..FILES {
        fs::metadata(mount.path(&format!("file{n}"))).unwrap();
    }
}

#[test]
fn the_daemons_count_is_exact() {
    if !module_is_here() {
        return;
    }
    let mount = Mount::asking(many());
    for _ in 0..5 {
        (0..3).for_each(|_| visit(&mount));
        drop_caches();
    }
    assert!(eventually(|| {
        drop_caches();
        mount.fs.inner().held() == 0
    }));
    mount.assert_no_violations();
}

#[test]
fn it_stays_exact_when_the_program_goes_first() {
    if !module_is_here() {
        return;
    }
    let mount = Mount::asking(many());
    (0..3).for_each(|_| visit(&mount));
    mount.fs.detach();
    let asked = mount.requests(|| visit(&mount));
    assert!(asked >= FILES as u64, "{asked}");
    assert!(eventually(|| {
        drop_caches();
        mount.fs.inner().held() == 0
    }));
    mount.assert_no_violations();
}

#[test]
fn it_comes_and_goes_under_load() {
    if !module_is_here() {
        return;
    }
    let mount = Mount::asking(many());
    let done = AtomicBool::new(false);
    let cycles = rounds(20);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    visit(&mount);
                }
            });
        }
        for cycle in 0..cycles {
            progress(cycle, cycles);
            std::thread::sleep(Duration::from_millis(100));
            // Long runs mostly skip reloading: a debug kernel under an emulator takes half a minute to verify the program.
            if cycles < 100 || cycle.is_multiple_of(10) {
                mount.fs.detach();
                mount.fs.attach(mount.mounted.as_ref().unwrap().handle());
            } else {
                mount.fs.put_back().unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(eventually(|| {
        drop_caches();
        mount.fs.inner().held() == 0
    }));
    mount.assert_no_violations();
}

/// Ends in every order. Leaks show in the kernel's log, which the caller checks, and as a module that is still in use.
#[test]
fn every_end_is_survived() {
    if !module_is_here() {
        return;
    }
    for round in 0..rounds(12) {
        let mut mount = Mount::asking(many());
        let path = mount.path.clone();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (path, done) = (&path, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        for n in 0..FILES {
                            fs::metadata(path.join(format!("file{n}"))).ok();
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(100));
            let mut ends = [0, 1, 2];
            ends.rotate_left(round % 3);
            if round % 6 >= 3 {
                ends.swap(0, 1);
            }
            for end in ends {
                match end {
                    0 => mount.fs.detach(),
                    1 => abort(&path),
                    _ => {
                        Command::new("umount").arg("-l").arg(&path).status().unwrap();
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        mount.mounted.take().unwrap().wait().ok();
        mount.assert_no_violations();
    }
    let uses = || fs::read_to_string("/sys/module/shunt_fuse_ext/refcnt").unwrap();
    // Other tests mount as well.
    assert!(eventually(|| uses().trim().parse::<u32>().unwrap() < 20), "{}", uses());
}

/// Aborts the connection like `echo 1 >/sys/fs/fuse/connections/N/abort`.
fn abort(path: &std::path::Path) {
    let Ok(found) = rustix::fs::statx(
        rustix::fs::CWD,
        path,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        rustix::fs::StatxFlags::empty(),
    ) else {
        return;
    };
    let connection = format!("/sys/fs/fuse/connections/{}/abort", found.stx_dev_minor);
    fs::write(connection, "1").ok();
}

/// The daemon that `a_killed_daemon_leaves_nothing` kills; not a test of its own.
#[test]
fn daemon_to_be_killed() {
    let Some(directory) = std::env::var_os("SHUNT_TEST_MOUNTPOINT") else { return };
    Mount::at(many(), directory.as_ref()).mounted.take().unwrap().wait().ok();
}

#[test]
fn a_killed_daemon_leaves_nothing() {
    if !module_is_here() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for round in 0..rounds(4) {
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lifetimes::daemon_to_be_killed"])
            .env("SHUNT_TEST_MOUNTPOINT", path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let done = AtomicBool::new(false);
        assert!(eventually(|| path.join("file0").exists()), "round {round}");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        (0..FILES).for_each(|n| drop(fs::metadata(path.join(format!("file{n}")))));
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(300));
            if round % 2 == 1 {
                Command::new("umount").arg("-l").arg(path).status().unwrap();
            }
            daemon.kill().unwrap();
            daemon.wait().unwrap();
            done.store(true, Ordering::Relaxed);
        });
        if round % 2 == 0 {
            assert_eq!(fs::metadata(path).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
            Command::new("umount").arg("-l").arg(path).status().unwrap();
        }
    }
}
