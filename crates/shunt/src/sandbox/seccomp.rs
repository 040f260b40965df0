//! The seccomp filter: a list of the system calls that a daemon needs; all others fail with EPERM.

mod common;
mod extract;
mod guest;
mod image;
mod network;

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// The kind of process that a filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The daemon of an image.
    Image(DaemonFeatures),
    /// A daemon that serves a directory to a guest.
    Guest,
    /// A process that extracts files of an image.
    Extract,
    /// A daemon or gateway that uses the network.
    Network(DaemonFeatures),
}

/// The transport of requests and the part of the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DaemonFeatures {
    /// Requests arrive by io_uring, and all rings exist already.
    pub rings: bool,
    /// A kernel module does part of the work, controlled by ioctls on its devices.
    pub kernel: bool,
}

/// The allowed system calls, each with alternative conditions; an empty list means unconditionally.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Enables a ring that was created disabled: `IORING_REGISTER_ENABLE_RINGS`.
const START_RING: u64 = 12;

/// The condition that an argument compares to a value.
fn when(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<Vec<SeccompRule>, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// The result of a refused call.
const REFUSED_CALL: SeccompAction = SeccompAction::Errno(libc::EPERM.cast_unsigned());

fn compile(rules: Rules, other: SeccompAction, these: SeccompAction) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, other, these, std::env::consts::ARCH.try_into()?)?.try_into()
}

fn allowed(whom: Profile) -> Result<Rules, BackendError> {
    match whom {
        Profile::Image(served) => image::allowed(served),
        Profile::Guest => guest::allowed(),
        Profile::Extract => extract::allowed(),
        Profile::Network(served) => network::allowed(served),
    }
}

/// Refuses every other call, also those of later kernels and of another call table (x32).
fn filter(whom: Profile, refused: SeccompAction) -> Result<BpfProgram, BackendError> {
    compile(allowed(whom)?, refused, SeccompAction::Allow)
}

/// Hides `clone3`, whose flags are in memory that a filter cannot read: with ENOSYS libraries fall back to `clone`.
fn without_clone3() -> Result<BpfProgram, BackendError> {
    let absent = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    compile(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), SeccompAction::Allow, absent)
}

/// Refuses the x32 table, which has the same calls under other numbers, for programs with 32-bit pointers.
#[cfg(target_arch = "x86_64")]
fn without_x32() -> BpfProgram {
    use seccompiler::sock_filter;
    const X32: u32 = 0x4000_0000;
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    vec![
        // The call number is the first word of `struct seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Applies the filters to all threads of this process, and those that they start later. Set-user-ID programs have no effect from
/// then on.
pub fn forbid(whom: Profile) -> Result<(), String> {
    let lock = |filter: Result<BpfProgram, BackendError>| {
        let filter = filter.map_err(|error| error.to_string())?;
        seccompiler::apply_filter_all_threads(&filter).map_err(|error| error.to_string())
    };
    // Applied first: the last filter allows no further ones.
    lock(without_clone3())?;
    #[cfg(target_arch = "x86_64")]
    lock(Ok(without_x32()))?;
    lock(filter(whom, REFUSED_CALL))
}

#[cfg(test)]
mod tests;
