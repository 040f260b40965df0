//! Start, end and kill of a mount.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shunt_fuse::mount::{MountId, MountPoint};
use shunt_test_support::cmd::{one_line, within};
use shunt_test_support::{Peer, needs_mount, patiently, run, run_for};
use shunt_tests::{Plan, binary, fixture, mounts};

const SOON: Duration = Duration::from_secs(2);

/// The signal ends the daemon and removes the mount, also while requests are in progress.
fn ended_by(signal: Signal) {
    needs_mount!();
    let takeover = if signal == Signal::KILL { "off" } else { "auto" };
    fixture::perform(Plan::tmpfs().args(&["--takeover", takeover]), |s| {
        fs::write(s.path("f"), b"kept").unwrap();
        assert!(mounts::signal(s.pid(), signal));
        assert!(
            s.ends_within(SOON),
            "mounts {}, daemon alive {}",
            mounts::count(s.mnt()),
            mounts::alive(s.pid())
        );
        let left = || mounts::processes_naming(s.mnt());
        assert!(within(SOON, || left().is_empty()), "processes left: {:?}", left());
        assert_eq!(fs::read_dir(s.mnt()).unwrap().count(), 0, "the mount point is a plain directory again");
        assert_eq!(fs::read(s.lower("f")).unwrap(), b"kept");
        assert!(s.entry().is_none(), "still in `shunt list`");
    });
}

#[test]
fn sigterm() {
    ended_by(Signal::TERM);
}

#[test]
fn sigint() {
    ended_by(Signal::INT);
}

#[test]
fn sigkill() {
    ended_by(Signal::KILL);
}

/// With open files, a working directory and a pending request in the mount, SIGKILL leaves nothing behind, and no caller hangs.
#[test]
fn sigkill_while_in_use() {
    needs_mount!();
    fixture::perform(Plan::daemon().args(&["--takeover", "off"]), |s| {
        fs::write(s.path("f"), vec![1; 1 << 20]).unwrap();
        let open = File::open(s.path("f")).unwrap();
        let path = s.path("f");
        let mut reader = Peer::start(|link| {
            let f = File::options().read(true).write(true).open(&path).unwrap();
            let mut block = vec![0; 65536];
            link.send(1);
            for n in 0.. {
                if f.read_at(&mut block, n % 16 * 65536).is_err() || f.write_at(&block, 0).is_err() {
                    return;
                }
            }
        });
        reader.link().receive().expect("reading");
        std::thread::sleep(Duration::from_millis(50));
        assert!(mounts::signal(s.pid(), Signal::KILL));
        assert!(s.ends_within(SOON), "mounts {}", mounts::count(s.mnt()));
        reader.done_within(Duration::from_secs(5));
        let e = open.read_at(&mut [0; 10], 1 << 19).err().and_then(|e| e.raw_os_error());
        assert!(matches!(e, None | Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO)), "{e:?}");
        fs::write(s.path("not-in-the-mirror"), b"").unwrap();
        assert!(!s.lower("not-in-the-mirror").exists());
        fs::remove_file(s.path("not-in-the-mirror")).unwrap();
    });
}

#[test]
fn sigterm_while_in_use() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
        let open = File::create(s.path("f")).unwrap();
        assert!(mounts::signal(s.pid(), Signal::TERM));
        assert!(within(SOON, || mounts::count(s.mnt()) == 0));
        drop(open);
        assert!(s.ends_within(SOON), "the daemon outlives its last user");
    });
}

#[test]
fn umount_waits_for_the_daemon() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
        fs::write(s.path("f"), vec![1; 8 << 20]).unwrap();
        s.umount().ok();
        assert!(!mounts::alive(s.pid()), "shunt umount came back before the daemon was done");
        assert_eq!(mounts::count(s.mnt()), 0);
    });
}

#[test]
fn plain_umount_ends_the_daemon() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
        patiently(|| run(Command::new("umount").arg(s.mnt()))).ok();
        assert!(s.ends_within(SOON));
    });
}

#[test]
fn a_busy_mount_stays() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
        let mut open = File::create(s.path("f")).unwrap();
        let ran = s.try_umount();
        assert_eq!(ran.status.and_then(|st| st.code()), Some(4), "{ran:#?}");
        one_line(&ran.err, "busy");
        open.write_all(b"still served").unwrap();
        assert_eq!(fs::read(s.path("f")).unwrap(), b"still served");
        drop(open);
        s.umount().ok();
        assert!(s.ends_within(SOON));
    });
}

#[test]
fn a_lazy_umount_serves_to_the_end() {
    needs_mount!();
    fixture::perform(Plan::daemon(), |s| {
        let mut open = File::create(s.path("f")).unwrap();
        run_for(10, binary::command(&["umount", "--lazy", "--timeout", "0"]).arg(s.mnt()));
        assert_eq!(mounts::count(s.mnt()), 0);
        open.write_all(b"late").unwrap();
        open.sync_all().unwrap();
        assert!(mounts::alive(s.pid()));
        drop(open);
        assert!(s.ends_within(SOON));
        assert_eq!(fs::read(s.lower("f")).unwrap(), b"late");
    });
}

/// The mount covers its own source.
#[test]
fn mounted_over_its_own_source() {
    needs_mount!();
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    fs::create_dir(s.lower("d")).unwrap();
    fs::write(s.lower("d/f"), b"x").unwrap();
    run(binary::command(&["mirror", "--daemon"]).arg(s.src()).arg(s.src())).ok();
    assert_eq!(mounts::count(s.src()), 1);
    let seen = std::panic::catch_unwind(|| {
        assert_eq!(fs::read(s.lower("d/f")).unwrap(), b"x");
        fs::write(s.lower("d/new"), b"through the mirror").unwrap();
        fs::rename(s.lower("d"), s.lower("e")).unwrap();
        assert_eq!(fs::read(s.lower("e/new")).unwrap(), b"through the mirror");
        assert_eq!(run(Command::new("find").arg(s.src())).ok().lines().count(), 4);
        assert!(rustix::fs::statvfs(s.src()).is_ok());
    });
    let ran = patiently(|| run_for(20, binary::command(&["umount"]).arg(s.src())));
    mounts::detach(s.src());
    assert!(seen.is_ok() && ran.success(), "{ran:#?}");
    assert_eq!(fs::read(s.lower("e/new")).unwrap(), b"through the mirror");
}

/// The mirror contains its own mount point: looking into it must not hang.
#[test]
fn mountpoint_inside_of_the_source() {
    needs_mount!();
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    let inside = s.lower("inside");
    fs::create_dir(&inside).unwrap();
    fs::write(s.lower("f"), b"x").unwrap();
    let ran = run_for(20, binary::command(&["mirror", "--daemon"]).arg(s.src()).arg(&inside));
    if !ran.success() {
        // A refusal is acceptable, too.
        one_line(&ran.err, "");
        return;
    }
    let found = run_for(20, Command::new("find").arg(&inside).args(["-xdev", "-printf", "%p %s\n"]));
    let umount = patiently(|| run_for(20, binary::command(&["umount"]).arg(&inside)));
    mounts::detach(&inside);
    let found = found.ok();
    assert!(found.contains("inside/f 1") && found.contains("inside/inside"), "{found}");
    umount.ok();
}

#[test]
fn two_mirrors_of_one_source() {
    needs_mount!();
    fixture::perform(Plan::tmpfs().args(&["--cache", "none"]), |s| {
        let other = s.aside().join("other");
        fs::create_dir(&other).unwrap();
        run(binary::command(&["mirror", "--daemon", "--cache", "none"]).arg(s.src()).arg(&other)).ok();
        let seen = std::panic::catch_unwind(|| {
            fs::write(s.path("f"), b"x").unwrap();
            assert_eq!(fs::read(other.join("f")).unwrap(), b"x");
            fs::remove_file(other.join("f")).unwrap();
            assert!(!s.path("f").exists());
        });
        let ran = patiently(|| run(binary::command(&["umount"]).arg(&other)));
        mounts::detach(&other);
        assert!(seen.is_ok() && ran.success(), "{ran:#?}");
    });
}

/// A mirror of a mirror, as with containers.
#[test]
fn a_mirror_of_a_mirror() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
        let other = s.aside().join("other");
        fs::create_dir(&other).unwrap();
        run(binary::command(&["mirror", "--daemon"]).arg(s.mnt()).arg(&other)).ok();
        let seen = std::panic::catch_unwind(|| {
            fs::write(other.join("f"), b"twice removed").unwrap();
            assert_eq!(fs::read(s.lower("f")).unwrap(), b"twice removed");
            assert_eq!(fs::read(other.join("f")).unwrap(), b"twice removed");
        });
        let ran = patiently(|| run(binary::command(&["umount"]).arg(&other)));
        mounts::detach(&other);
        assert!(seen.is_ok() && ran.success(), "{ran:#?}");
    });
}

/// Returns the control socket of the daemon of a root mount.
fn control_socket(mnt: &Path) -> PathBuf {
    let mount = MountPoint::find(mnt).unwrap();
    let (MountId::Unique(id) | MountId::Reusable(id)) = mount.id();
    Path::new("/run/shunt").join(format!("{}-{id}.sock", mount.dev()))
}

/// Repeated mounts leave nothing behind: no process, no file, no socket, no mount.
#[test]
fn two_hundred_mounts() {
    needs_mount!();
    let Some(mut s) = Plan::tmpfs().patience(120).unmounted().set_or_skip() else { return };
    fs::write(s.lower("f"), b"x").unwrap();
    let mine = mounts::open_files(std::process::id());
    let mut sockets = Vec::new();
    let start = Instant::now();
    for round in 0..200 {
        run_for(20, &mut s.mount_command()).ok();
        assert_eq!(fs::read(s.path("f")).unwrap_or_default(), b"x", "round {round}");
        sockets.push(control_socket(s.mnt()));
        assert!(round > 0 || sockets[0].exists(), "{}", sockets[0].display());
        assert!(s.umount().success() && mounts::count(s.mnt()) == 0, "round {round}");
    }
    assert!(
        within(SOON, || mounts::processes_naming(s.mnt()).is_empty()),
        "{:?}",
        mounts::processes_naming(s.mnt())
    );
    // In the lab, other tests of this process have open files, too.
    assert!(within(SOON, || mounts::open_files(std::process::id()) <= mine + 8));
    sockets.retain(|socket| socket.exists());
    assert!(sockets.is_empty(), "{sockets:?}");
    assert!(start.elapsed() < shunt_test_support::pace::seconds(100), "{:?}", start.elapsed());
    s.mount();
}

/// A caller that waits for a FIFO, a lock or a slow reply dies at once when killed, because the daemon gets INTERRUPT.
#[test]
fn waiting_readers_can_be_killed() {
    needs_mount!();
    fixture::perform(Plan::tmpfs(), |s| {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, s.path("p"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let path = s.path("p");
        let mut peer = Peer::start(|link| {
            link.send(1);
            drop(File::open(&path));
        });
        peer.link().receive().expect("started");
        std::thread::sleep(Duration::from_millis(100));
        assert!(peer.kill());
        // A stopped daemon sends no replies; its caller can be killed nevertheless.
        mounts::stop(s.pid());
        let mut peer = Peer::start(|link| {
            link.send(1);
            drop(fs::metadata(path.with_file_name("never seen")));
        });
        peer.link().receive().expect("started");
        std::thread::sleep(Duration::from_millis(100));
        let killed = peer.kill();
        mounts::signal(s.pid(), Signal::CONT);
        // The kernel can withdraw a request until the daemon has read it; afterwards only a reply frees the caller. A ring has
        // the request at once.
        assert!(
            killed || shunt_test_support::rings::over_rings(),
            "a process that waits for a stopped daemon cannot be killed"
        );
        assert!(s.path("p").exists());
    });
}
