//! Starts successors: hands the descriptors and the state over to a new server process, limits the crash rate, and falls back to
//! the previous program if that of an upgrade fails.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Pid;

use super::Cause;
use super::exit_watch::ServerProcess;
use super::fd_store::GUEST_CONNECTIONS;
use super::log::{log, now};
use super::removal::WatchedMount;
use super::seqpacket;
use super::state::GuardianState;
use super::wire::Message;
use crate::mount::sys;

/// Sliding window of the crash limit.
const CRASH_WINDOW: Duration = Duration::from_secs(10);
/// Timeout for a server to take over.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The successive servers of one mount.
pub(super) struct Succession {
    recent_ends: VecDeque<Instant>,
    takeovers: u32,
    oom_score: i32,
    /// The program of the successor, where it is not ours.
    program: Option<OwnedFd>,
    trial: Option<Trial>,
    /// The program of the last upgrade failed.
    upgrade_failed: bool,
    /// Servers that exit as soon as their successors serve.
    dying: Vec<Child>,
}

/// The program of an upgrade that has not yet served for long enough.
struct Trial {
    program: OwnedFd,
    since: Instant,
    ends: u32,
}

/// A server that the guardian started.
pub(super) struct Server {
    child: Child,
    socket: OwnedFd,
    started: Instant,
}

impl Succession {
    pub(super) fn new(oom_score: i32) -> Self {
        Self {
            recent_ends: VecDeque::new(),
            takeovers: 0,
            oom_score,
            program: None,
            trial: None,
            upgrade_failed: false,
            dying: Vec::new(),
        }
    }

    /// Starts the next server after the last one ended, and hands everything over.
    pub(super) fn next(&mut self, state: &mut GuardianState) -> Result<Server, String> {
        let mut gone_since = now();
        self.dying.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.count(state)?;
        let mut cause =
            if std::mem::take(&mut self.upgrade_failed) { Cause::FailedUpgrade } else { Cause::Death };
        if let Some((program, since)) = state.upgrade.take() {
            gone_since = since;
            cause = Cause::Upgrade;
            self.trial = Some(Trial { program, since: Instant::now(), ends: 0 });
        }
        self.takeovers += 1;
        state.serving = false;
        // It confines itself before it serves.
        state.confined = false;
        let server = match self.start(state) {
            Err(error) if self.trial.is_some() => {
                self.abandon_trial(&format!("cannot be started: {error}"));
                (self.upgrade_failed, cause) = (false, Cause::FailedUpgrade);
                self.start(state)
            }
            started => started,
        };
        let server = server.map_err(|error| format!("cannot start another server: {error}"))?;
        if let Err(error) = state.attach_next_server() {
            log(&format!("cannot connect the new server to its emulator: {error}"));
        }
        let go = Message::Go { takeovers: self.takeovers, oom_score: self.oom_score, gone_since, cause };
        if let Err(error) = server.hand_over(state, &go) {
            // The new server exited already, which the next iteration notices.
            log(&format!("cannot hand the mount over to the new server: {error}"));
        }
        // The server's end alone shows that it has exited.
        state.descriptors.remove(&GUEST_CONNECTIONS);
        Ok(server)
    }

    fn count(&mut self, state: &GuardianState) -> Result<(), String> {
        let limit = state.restart.as_ref().map_or(0, |(crashes, _)| *crashes as usize);
        if state.upgrade.is_none() {
            let now = Instant::now();
            self.recent_ends.retain(|end| now.duration_since(*end) < CRASH_WINDOW);
            self.recent_ends.push_back(now);
        }
        if self.recent_ends.len() >= limit.max(1) {
            let times = self.recent_ends.len();
            return Err(format!("the server ended {times} times within {} seconds", CRASH_WINDOW.as_secs()));
        }
        Ok(())
    }

    fn start(&self, state: &GuardianState) -> io::Result<Server> {
        let no_arguments = Vec::new();
        let arguments: &Vec<OsString> =
            state.restart.as_ref().map_or(&no_arguments, |(_, arguments)| arguments);
        let [name, rest @ ..] = arguments.as_slice() else { return Err(io::ErrorKind::InvalidInput.into()) };
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let program = self.trial.as_ref().map(|trial| &trial.program).or(self.program.as_ref());
        let mut command = match program {
            Some(program) => Command::new(format!("/proc/self/fd/{}", program.as_raw_fd())),
            // Our own program: the same as the first server's, even if its file was replaced since.
            None => Command::new("/proc/self/exe"),
        };
        command.arg0(name).args(rest).stdin(theirs).stdout(Stdio::null());
        sys::close_all_on_exec(&mut command);
        let child = command.spawn()?;
        Ok(Server { child, socket, started: Instant::now() })
    }

    /// Decides whether the new program is kept, after a server that runs it ended.
    fn judge(&mut self, on_purpose: bool, served: bool) {
        let Some(trial) = &mut self.trial else { return };
        trial.ends += u32::from(!on_purpose);
        if !served {
            self.abandon_trial("did not take over");
        } else if on_purpose || trial.since.elapsed() > CRASH_WINDOW {
            self.program = self.trial.take().map(|trial| trial.program);
        } else if trial.ends > 1 {
            self.abandon_trial("ended repeatedly");
        }
    }

    fn abandon_trial(&mut self, why: &str) {
        self.trial = None;
        self.upgrade_failed = true;
        log(&format!("the new program {why}; returning to the old one"));
    }
}

impl Server {
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn process(&self) -> Option<ServerProcess> {
        self.pid().map(ServerProcess::of)
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id() as i32)
    }

    pub(super) fn deadline(&self) -> Instant {
        self.started + TAKEOVER_TIMEOUT
    }

    fn hand_over(&self, state: &GuardianState, go: &Message) -> io::Result<()> {
        for (key, descriptor) in &state.descriptors {
            seqpacket::send(self.socket(), &Message::Store(*key).encode(), Some(descriptor.as_fd()))?;
        }
        for (token, watched) in &state.mounts {
            let served = match watched {
                WatchedMount::Mounted { mark, path } => {
                    Message::Mounted { token: *token, mark: *mark, path: path.clone() }
                }
                WatchedMount::Guest { path } => Message::Guest { token: *token, path: path.clone() },
                WatchedMount::Pending { .. } => continue,
            };
            seqpacket::send(self.socket(), &served.encode(), None)?;
        }
        seqpacket::send(self.socket(), &go.encode(), None)?;
        Ok(())
    }

    /// Waits for the process to exit; kills it first if it has not ended.
    pub(super) fn reap(mut self, succession: &mut Succession, state: &GuardianState) {
        // It may have closed its socket without exiting, or have failed to serve in time.
        let _ = self.child.kill();
        let life = self.process();
        let status = loop {
            match self.child.try_wait() {
                Ok(None) => {}
                ended => break ended.ok().flatten(),
            }
            // In this state it may not exit before another server serves.
            if life.is_some_and(ServerProcess::has_effectively_exited) {
                break None;
            }
            thread::sleep(Duration::from_millis(1));
        };
        succession.judge(state.upgrade.is_some(), state.serving);
        if state.upgrade.is_none() && state.to_be_continued().is_some() {
            let how = status.map_or_else(String::new, |status| format!(" ({status})"));
            log(&format!("the server of {} ended{how}: starting another one", state.path().display()));
        }
        if status.is_none() {
            succession.dying.push(self.child);
        }
    }
}
