//! Rules of policies, checked by the kernel itself: BPF programs at its security hooks (BPF LSM), and the tables that
//! the daemon shares with them. No module is needed, only a kernel whose list of security modules holds `bpf`.
//!
//! Programs are loaded with the feature `bpf`; without it, or where the kernel refuses, [`load`] says why not, and the
//! daemon checks everything as it always does.

#![deny(missing_docs)]

mod layout;
#[cfg(feature = "bpf")]
mod programs;

use shunt_mirror::KernelEnforcer;

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

/// Programs that the kernel runs, of no mount yet.
#[cfg(feature = "bpf")]
pub struct Loaded(programs::Programs);

/// Programs that the kernel runs: none in this build.
#[cfg(not(feature = "bpf"))]
pub enum Loaded {}

/// Has the kernel run programs at its security hooks. They end with what is returned.
///
/// # Errors
/// [`LsmError`]; nothing is loaded then.
pub fn load() -> Result<Loaded, LsmError> {
    #[cfg(feature = "bpf")]
    return programs::Programs::load().map(Loaded);
    #[cfg(not(feature = "bpf"))]
    Err(LsmError::Absent)
}

impl Loaded {
    /// Puts them at the door of the mount with this device number, as `stat` tells it.
    ///
    /// # Errors
    /// [`LsmError::Refused`].
    pub fn guard(self, device: (u32, u32)) -> Result<Box<dyn KernelEnforcer>, LsmError> {
        #[cfg(feature = "bpf")]
        {
            self.0.watch(device)?;
            Ok(Box::new(self.0))
        }
        #[cfg(not(feature = "bpf"))]
        {
            let _ = device;
            match self {}
        }
    }
}
