//! Privileges of the calling thread.

use rustix::thread::{CapabilitySet, capabilities};

fn effective(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// CAP_SYS_ADMIN: may register backing files, may mount.
pub(crate) fn has_sys_admin() -> bool {
    effective(CapabilitySet::SYS_ADMIN)
}

/// CAP_FSETID: writes leave setuid and setgid bits in place.
pub(crate) fn has_fsetid() -> bool {
    effective(CapabilitySet::FSETID)
}

/// Drops CAP_FSETID from the calling thread's effective set, as every thread must that registers backing files.
///
/// # Errors
/// Those of `capset(2)`.
pub fn drop_fsetid() -> Result<(), rustix::io::Errno> {
    let mut sets = capabilities(None)?;
    if sets.effective.contains(CapabilitySet::FSETID) {
        sets.effective.remove(CapabilitySet::FSETID);
        rustix::thread::set_capabilities(None, sets)?;
    }
    Ok(())
}
