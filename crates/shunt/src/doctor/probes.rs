//! System calls of checks that rustix does not have.

use std::io;

/// The version of landlock(7) in this kernel.
///
/// # Errors
/// ENOSYS if it is not compiled in, EOPNOTSUPP if it is off.
pub fn landlock_version() -> io::Result<i64> {
    // SAFETY: with this flag the call reads no memory and returns the version.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u64>(), 0, 1) };
    if version < 0 { Err(io::Error::last_os_error()) } else { Ok(version) }
}

/// Reports whether the kernel's clock is synchronised; none if that is not known.
pub fn clock_is_synchronised() -> Option<bool> {
    // SAFETY: the structure consists of integers, for which zero is valid; modes 0 changes nothing.
    let state = unsafe {
        let mut request: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut request)
    };
    (state >= 0).then_some(state != libc::TIME_ERROR)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_probes_return() {
        assert!(
            super::landlock_version().is_ok_and(|version| version > 0) || super::landlock_version().is_err()
        );
        super::clock_is_synchronised();
    }
}
