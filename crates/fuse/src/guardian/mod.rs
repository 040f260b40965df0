//! A small process that outlives the server, so that no dead mount is left behind even by SIGKILL.
//!
//! The server tells it about a mount *before* the mount becomes visible, and again when it was taken away in
//! good order. They share a socket pair; when the server's end closes and mounts are still on the list, the
//! server has died, and the guardian aborts their connections and unmounts them lazily, by mount id.
//!
//! Or it starts another server ([`Restart`]), which goes on where the last one ended: see [`takeover`](crate::takeover).
//! For that it holds all that would be lost with the server, first of all the connection itself: each descriptor is
//! sent to it before it is used.
//!
//! What it may ever do is settled when it is started, before the server has read anything of anybody: a guardian that was
//! not given the arguments of another server starts none, whatever it is told later, and once it is
//! [sealed](Guardian::seal) it hears of no other mounts.
//!
//! What it cannot help against: being killed together with the server (`kill -9` to a whole control group),
//! and copies of the mount in other mount namespaces, which stay there but fail at once.

pub(crate) mod exit_watch;
pub(crate) mod fd_store;
mod hand_over;
mod log;
mod process;
mod removal;
mod seqpacket;
mod state;
mod successor;
#[cfg(test)]
mod tests;
mod wire;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, shutdown, socketpair};

pub use exit_watch::ask_oneself;
pub use hand_over::HandOver;
pub use process::main;

use crate::mount::{Detached, MountError, MountPoint, sys};
use fd_store::Key;
use wire::Message;

/// How long a fresh guardian may take to get ready.
const START: Duration = Duration::from_secs(5);

/// Why a guardian is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardianError {
    /// It could not be started.
    #[error("cannot start the guardian process: {0}")]
    Start(io::Error),
    /// It started, but did not get ready within five seconds.
    #[error("the guardian process did not get ready: check that /proc/self/exe can be executed")]
    NotReady,
    /// It does not take messages any more.
    #[error(
        "the guardian process is gone ({0}): a killed server would leave a dead mount; restart the server"
    )]
    Gone(Errno),
    /// The mount point cannot be described to it.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Standard input is not a guardian that hands over.
    #[error("this process was not started by a guardian: {0}")]
    NoHandOver(&'static str),
}

/// How another server is started where one died.
#[derive(Clone, Debug)]
pub struct Restart {
    /// The arguments of its process, the name first. The program is the one of this process. It is to call
    /// [`HandOver::receive`].
    pub arguments: Vec<OsString>,
    /// So many servers that end within ten seconds are too many: the mount is taken away.
    pub crashes: u32,
}

/// Why a server took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The server before it was killed, or crashed.
    Death = 0,
    /// It is the program of an [upgrade](Guardian::upgrade).
    Upgrade = 1,
    /// The program of an upgrade did not get to serve, and this is the one before.
    FailedUpgrade = 2,
}

impl Cause {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Death, Self::Upgrade, Self::FailedUpgrade].into_iter().find(|cause| *cause as u8 == number)
    }
}

/// The server's side of a guardian.
///
/// Dropping it while mounts are watched has the same effect as the server's death: they are unmounted.
#[derive(Debug)]
pub struct Guardian {
    socket: OwnedFd,
    /// None where it is the guardian that started us.
    child: Option<Child>,
    next: AtomicU32,
    /// It was given the arguments of another server.
    restarts: bool,
}

/// A mount that a [`Guardian`] watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a watch that is never released ends in an unmount"]
pub struct Watch(u32);

impl Guardian {
    /// Starts a guardian that takes mounts away and will never do anything else, by `command`, which must call [`main`] as
    /// the first thing it does.
    ///
    /// Usually that is `/proc/self/exe` with a hidden argument. The guardian talks over its standard input;
    /// of the server's other descriptors it keeps only standard error, for its log. Start it after the server
    /// has gone into the background, or that standard error is the terminal's.
    ///
    /// # Errors
    ///
    /// The command cannot be executed, or does not get ready within five seconds.
    pub fn spawn(command: Command) -> Result<Self, GuardianError> {
        Self::spawn_with(command, None)
    }

    /// As [`spawn`](Self::spawn), but should this server die, from the moment on when its mount is complete, another one is
    /// started. Nothing that is said later changes how.
    ///
    /// # Errors
    ///
    /// Those of [`spawn`](Self::spawn).
    pub fn spawn_restarting(command: Command, restart: Restart) -> Result<Self, GuardianError> {
        Self::spawn_with(command, Some(restart))
    }

    fn spawn_with(mut command: Command, restart: Option<Restart>) -> Result<Self, GuardianError> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|errno| GuardianError::Start(errno.into()))?;
        command.stdin(theirs).stdout(Stdio::null());
        // A copy of `/dev/fuse` in the guardian would keep the mount of a dead server waiting for ever.
        sys::close_all_on_exec(&mut command);
        let child = command.spawn().map_err(GuardianError::Start)?;
        // Closes our copy of the guardian's end, so that its death is noticed.
        drop(command);
        let settled = match &restart {
            Some(Restart { crashes, arguments }) => {
                Message::Restart { crashes: *crashes, arguments: arguments.clone() }
            }
            None => Message::UnmountOnly,
        };
        let (next, restarts) = (AtomicU32::new(0), restart.is_some());
        let mut guardian = Guardian { socket, child: Some(child), next, restarts };
        // A program that ended at once is not ready either.
        let ready = guardian.send(&settled).and_then(|()| guardian.wait_ready());
        if let Err(error) = ready.map_err(|_| GuardianError::NotReady) {
            // It may be any program, one that never looks at its standard input.
            let _ = guardian.child.as_mut().map(Child::kill);
            return Err(error);
        }
        Ok(guardian)
    }

    fn wait_ready(&self) -> Result<(), GuardianError> {
        let timeout = Timespec { tv_sec: START.as_secs() as i64, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut fds, Some(&timeout))).unwrap_or(0);
        let mut byte = [0; wire::READY.len()];
        if ready == 1 && recv(&self.socket, &mut byte, RecvFlags::DONTWAIT).is_ok() && byte == *wire::READY {
            return Ok(());
        }
        Err(GuardianError::NotReady)
    }

    /// The process id of the guardian; none where it is not our child.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Watches a mount that is about to be attached at `mountpoint`. Call it before
    /// [`Detached::attach`], and [`confirm`](Self::confirm) after.
    ///
    /// # Errors
    ///
    /// The mount point cannot be looked at, or the guardian is gone.
    pub fn watch(&self, detached: &Detached, mountpoint: &Path) -> Result<Watch, GuardianError> {
        let watch = Watch(self.next.fetch_add(1, Ordering::Relaxed));
        let top = MountPoint::top(mountpoint)?;
        let path = top.path().to_owned();
        let message = match detached.mark() {
            Some(mark) => Message::Mounted { token: watch.0, mark, path },
            None => Message::Pending { token: watch.0, before: top.mark(), path },
        };
        self.send(&message)?;
        Ok(watch)
    }

    /// Tells which mount it became.
    ///
    /// # Errors
    ///
    /// The guardian is gone.
    pub fn confirm(&self, watch: Watch, mount: &MountPoint) -> Result<(), GuardianError> {
        let path = mount.path().to_owned();
        self.send(&Message::Mounted { token: watch.0, mark: mount.mark(), path })
    }

    /// Ends a watch: the mount was taken away in good order, or never came to be.
    ///
    /// # Errors
    ///
    /// The guardian is gone.
    pub fn release(&self, watch: Watch) -> Result<(), GuardianError> {
        self.send(&Message::Release { token: watch.0 })
    }

    /// The guardian hears of no other mounts from here on, and is given nothing more. To be called once the mount is
    /// complete by a server that may come to be told what to say.
    ///
    /// # Errors
    ///
    /// The guardian is gone.
    pub fn seal(&self) -> Result<(), GuardianError> {
        self.send(&Message::Seal)
    }

    /// No server is to follow this one, which is about to end: its mount is taken away.
    ///
    /// # Errors
    ///
    /// The guardian is gone.
    pub fn end(&self) -> Result<(), GuardianError> {
        self.send(&Message::Ending)
    }

    /// The next server is to be `program`, a file that can be executed (no script: its interpreter could not open it).
    /// Once this process ends it takes over. If it does not get that far within ten seconds, or ends twice within its
    /// first ten seconds, the last program does again.
    ///
    /// # Errors
    ///
    /// The guardian is gone.
    pub fn upgrade(&self, program: BorrowedFd<'_>) -> Result<(), GuardianError> {
        self.send_with(&Message::Upgrade, Some(program))
    }

    /// Keeps a log file for the next server, which cannot open it by its path: that may lead through the mount.
    ///
    /// # Errors
    ///
    /// The guardian is gone.
    pub fn hold_log(&self, file: BorrowedFd<'_>) -> Result<(), GuardianError> {
        self.hold(Key { class: fd_store::Class::Log, id: 0 }, file)
    }

    /// Keeps a descriptor for the next server, in place of one of the same name. Once this returns it survives us.
    pub(crate) fn hold(&self, key: Key, descriptor: BorrowedFd<'_>) -> Result<(), GuardianError> {
        self.send_with(&Message::Hold(key), Some(descriptor))
    }

    pub(crate) fn let_go(&self, key: Key) -> Result<(), GuardianError> {
        self.send(&Message::LetGo(key))
    }

    /// Whether its process has ended.
    pub fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Whether another server was asked for.
    pub(crate) fn may_restart(&self) -> bool {
        self.restarts
    }

    /// From here on another server follows.
    pub(crate) fn arm(&self) -> Result<(), GuardianError> {
        if self.restarts { self.send(&Message::Arm) } else { Ok(()) }
    }

    pub(crate) fn taken_over(&self) -> Result<(), GuardianError> {
        self.send(&Message::Serving)
    }

    fn send(&self, message: &Message) -> Result<(), GuardianError> {
        self.send_with(message, None)
    }

    fn send_with(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> Result<(), GuardianError> {
        // What is in the socket's buffer is read even if the server dies right after this.
        seqpacket::send(self.socket.as_fd(), &message.encode(), descriptor).map_err(GuardianError::Gone)
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // A child of ours may hold a copy of the socket; shutting down ends all copies.
        let _ = shutdown(&self.socket, rustix::net::Shutdown::Both);
        // It ends by itself. If it is not our child any more, since the server forked, there is nothing to wait for.
        let _ = self.child.as_mut().map(Child::wait);
    }
}
