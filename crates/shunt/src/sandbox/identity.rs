//! The identity of a sandboxed daemon: a user id that owns nothing and that no other process has.

use std::io;

use rustix::process::{Resource, Rlimit, getpid, setrlimit};
use rustix::thread::CapabilitySet;

/// The first of the user ids that are assigned to no user: the ranges that systemd gives to containers end just before. Each
/// daemon's id depends on its process id, so that no daemon can signal or trace another.
const FIRST_UID: u32 = 0x7000_0000;

/// `RLIMIT_NICE`, which lets threads raise their priority without privilege, as those of rings that are started later do.
const NICE_LIMIT: u64 = 30;

/// The capability kept for passthrough: the kernel checks it for each file.
pub const PASSTHROUGH_CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// The capabilities kept for the cache of a volume: its files may belong to other users, and use passthrough.
pub const VOLUME_CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN.union(STORE_CAPABILITIES);

/// The capabilities kept for serving the stores of a volume to other machines.
pub const STORE_CAPABILITIES: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FOWNER);

/// Switches all threads of this process to a user id of its own, without groups, which drops root's privileges. Does nothing if
/// the process is not root, or if its user namespace has no such user.
///
/// # Errors
/// The errors of `setresuid(2)`, `setresgid(2)` and `setgroups(2)`.
pub fn switch_to_nobody() -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let _ = setrlimit(Resource::Nice, Rlimit { current: Some(NICE_LIMIT), maximum: Some(NICE_LIMIT) });
    let user = FIRST_UID + getpid().as_raw_nonzero().get().cast_unsigned();
    let done = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: passes numbers, and an empty list of groups. The C library has all threads make each of these calls.
    unsafe {
        done(libc::setgroups(0, std::ptr::null()))?;
        match done(libc::setresgid(user, user, user)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            changed => changed?,
        }
        done(libc::setresuid(user, user, user))
    }
}
