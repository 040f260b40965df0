//! Resets process attributes inherited from the caller: the limits of a shell are not meant for the users of a mount.

use std::fs;

use rustix::fs::Mode;
use rustix::process::{
    Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit, umask,
};

/// Limits under which a write or an allocation on behalf of a user would fail, or a signal end the daemon.
const LIMITS: [Resource; 5] =
    [Resource::Fsize, Resource::Cpu, Resource::As, Resource::Data, Resource::Nofile];

/// Signals without a handler in this program, and their dispositions. `SIGXFSZ` is ignored, so that exceeding a limit that cannot
/// be lifted is the error EFBIG. `SIGCHLD` is the default, since otherwise children could not be waited for.
const SIGNALS: [(libc::c_int, libc::sighandler_t); 3] =
    [(libc::SIGXFSZ, libc::SIG_IGN), (libc::SIGPIPE, libc::SIG_IGN), (libc::SIGCHLD, libc::SIG_DFL)];

/// Resets signals, limits and umask. Must be called before there is a second thread.
pub fn reset() {
    for (signal, disposition) in SIGNALS {
        // SAFETY: no handler of this program is replaced, and none is set.
        unsafe { libc::signal(signal, disposition) };
    }
    unblock_signals();
    LIMITS.into_iter().for_each(raise);
    // The daemon itself must be able to open the files it creates.
    let inherited = umask(Mode::empty());
    umask(inherited - Mode::RWXU);
}

/// Resets nice value and OOM score. Not in the foreground, where a service manager may have set them on purpose.
pub fn reset_priority() {
    if getpriority_process(None).is_ok_and(|nice| nice > 0) {
        let _ = setpriority_process(None, 0);
    }
    let score = fs::read_to_string("/proc/self/oom_score_adj");
    if score.is_ok_and(|score| score.trim().parse().is_ok_and(|score: i32| score > 0)) {
        let _ = fs::write("/proc/self/oom_score_adj", "0");
    }
}

/// Raises a limit as far as this user may.
fn raise(resource: Resource) {
    let Rlimit { current, maximum } = getrlimit(resource);
    if setrlimit(resource, Rlimit { current: None, maximum: None }).is_err() && current != maximum {
        let _ = setrlimit(resource, Rlimit { current: maximum, maximum });
    }
}

fn unblock_signals() {
    let mut none = std::mem::MaybeUninit::uninit();
    // SAFETY: the first call initialises the set that the second one reads.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}
