//! Privileges of the calling thread.

use rustix::thread::{CapabilitySet, capabilities};

fn effective(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Reports whether the thread has CAP_SYS_ADMIN, with which it may register backing files and mount.
pub(crate) fn has_sys_admin() -> bool {
    effective(CapabilitySet::SYS_ADMIN)
}

/// Reports whether the thread has CAP_FSETID, with which its writes keep setuid and setgid bits.
pub(crate) fn has_fsetid() -> bool {
    effective(CapabilitySet::FSETID)
}

/// Drops CAP_FSETID from the calling thread's effective set, as required of every thread that registers backing files.
///
/// # Errors
/// The errors of `capset(2)`.
pub fn drop_fsetid() -> Result<(), rustix::io::Errno> {
    let mut sets = capabilities(None)?;
    if sets.effective.contains(CapabilitySet::FSETID) {
        sets.effective.remove(CapabilitySet::FSETID);
        rustix::thread::set_capabilities(None, sets)?;
    }
    Ok(())
}
