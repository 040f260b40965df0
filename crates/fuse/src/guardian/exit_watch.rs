//! Detection of a dying server before its last thread has exited.
//!
//! The server's socket closes only when its last thread exits. A thread that sends an invalidation can block in the kernel until
//! a request is answered that the dying server had read: the process that made the request holds the lock of the file, or of the
//! directory. That thread would wait for its own successor; without a successor no process would ever abort the connection, and the
//! thread, the process, and everything that looks at either in /proc would hang for good. A server that [uses its own
//! mount](run_on_own_mount) has the same problem. Such threads do nothing to the underlying file system, so the next server need not
//! wait for them. It does wait for all others, whose system calls run to completion. No descriptor reports this state (since
//! Linux 6.15 a pidfd of the first thread waits for the other threads), so the guardian polls /proc.

use std::io;
use std::thread;
use std::time::Duration;

use rustix::process::Pid;

/// Name of the threads that send notifications, or use a mount that this process serves.
pub(crate) const NOTIFIER: &str = "shunt-notify";

/// Runs `work`, which uses a mount that this process serves, on a thread of its own. A thread that waits there for a reply when
/// the process is killed would keep the process from exiting, and only the guardian can help; the guardian recognises such
/// threads by name.
///
/// # Errors
/// The error of starting the thread.
pub fn run_on_own_mount<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let asking = thread::Builder::new().name(NOTIFIER.to_owned()).spawn_scoped(scope, work)?;
        Ok(asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Polling interval for a dying server, where a successor is to be started. A server that dies normally is noticed at once.
pub(super) const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Polling interval where no successor is to be started.
pub(super) const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A server process.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerProcess(Pid);

impl ServerProcess {
    pub(super) fn of(pid: Pid) -> Self {
        Self(pid)
    }

    /// Reports whether the first thread has exited and only threads are left that the next server need not wait for.
    pub(super) fn has_effectively_exited(self) -> bool {
        let pid = self.0.as_raw_nonzero().to_string();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name, which may contain any character.
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
