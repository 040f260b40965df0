//! A mirror exported by the kernel's NFS server and mounted on the same machine.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use shunt_test_support::cmd::within;
use shunt_test_support::{memory, needs_mount, pace, skip};
use shunt_tests::{Fixture, Plan, fixture, mounts};

/// The server, with one export and one mount of it, without user-space daemons: their replies to the kernel's access queries
/// are written in advance.
struct Nfs {
    control: PathBuf,
    mnt: PathBuf,
}

/// `NFSEXP_*`: any port, no check of the path to the export, an explicit fsid.
const EXPORT: u32 = 0x2 | 0x400 | 0x2000;

/// Expiry in seconds since 1970, beyond the life of the machine.
const FOR_EVER: u32 = i32::MAX as u32;

/// Directory in which the server records clients that may reclaim state after a restart; without it, every client waits for a
/// grace period.
const RECOVERY: &str = "/var/lib/nfs/v4recovery";

impl Nfs {
    fn start(s: &Fixture) -> Self {
        let nfs = Self { control: s.aside().join("nfsd"), mnt: s.aside().join("nfs") };
        [&nfs.control, &nfs.mnt].iter().for_each(|dir| fs::create_dir(dir).unwrap());
        fs::create_dir_all(RECOVERY).unwrap();
        mount("nfsd", &nfs.control, "nfsd", MountFlags::empty(), None).expect("CONFIG_NFSD");
        nfs.set("versions", "-3 +4 +4.1 +4.2");
        // The shortest ones, in seconds: opens wait until the grace period is over. Before `portlist`, which creates the server.
        nfs.set("nfsv4leasetime", "10");
        nfs.set("nfsv4gracetime", "10");
        nfs.set("portlist", "tcp 2049");
        let export = s.mnt().display();
        cache("auth.unix.ip", &format!("nfsd 127.0.0.1 {FOR_EVER} all"));
        cache("nfsd.export", &format!("all {export} {FOR_EVER} {EXPORT} 65534 65534 0"));
        cache("nfsd.fh", &format!("all 1 \\x00000000 {FOR_EVER} {export}"));
        nfs.set("threads", "2");
        // A kernel that records no clients (Debian's 7.3, without the program nfsdcld) cannot end the grace period early.
        if let Err(error) = fs::write(nfs.control.join("v4_end_grace"), "Y\n") {
            assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy, "v4_end_grace: {error}");
        }
        let how = c"addr=127.0.0.1,clientaddr=127.0.0.1,vers=4.2,proto=tcp,hard";
        mount("127.0.0.1:/", &nfs.mnt, "nfs4", MountFlags::empty(), Some(how)).expect("CONFIG_NFS_V4");
        nfs
    }

    fn set(&self, file: &str, what: &str) {
        fs::write(self.control.join(file), format!("{what}\n")).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
}

/// Writes a reply into one of the kernel's caches.
fn cache(name: &str, line: &str) {
    let channel = Path::new("/proc/net/rpc").join(name).join("channel");
    fs::write(channel, format!("{line}\n")).unwrap_or_else(|e| panic!("{name}: {e}"));
}

impl Drop for Nfs {
    fn drop(&mut self) {
        let unmounted = unmount(&self.mnt, UnmountFlags::empty());
        fs::write(self.control.join("threads"), "0\n").ok();
        // The export holds a reference to the mirror's mount.
        for name in ["nfsd.fh", "nfsd.export", "auth.unix.ip"] {
            fs::write(Path::new("/proc/net/rpc").join(name).join("flush"), "1\n").ok();
        }
        mounts::detach(&self.mnt);
        mounts::detach(&self.control);
        assert!(unmounted.is_ok() || std::thread::panicking(), "{unmounted:?}");
    }
}

fn text(file: &File) -> String {
    let mut bytes = [0; 64];
    let length = file.read_at(&mut bytes, 0).unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

/// The server identifies files by handles only, so evicted inodes must be found again by handle: after the caches were dropped,
/// after renames, and after a successor daemon took over.
fn goes_on(s: &Fixture) {
    let turn = memory::drop_at_will();
    let nfs = Nfs::start(s);
    let n = |name: &str| nfs.mnt.join(name);
    fs::write(n("f"), "hello").unwrap();
    assert_eq!(fs::read_to_string(s.lower("f")).unwrap(), "hello");
    fs::create_dir(n("d")).unwrap();
    fs::rename(n("f"), n("d/g")).unwrap();
    let held = File::open(n("d/g")).unwrap();
    turn.forget_names();
    assert_eq!(text(&held), "hello");
    fs::rename(n("d"), n("e")).unwrap();
    turn.forget_names();
    assert_eq!(fs::read_to_string(n("e/g")).unwrap(), "hello");

    let mut writer = File::options().create_new(true).read(true).write(true).open(n("e/h")).unwrap();
    writer.write_all(b"one").unwrap();
    writer.sync_all().unwrap();
    let first = s.server().expect("a daemon");
    mounts::signal(first, Signal::KILL);
    writer.write_all(b"two").unwrap();
    writer.sync_all().unwrap();
    let second = || s.server().is_some_and(|pid| pid != first);
    assert!(within(pace::seconds(10), second), "nobody went on");
    turn.forget_names();
    assert_eq!((text(&held), text(&writer)), ("hello".into(), "onetwo".into()));
    drop((held, writer));
    turn.forget_names();
    let mut back = String::new();
    File::open(n("e/h")).unwrap().read_to_string(&mut back).unwrap();
    assert_eq!(back, "onetwo");
    assert_eq!(fs::read_to_string(s.lower("e/h")).unwrap(), "onetwo");
    fs::remove_file(n("e/h")).unwrap();
    let mut left: Vec<_> = fs::read_dir(n("e")).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["g"]);
    assert!(!s.lower("e/h").exists());
}

#[test]
fn an_export_goes_on() {
    needs_mount!();
    if std::env::var_os("SHUNT_LAB").is_none() {
        skip::kernel_cannot("a machine has one NFS server, which is not ours to start: only in the lab");
        return;
    }
    // A session over io_uring cannot be handed over.
    for plan in [Plan::tmpfs(), Plan::ext4()] {
        fixture::perform(plan.args(&["--transport", "dev"]), goes_on);
    }
}
