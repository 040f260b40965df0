//! Who a daemon is once it is locked in: a user that owns nothing, and that nobody else is.

use std::io;

use rustix::process::{Resource, Rlimit, getpid, setrlimit};
use rustix::thread::CapabilitySet;

/// Users from here on are assigned to nobody: the ranges that systemd gives to containers end just before. Each daemon is one
/// of them by its process id, so that none can signal or trace another.
const FIRST: u32 = 0x7000_0000;

/// Steps of `nice` that threads may come before others without any right: those of rings that are started later do.
const PRECEDENCE: u64 = 30;

/// What is kept of root's rights where files are passed through: the kernel asks for it with each of them.
pub const PASSING_THROUGH: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// What is kept of them by who keeps the contents of a volume: files may belong to others, and are passed through.
pub const KEEPING_VOLUMES: CapabilitySet = CapabilitySet::SYS_ADMIN.union(OF_STORES);

/// What is kept of them by who serves the stores of a volume to other machines.
pub const OF_STORES: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FOWNER);

/// Has all threads of this process be a user of their own, without groups. Root's rights end with that. It stays who it is where
/// it is not root, or where there is no such user in its user namespace.
///
/// # Errors
/// Those of `setresuid(2)` and its kin.
pub fn become_nobody() -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let _ = setrlimit(Resource::Nice, Rlimit { current: Some(PRECEDENCE), maximum: Some(PRECEDENCE) });
    let user = FIRST + getpid().as_raw_nonzero().get().cast_unsigned();
    let done = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: numbers, and no group. The C library has all threads make each of these calls.
    unsafe {
        done(libc::setgroups(0, std::ptr::null()))?;
        match done(libc::setresgid(user, user, user)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            changed => changed?,
        }
        done(libc::setresuid(user, user, user))
    }
}
