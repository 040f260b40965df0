//! Rules of policies, checked by the kernel itself: BPF programs at its security hooks (BPF LSM), and the tables that
//! the daemon shares with them. No module is needed, only a kernel whose list of security modules holds `bpf`.
//!
//! Programs are loaded with the feature `bpf`; without it, or where the kernel refuses, [`guard`] says why not, and the
//! daemon checks everything as it always does.

#![deny(missing_docs)]

mod layout;
#[cfg(feature = "bpf")]
mod programs;

use shunt_mirror::Gate;

/// Why the kernel does not check.
#[derive(Debug, thiserror::Error)]
pub enum LsmError {
    /// This build has no programs.
    #[error("this build has none (feature `lsm`, and clang)")]
    Absent,
    /// The kernel runs no programs at its security hooks: `bpf` is not in `/sys/kernel/security/lsm`.
    #[error("this kernel runs no BPF programs at its security hooks (boot with `lsm=...,bpf`)")]
    NotRun,
    /// The kernel refuses programs: it has no CONFIG_BPF_LSM, or this process lacks CAP_BPF, CAP_PERFMON or
    /// CAP_SYS_ADMIN.
    #[error("the kernel refuses: {0}")]
    Refused(String),
}

/// Puts programs at the door of the mount with this device number, as `stat` tells it. They end with what is returned.
///
/// # Errors
/// [`LsmError`]; nothing is loaded then.
pub fn guard(device: (u32, u32)) -> Result<Box<dyn Gate>, LsmError> {
    #[cfg(feature = "bpf")]
    return Ok(Box::new(programs::Programs::load(device)?));
    #[cfg(not(feature = "bpf"))]
    {
        let _ = device;
        Err(LsmError::Absent)
    }
}
