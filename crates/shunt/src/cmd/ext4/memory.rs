//! Memory settings of the daemon: allocation during writeback, malloc arenas, and `--mlock`.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::{Code, Failure, Result, failed};

/// Sets `PR_SET_IO_FLUSHER` for this thread and the threads that it starts: memory allocated while writing dirty pages back must
/// not wait for that writeback. Needs CAP_SYS_RESOURCE.
pub fn set_io_flusher() {
    let flusher = rustix::process::configure_io_flusher_behavior(true);
    flusher.inspect_err(|errno| tracing::debug!(%errno, "PR_SET_IO_FLUSHER")).ok();
}

/// Limits malloc to two arenas. All threads allocate and free cached blocks; with the default of one arena per thread,
/// fragmentation takes as much memory as the blocks themselves.
pub fn share_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a parameter of the allocator and passes no memory.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// `--mlock`: locks the pages in memory now, and later ones when they are first touched (`MCL_ONFAULT`), since most of a thread's
/// stack is never used. Returns the capability to keep: where the limit of locked memory cannot be lifted, only CAP_IPC_LOCK lets
/// the daemon grow.
pub fn lock() -> Result<CapabilitySet> {
    let limit = getrlimit(Resource::Memlock).current;
    // A later thread or buffer would exceed the limit, and its failed allocation end the daemon.
    if let Some(limit) = limit
        && !capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
    {
        return Err(forbidden(&crate::text::bytes(limit)));
    }
    let lifted = || setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_ok();
    let kept = match limit.is_none() || lifted() {
        true => CapabilitySet::empty(),
        false => CapabilitySet::IPC_LOCK,
    };
    let locked = mlockall(MlockAllFlags::CURRENT)
        .and_then(|()| mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT));
    locked.map(|()| kept).map_err(|errno| match errno {
        Errno::NOMEM | Errno::PERM => forbidden(&limit.map_or("unlimited".to_owned(), crate::text::bytes)),
        errno => failed(format_args!("cannot lock memory (--mlock): {}", std::io::Error::from(errno))),
    })
}

fn forbidden(limit: &str) -> Failure {
    let help =
        "raise it (`ulimit -l unlimited`, or LimitMEMLOCK=infinity in a systemd unit), or mount as root";
    Failure::new(
        Code::Privilege,
        format_args!("cannot lock memory (--mlock): RLIMIT_MEMLOCK is {limit}; {help}"),
    )
}
