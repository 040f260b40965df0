//! Commands in a mount namespace of their own, without the mounts of this machine's other tests.

use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use shunt_test_support::{Peer, run};

/// Removes the mounts and control sockets of Shunt from the namespace, which stay outside.
const ALONE: &str = "mount --make-rprivate /
    mount -t tmpfs none /run
    awk '$9 ~ /^fuse.shunt/ || $8 ~ /^fuse.shunt/ || $10 ~ /^fuse.shunt/ {print $5}' /proc/self/mountinfo |
        while IFS= read -r path; do umount -l \"$(printf %b \"$path\")\" || :; done
    ";

/// Runs `setup`, lines of shell, and then the work, in a process with its own mount namespace that has no mount of Shunt.
///
/// # Panics
/// If the set-up fails, or the work panics.
pub fn alone(setup: &str, work: impl FnOnce()) {
    Peer::start(|_| {
        // SAFETY: the child has one thread; its mount namespace is its own from here on.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.expect("own mount table");
        run(Command::new("sh").args(["-euc", &[ALONE, setup].concat()])).ok();
        work();
    })
    .done();
}
