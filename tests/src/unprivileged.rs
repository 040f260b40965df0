//! Mounting without privileges.

use std::os::unix::fs::chown;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use shunt_test_support::{Peer, User, cmd::within, run};

use crate::{Fixture, binary, mounts};

/// fusermount3 requires a user with a name.
const NOBODY: u32 = 65534;

/// Runs the work as `nobody`, who owns source and mount point of a fixture that is not mounted, and may mount through
/// fusermount3: in a process with its own mount namespace, where /dev/fuse is accessible to all, as on an ordinary machine. The
/// work gets a function that creates `shunt` commands, and has to unmount.
///
/// If the work panics or leaves a daemon behind.
pub fn perform(s: &Fixture, work: impl FnOnce(&(dyn Fn(&[&str]) -> Command + Sync)) + Send) {
    for dir in [s.src(), s.mnt(), s.aside()] {
        chown(dir, Some(NOBODY), Some(NOBODY)).expect("chown: needs root");
    }
    Peer::start(|_| {
        // SAFETY: the child has one thread; its mount namespace is its own from here on.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.expect("own mount table");
        let node = s.aside().join("fuse");
        let line = format!(
            "mount --make-rprivate /; mknod -m 666 {0} c 10 229; mount --bind {0} /dev/fuse",
            node.display()
        );
        run(Command::new("sh").args(["-euc", &line])).ok();
        let shunt = |args: &[&str]| {
            let mut command = binary::command(args);
            command.env("XDG_RUNTIME_DIR", s.aside());
            command
        };
        User::new(NOBODY).run(|| work(&shunt));
        let gone = || mounts::processes_naming(s.mnt()).is_empty();
        assert!(within(shunt_test_support::pace::seconds(2), gone), "a daemon is left");
    })
    .done();
}
