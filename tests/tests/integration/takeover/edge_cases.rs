//! Special cases of takeovers.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use rustix::process::Signal;
use shunt_test_support::cmd::{one_line, within};
use shunt_test_support::{Peer, User, needs_mount, needs_tools, run_for};
use shunt_tests::{Fixture, Plan, binary, fixture, mounts};

use super::kill;

fn plan() -> Plan {
    Plan::tmpfs().args(&["--transport", "dev"])
}

/// Mounts without `--daemon`.
pub fn in_the_foreground(s: &Fixture) -> Child {
    let command = s.mount_command();
    let child = Command::new(command.get_program())
        .args(command.get_args().filter(|arg| *arg != "--daemon"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(within(Duration::from_secs(10), || mounts::count(s.mnt()) == 1 && s.entry().is_some()));
    child
}

/// A query that arrives between two daemons is answered by the successor.
#[test]
fn stat_is_answered_between_two_daemons() {
    needs_mount!();
    fixture::perform(plan().args(&["--crashes", "1000"]), |s| {
        for _ in 0..10 {
            let before = s.server().expect("a daemon");
            mounts::signal(before, Signal::KILL);
            // The killed daemon may still send a last reply.
            assert!(within(Duration::from_secs(10), || s.stat()["pid"] != before));
        }
    });
}

#[test]
fn a_mount_in_the_foreground_goes_on_in_the_background() {
    needs_mount!();
    fixture::perform(plan().unmounted(), |s| {
        let mut child = in_the_foreground(s);
        let mut file = File::create(s.path("f")).unwrap();
        kill(s);
        assert!(!child.wait().unwrap().success(), "killed");
        file.write_all(b"goes on").unwrap();
        assert_eq!(fs::read(s.lower("f")).unwrap(), b"goes on");
        kill(s);
        file.write_all(b", and on").unwrap();
        drop(file);
        s.umount().ok();
        assert!(s.ends_within(Duration::from_secs(5)));
    });
}

/// The daemon continues without a guardian. If it is then killed, a dead mount remains, which one command removes.
#[test]
fn without_its_guardian_a_daemon_goes_on() {
    needs_mount!();
    fixture::perform(plan(), |s| {
        // By the first daemon, and by a successor.
        for takes_over in [false, true] {
            if takes_over {
                s.mount_command().status().unwrap();
                kill(s);
            }
            let daemon = s.server().unwrap();
            let is_guardian = |pid: &u32| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "shunt-guardian\n")
            };
            let guardian = mounts::parent(daemon).filter(is_guardian).or_else(|| {
                let pids = fs::read_dir("/proc").unwrap();
                let mut pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
                pids.find(|pid| mounts::parent(*pid) == Some(daemon) && is_guardian(pid))
            });
            let guardian = guardian.expect("a guardian");
            let open = File::create(s.path("open")).unwrap();
            mounts::signal(guardian, Signal::KILL);
            assert!(within(Duration::from_secs(5), || !mounts::alive(guardian)));

            for round in 0..50 {
                let path = s.path(format!("f{round}"));
                fs::write(&path, b"x").unwrap();
                fs::remove_file(&path).unwrap();
            }
            (&open).write_all(b"works").unwrap();
            assert_eq!(s.server(), Some(daemon));
            let ran = run_for(20, binary::command(&["upgrade"]).arg(s.mnt()));
            assert!(!ran.success());
            one_line(&ran.err, "guardian");
            assert_eq!(s.server(), Some(daemon), "nothing has changed");
            assert!(s.stat()["no_takeover"].as_str().unwrap().contains("guardian"));

            mounts::signal(daemon, Signal::KILL);
            assert!(within(Duration::from_secs(5), || !mounts::alive(daemon)));
            let errno = fs::metadata(s.path("f")).unwrap_err().raw_os_error();
            assert!(matches!(errno, Some(libc::ENOTCONN | libc::ECONNABORTED)), "{errno:?}");
            drop(open);
            assert_eq!(mounts::count(s.mnt()), 1, "dead");
            s.umount().ok();
            assert_eq!(mounts::count(s.mnt()), 0);
        }
    });
}

/// Without privileges inodes cannot be opened by handle, so the guardian removes the mount.
#[test]
fn a_mount_of_a_user_without_privilege_is_taken_away() {
    const NOBODY: u32 = 65534;
    needs_mount!();
    needs_tools!("fusermount3");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    for dir in [s.src(), s.mnt(), s.aside()] {
        std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // The test runs in a mount namespace of its own, where /dev/fuse is accessible to all.
    Peer::start(|_| {
        // SAFETY: the child has one thread; its mount namespace is its own from here on.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("own mounts");
        let node = s.aside().join("fuse");
        let line = format!(
            "mount --make-rprivate /; mknod -m 666 {0} c 10 229; mount --bind {0} /dev/fuse",
            node.display()
        );
        assert!(Command::new("sh").args(["-euc", &line]).status().unwrap().success());
        User::new(NOBODY).run(|| {
            let shunt = |args: &[&str]| {
                let mut command = binary::command(args);
                command.env("XDG_RUNTIME_DIR", s.aside());
                command
            };
            run_for(20, shunt(&["mirror", "--daemon"]).arg(s.src()).arg(s.mnt())).ok();
            fs::write(s.path("f"), b"mine").unwrap();
            let stat = run_for(20, shunt(&["stat", "--json"]).arg(s.mnt())).ok();
            assert!(stat.contains("\"no_takeover\": \""), "{stat}");
            let ran = run_for(20, shunt(&["upgrade"]).arg(s.mnt()));
            assert!(!ran.success());
            one_line(&ran.err, "no daemon can take over");
            assert_eq!(fs::read(s.path("f")).unwrap(), b"mine", "it serves on");
            mounts::signal(s.server().unwrap(), Signal::KILL);
            assert!(within(Duration::from_secs(5), || mounts::count(s.mnt()) == 0), "a dead mount");
        });
        assert!(within(Duration::from_secs(5), || mounts::processes_naming(s.mnt()).is_empty()));
    })
    .done();
}

/// A tmpfs mounted in the source.
struct Submount(PathBuf);

impl Submount {
    fn mount(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        assert!(Command::new("mount").args(["-t", "tmpfs", "below"]).arg(&path).status().unwrap().success());
        Self(path)
    }
}

impl Drop for Submount {
    fn drop(&mut self) {
        mounts::detach(&self.0);
    }
}

/// Inodes of file systems below the source keep their numbers, in any order of lookups, and stay open.
#[test]
fn mounts_below_the_source() {
    needs_mount!();
    let Some(mut s) = plan().unmounted().set_or_skip() else { return };
    let names = ["a", "b", "c"];
    let below = names.map(|name| Submount::mount(s.lower(name)));
    for name in names {
        fs::write(s.lower(name).join("f"), name).unwrap();
    }
    s.mount();
    {
        let ino = |name: &str| fs::metadata(s.path(name).join("f")).unwrap().ino();
        let before = ["c", "a", "b"].map(ino);
        let mut open =
            names.map(|name| File::options().read(true).append(true).open(s.path(name).join("f")).unwrap());
        for round in 1..=2 {
            kill(&s);
            let order = if round == 1 { ["b", "c", "a"] } else { ["a", "b", "c"] };
            let _ = order.map(ino);
            assert_eq!(["c", "a", "b"].map(ino), before, "inode numbers");
            for (file, name) in open.iter_mut().zip(names) {
                file.write_all(name.as_bytes()).unwrap();
                let mut all = String::new();
                file.rewind().unwrap();
                file.read_to_string(&mut all).unwrap();
                assert_eq!(all, name.repeat(round + 1));
                assert_eq!(fs::read_to_string(s.path(name).join("f")).unwrap(), all);
            }
        }
    }
    s.umount().ok();
    drop(below);
}

/// Stores through a mapping that outlives its file change the inode's times without a notice to any daemon, including a
/// successor.
#[test]
fn a_mapping_is_remembered() {
    needs_mount!();
    let plan = Plan::ext4().args(&["--transport", "dev", "--cache", "exclusive"]);
    fixture::perform(plan, |s| {
        let path = s.path("mapped");
        fs::write(&path, [1; 8192]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping of a file of the same size, unmapped below, accessed through the raw pointer alone.
        let map = unsafe { rustix::mm::mmap(std::ptr::null_mut(), 8192, flags, MapFlags::SHARED, &file, 0) }
            .unwrap();
        drop(file);
        kill(s);
        let before = fs::metadata(&path).unwrap().mtime_nsec();
        std::thread::sleep(Duration::from_millis(20));
        // SAFETY: within the mapping.
        unsafe {
            map.cast::<u8>().write_volatile(7);
            rustix::mm::msync(map, 8192, MsyncFlags::SYNC).unwrap();
        }
        assert_ne!(fs::metadata(s.lower("mapped")).unwrap().mtime_nsec(), before, "the test tests something");
        std::thread::sleep(Duration::from_millis(1100));
        let shown = fs::metadata(&path).unwrap().mtime_nsec();
        assert_eq!(shown, fs::metadata(s.lower("mapped")).unwrap().mtime_nsec());
        // SAFETY: the mapping made above.
        unsafe { rustix::mm::munmap(map, 8192) }.unwrap();
    });
}
