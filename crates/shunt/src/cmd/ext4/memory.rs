//! What memory the daemon may count on while dirty pages wait to be written.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::{Code, Failure, Result, failed};

/// Memory that is needed to write dirty pages must not wait for dirty pages to be written: this thread, and those that it
/// starts, allocate without that. Takes CAP_SYS_RESOURCE.
pub fn never_wait_for_ourselves() {
    let flusher = rustix::process::configure_io_flusher_behavior(true);
    flusher.inspect_err(|errno| tracing::debug!(%errno, "PR_SET_IO_FLUSHER")).ok();
}

/// Blocks are kept and given back by all threads alike. With an arena of malloc for each thread, the default, holes in all of
/// them take as much as the blocks themselves.
pub fn share_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number, with no memory of ours involved.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// `--mlock`: what is in memory now stays there, and so does what is used from now on. Not the whole of it at once: most of
/// a thread's stack is never touched. Gives what must be kept of root's rights for that: where the limit of locked memory cannot
/// be lifted, CAP_IPC_LOCK alone lets the daemon grow.
pub fn lock() -> Result<CapabilitySet> {
    let limit = getrlimit(Resource::Memlock).current;
    // A thread or a buffer that is to come would not fit, and end the daemon.
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
        "raise it (`ulimit -l unlimited`, or LimitMEMLOCK=infinity in a unit of systemd), or mount as root";
    Failure::new(
        Code::Privilege,
        format_args!("cannot lock memory (--mlock): the limit of this user is {limit}: {help}"),
    )
}
