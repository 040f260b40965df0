//! System calls: what a daemon needs of them, and what is refused.

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

/// Whom the filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Who serves an image.
    Image(Served),
    /// Who shows a guest a directory.
    Guest,
    /// Who makes files of what is in an image.
    Extract,
    /// Who speaks to other machines.
    Network(Served),
}

/// How requests are answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// They come by io_uring, and all rings are made.
    pub rings: bool,
    /// The kernel does a part of the work, and is told by commands to its devices.
    pub kernel: bool,
}

/// System calls, each with the rules of which one must hold; none means always.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Starting a ring that was made disabled: `IORING_REGISTER_ENABLE_RINGS`.
const START_RING: u64 = 12;

/// A call whose argument is so.
fn when(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<Vec<SeccompRule>, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// What a filter of ours says to what it refuses.
const REFUSED: SeccompAction = SeccompAction::Errno(libc::EPERM.cast_unsigned());

fn compile(rules: Rules, other: SeccompAction, these: SeccompAction) -> Result<BpfProgram, BackendError> {
    SeccompFilter::new(rules, other, these, std::env::consts::ARCH.try_into()?)?.try_into()
}

fn allowed(whom: For) -> Result<Rules, BackendError> {
    match whom {
        For::Image(served) => image::allowed(served),
        For::Guest => guest::allowed(),
        For::Extract => extract::allowed(),
        For::Network(served) => network::allowed(served),
    }
}

/// Whatever else there is, or comes with another kernel or another table of calls (x32), is refused.
fn filter(whom: For, refused: SeccompAction) -> Result<BpfProgram, BackendError> {
    compile(allowed(whom)?, refused, SeccompAction::Allow)
}

/// The flags of `clone3` no filter can see: libraries go back to `clone` where it is not there.
fn without_clone3() -> Result<BpfProgram, BackendError> {
    let absent = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    compile(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), SeccompAction::Allow, absent)
}

/// The same calls once more, for programs whose pointers have 32 bits: a list of numbers does not know them.
#[cfg(target_arch = "x86_64")]
fn without_x32() -> BpfProgram {
    use seccompiler::sock_filter;
    const X32: u32 = 0x4000_0000;
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    vec![
        // The number of the call is the first word of what a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Locks all threads of this process in, and those that come. A set-user-id program has no effect from then on.
pub fn forbid(whom: For) -> Result<(), String> {
    let lock = |filter: Result<BpfProgram, BackendError>| {
        let filter = filter.map_err(|error| error.to_string())?;
        seccompiler::apply_filter_all_threads(&filter).map_err(|error| error.to_string())
    };
    // First: the last one lets no more filters be set.
    lock(without_clone3())?;
    #[cfg(target_arch = "x86_64")]
    lock(Ok(without_x32()))?;
    lock(filter(whom, REFUSED))
}

#[cfg(test)]
mod tests;
