//! Enforcement of policy rules in the kernel by BPF LSM programs, with tables that the daemon shares with them. It
//! needs no kernel module, only a kernel whose list of security modules contains `bpf`.
//!
//! Programs are loaded with the feature `bpf`. Without it, or if the kernel refuses them, [`load`] returns the reason,
//! and the daemon checks everything itself.

#![deny(missing_docs)]

mod layout;
#[cfg(feature = "bpf")]
mod programs;

use shunt_policyfs::KernelEnforcer;

/// The reason why the kernel does not check rules.
#[derive(Debug, thiserror::Error)]
pub enum LsmError {
    /// This build contains no programs.
    #[error("this build contains no BPF programs; build it with the feature `lsm` and clang")]
    Absent,
    /// The kernel runs no programs at its security hooks: `bpf` is not in `/sys/kernel/security/lsm`.
    #[error("this kernel runs no BPF programs at its security hooks; boot with `lsm=...,bpf`")]
    NotRun,
    /// The kernel refuses to load programs: it lacks CONFIG_BPF_LSM, or this process lacks CAP_BPF, CAP_PERFMON or
    /// CAP_SYS_ADMIN.
    #[error("the kernel refuses the BPF programs: {0}")]
    Refused(String),
}

/// Loaded programs that are not bound to a mount yet.
#[cfg(feature = "bpf")]
pub struct Loaded(programs::Programs);

/// Loaded programs: uninhabited in this build.
#[cfg(not(feature = "bpf"))]
pub enum Loaded {}

/// Loads and attaches the programs. Dropping the result detaches them.
///
/// # Errors
/// [`LsmError`]; nothing stays loaded.
pub fn load() -> Result<Loaded, LsmError> {
    #[cfg(feature = "bpf")]
    return programs::Programs::load().map(Loaded);
    #[cfg(not(feature = "bpf"))]
    Err(LsmError::Absent)
}

impl Loaded {
    /// Binds the programs to the mount with this device number, as `stat` reports it.
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
