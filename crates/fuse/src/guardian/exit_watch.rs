//! Noticing that a server is dying, before it is dead.
//!
//! The socket closes with the last thread. A thread that tells the kernel to drop pages or a name can be stuck until a
//! request is answered that the dying server had read: whoever made it holds the lock of the file, or of the directory. It
//! would wait for its own successor; and without one nobody would ever end the connection, so it, the caller, and all who
//! look at either in /proc would hang for good. So does a server that [asks itself](ask_oneself). Such threads do nothing to
//! the file system below, so the next server need not wait for them. It does wait for all others: what they are at in the
//! kernel is carried through to its end. No descriptor tells of this (a pidfd of the first thread waits for the others since
//! Linux 6.15), so it is looked for.

use std::io;
use std::thread;
use std::time::Duration;

use rustix::process::Pid;

/// Threads that send notifications, or use what this process serves.
pub(crate) const NOTIFIER: &str = "shunt-notify";

/// Does what uses a mount that this process serves, on a thread of its own: who waits there for an answer when the process is
/// killed would keep it from ending, and nobody but the guardian can help.
///
/// # Errors
/// Those of starting a thread.
pub fn ask_oneself<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let asking = thread::Builder::new().name(NOTIFIER.to_owned()).spawn_scoped(scope, work)?;
        Ok(asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// How often is looked: the pause where it comes to that. A server that dies as usual is noticed at once.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// The same where no other server is to follow.
pub(super) const SELDOM: Duration = Duration::from_secs(2);

/// A server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life(Pid);

impl Life {
    pub(super) fn of(pid: Pid) -> Self {
        Self(pid)
    }

    /// Its first thread has ended, and nobody is left but such threads.
    pub(super) fn is_as_good_as_over(self) -> bool {
        let pid = self.0.as_raw_nonzero().to_string();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state comes behind the name, which may hold anything.
        let lives = stat.rsplit(')').next().is_none_or(|rest| !rest.trim().starts_with(['Z', 'X']));
        if lives && !stat.is_empty() {
            return false;
        }
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
        tasks.flatten().all(|task| {
            let first = task.file_name().to_str() == Some(&pid);
            let name = std::fs::read_to_string(task.path().join("comm"));
            first || name.map_or(true, |name| name.starts_with(NOTIFIER))
        })
    }
}
