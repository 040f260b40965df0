//! A second process that shares files with the test: locks, crashes and credentials are per process.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

/// A child process that runs a closure and communicates in single bytes.
#[derive(Debug)]
pub struct Peer {
    pid: Option<Pid>,
    link: Link,
}

/// One end of the connection.
#[derive(Debug)]
pub struct Link {
    to: File,
    from: File,
}

impl Link {
    /// Sends a byte.
    pub fn send(&mut self, byte: u8) {
        self.to.write_all(&[byte]).expect("the other process has exited");
    }

    /// Waits up to 30 seconds for a byte; `None` on timeout or when the other side has ended.
    pub fn receive(&mut self) -> Option<u8> {
        self.receive_within(crate::pace::seconds(30))
    }

    /// Waits for a byte, up to a limit.
    pub fn receive_within(&mut self, limit: Duration) -> Option<u8> {
        let limit = Timespec::try_from(limit).expect("a short time");
        let ready = poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&limit)).expect("poll");
        let mut byte = [0];
        (ready > 0 && self.from.read_exact(&mut byte).is_ok()).then_some(byte[0])
    }
}

impl Peer {
    /// Forks and runs the closure in the child. The closure must open its own files: all but the link are closed, so that no
    /// copy keeps another test's mount busy. It fails by panicking.
    ///
    /// If the fork fails.
    pub fn start(work: impl FnOnce(&mut Link)) -> Self {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe");
        let ((their_from, to), (from, their_to)) = (pipe(), pipe());
        // SAFETY: only this thread continues in the child. It allocates (glibc makes that safe after fork), makes system calls,
        // and ends with `_exit`, so it runs no handler and drops nothing of the parent.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            drop((to, from));
            close_all_but(&[their_from.as_fd().as_raw_fd(), their_to.as_fd().as_raw_fd()]);
            let mut link = Link { to: their_to.into(), from: their_from.into() };
            let code = match catch_unwind(AssertUnwindSafe(|| work(&mut link))) {
                Ok(()) => 0,
                Err(why) => {
                    let text = why.downcast_ref::<String>().map(String::as_str);
                    let text = text.or_else(|| why.downcast_ref::<&str>().copied()).unwrap_or("?");
                    let _ = writeln!(std::io::stderr(), "in a child process: {text}");
                    101
                }
            };
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(code) };
        }
        Self { pid: Pid::from_raw(pid), link: Link { to: to.into(), from: from.into() } }
    }

    /// Returns the connection to it.
    pub fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Kills it with SIGKILL and waits for its end. Returns false if it does not end in 10 seconds.
    pub fn kill(mut self) -> bool {
        let pid = self.pid.expect("running");
        let _ = kill_process(pid, Signal::KILL);
        self.wait(Duration::from_secs(10)).is_some()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it panicked, was killed, or does not end in 60 seconds.
    #[track_caller]
    pub fn done(self) {
        self.done_within(Duration::from_secs(60));
    }

    /// Waits for its end, up to a limit.
    ///
    /// # Panics
    /// If it panicked, was killed, or does not end within that time.
    #[track_caller]
    pub fn done_within(mut self, limit: Duration) {
        let status =
            self.wait(limit).unwrap_or_else(|| panic!("a child process did not end within {limit:?}"));
        assert_eq!(status.exit_status(), Some(0), "a child process failed");
    }

    fn wait(&mut self, limit: Duration) -> Option<WaitStatus> {
        let pid = self.pid?;
        let mut ended = None;
        crate::cmd::within(limit, || {
            ended = waitpid(Some(pid), WaitOptions::NOHANG).expect("waitpid").map(|(_, status)| status);
            ended.is_some()
        });
        if ended.is_some() {
            self.pid = None;
        }
        ended
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            let _ = kill_process(pid, Signal::KILL);
            self.wait(Duration::from_secs(2));
        }
    }
}

fn close_all_but(keep: &[RawFd]) {
    let mut keep: Vec<u32> = keep.iter().map(|fd| u32::try_from(*fd).expect("an open file")).collect();
    keep.sort_unstable();
    let mut first = 3;
    for next in keep.into_iter().chain([u32::MAX]) {
        if first < next {
            // SAFETY: in the child, nothing owns the other files any more: captured values are never dropped.
            unsafe { libc::syscall(libc::SYS_close_range, first, next.saturating_sub(1), 0) };
        }
        first = next.saturating_add(1);
    }
}
