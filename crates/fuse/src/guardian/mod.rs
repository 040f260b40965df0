//! The guardian: a small process that outlives the server and cleans up after it, so that not even SIGKILL leaves a dead mount.
//!
//! The server registers a mount with it *before* the mount becomes visible, and deregisters it after an orderly unmount. They
//! share a socket pair. When the server's end closes while mounts are registered, the server has died, and the guardian aborts
//! their connections and unmounts them lazily, by mount id.
//!
//! Alternatively it starts another server ([`Restart`]), which continues where the last one ended: see
//! [`takeover`](crate::takeover). For that the guardian holds everything that would be lost with the server, first of all the
//! connection itself: the server sends it each descriptor before using it.
//!
//! The guardian's abilities are fixed at its start, before the server has read untrusted data: a guardian that was not given the
//! arguments of another server starts none, whichever messages it gets later, and once it is [sealed](Guardian::seal) it accepts
//! neither other mounts nor other programs.
//!
//! A service manager with a descriptor store can be the guardian ([`Guardian::in_service_manager`]): it keeps the descriptors
//! ([`DescriptorStore`]), and starts the next server itself.
//!
//! Limits: it does not help when it is killed together with the server (`kill -9` to a whole control group), and copies of the
//! mount in other mount namespaces stay, but fail at once.

pub(crate) mod exit_watch;
pub(crate) mod fd_store;
mod hand_over;
mod log;
mod process;
mod record;
#[cfg(feature = "virtiofs")]
mod relay;
mod removal;
mod seqpacket;
mod service_manager;
mod state;
mod successor;
#[cfg(test)]
mod tests;
mod wire;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, shutdown, socketpair};

pub use exit_watch::run_on_own_mount;
pub use hand_over::{HandOver, Inherited};
pub use process::main;
#[cfg(feature = "virtiofs")]
pub(crate) use relay::accept as accept_connection;
#[cfg(all(test, feature = "virtiofs"))]
pub(crate) use relay::message as relay_message;
pub use service_manager::DescriptorStore;

use crate::mount::{Detached, MountError, MountPoint, sys};
use fd_store::Key;
use service_manager::ManagedLink;
use wire::Message;

/// Timeout for the start of the guardian.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// An error of starting the guardian or of talking to it.
#[derive(Debug)]
#[non_exhaustive]
pub enum GuardianError {
    /// The guardian could not be started.
    Start(io::Error),
    /// The guardian was started, but did not get ready within five seconds.
    NotReady,
    /// The guardian does not accept messages any more.
    Gone(Errno),
    /// The service manager does not store descriptors.
    Store(io::Error),
    /// The mount point cannot be examined for the guardian.
    Mount(MountError),
    /// Standard input is not the socket of a guardian that hands over.
    NoHandOver(&'static str),
}

impl fmt::Display for GuardianError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "cannot start the guardian process: {error}"),
            Self::NotReady => {
                f.write_str("the guardian process did not start: check that /proc/self/exe can be executed")
            }
            Self::Gone(errno) => write!(
                f,
                "the guardian process has ended ({errno}): a killed server would leave a dead mount; restart the server"
            ),
            Self::Store(error) => write!(
                f,
                "cannot use the descriptor store of the service manager: {error}; a restart of the service would lose the mount"
            ),
            Self::Mount(error) => error.fmt(f),
            Self::NoHandOver(cause) => {
                write!(f, "cannot take over a mount: {cause}; only a guardian can start this process")
            }
        }
    }
}

impl std::error::Error for GuardianError {}

impl From<MountError> for GuardianError {
    fn from(error: MountError) -> Self {
        Self::Mount(error)
    }
}

/// How to start a successor when the server dies.
#[derive(Clone, Debug)]
pub struct Restart {
    /// The arguments of the successor, its name first. The program is the one of this process. It must call
    /// [`HandOver::receive`].
    pub arguments: Vec<OsString>,
    /// Number of servers that ended within ten seconds at which the guardian gives up and removes the mount.
    pub crashes: u32,
}

/// The reason why a server took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The previous server was killed, or crashed.
    Death = 0,
    /// The server is the program of an [upgrade](Guardian::upgrade).
    Upgrade = 1,
    /// The program of an upgrade failed to serve, and this is the program before it.
    FailedUpgrade = 2,
    /// The service manager restarted the service.
    Restart = 3,
}

impl Cause {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Death, Self::Upgrade, Self::FailedUpgrade, Self::Restart]
            .into_iter()
            .find(|cause| *cause as u8 == number)
    }
}

/// The server's side of a guardian.
///
/// Dropping it while mounts are watched has the same effect as the server's death: they are unmounted.
#[derive(Debug)]
pub struct Guardian {
    link: Link,
    next: AtomicU32,
    /// The guardian was given the arguments of a successor.
    restarts: bool,
    /// This server has sealed it.
    sealed: AtomicBool,
}

/// The connection of a server to its guardian.
#[derive(Debug)]
enum Link {
    /// A guardian process.
    Process {
        socket: OwnedFd,
        /// `None` in a successor, whose parent is the guardian.
        child: Option<Child>,
    },
    /// The descriptor store of a service manager.
    ServiceManager(Box<ManagedLink>),
}

/// A mount that a [`Guardian`] watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the guardian unmounts a watch that is never released"]
pub(crate) struct Watch(u32);

impl Guardian {
    /// Starts a guardian that can unmount and nothing else, by `command`, which must call [`main`] as the first thing it does.
    ///
    /// Usually that is `/proc/self/exe` with a hidden argument. The guardian communicates over its standard input; of the
    /// server's other descriptors it keeps only standard error, for its log. Start it after the server has gone into the
    /// background, or that standard error is the terminal's.
    ///
    /// # Errors
    ///
    /// The command cannot be executed, or does not get ready within five seconds.
    pub fn spawn(command: Command) -> Result<Self, GuardianError> {
        Self::spawn_with(command, None)
    }

    /// Starts a guardian as [`spawn`](Self::spawn) does, but one that starts a successor when the server dies after its mount is
    /// complete. No later message changes the arguments of the successor.
    ///
    /// # Errors
    ///
    /// The errors of [`spawn`](Self::spawn).
    pub fn spawn_restarting(command: Command, restart: Restart) -> Result<Self, GuardianError> {
        Self::spawn_with(command, Some(restart))
    }

    fn spawn_with(mut command: Command, restart: Option<Restart>) -> Result<Self, GuardianError> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|errno| GuardianError::Start(errno.into()))?;
        command.stdin(theirs).stdout(Stdio::null());
        // A copy of `/dev/fuse` in the guardian would keep the mount of a dead server waiting forever.
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
        // A program that exits at once is not ready either.
        let sent = seqpacket::send(socket.as_fd(), &settled.encode(), None);
        let ready = sent.is_ok() && is_ready(socket.as_fd());
        let mut guardian = Guardian {
            link: Link::Process { socket, child: Some(child) },
            next,
            restarts,
            sealed: AtomicBool::new(false),
        };
        if !ready {
            // It may be any program, even one that never reads its standard input.
            if let Link::Process { child, .. } = &mut guardian.link {
                let _ = child.as_mut().map(Child::kill);
            }
            return Err(GuardianError::NotReady);
        }
        Ok(guardian)
    }

    /// Makes the service manager the guardian of a new mount: it holds the descriptors of the session in its store, and the
    /// server that it starts next, with the same arguments, continues by [`HandOver::inherit`]. The service manager does not
    /// unmount: if it starts no other server, a dead mount stays.
    ///
    /// # Errors
    /// No memory file can be created.
    pub fn in_service_manager(
        store: Box<dyn DescriptorStore>,
        arguments: Vec<OsString>,
    ) -> Result<Self, GuardianError> {
        let link = ManagedLink::new(store, arguments).map_err(GuardianError::Store)?;
        Ok(Self {
            link: Link::ServiceManager(Box::new(link)),
            next: AtomicU32::new(0),
            restarts: true,
            sealed: AtomicBool::new(false),
        })
    }

    /// Returns the process id of the guardian; `None` where it is not our child.
    pub fn pid(&self) -> Option<u32> {
        match &self.link {
            Link::Process { child, .. } => child.as_ref().map(Child::id),
            Link::ServiceManager(_) => None,
        }
    }

    /// Reports whether a service manager is the guardian.
    pub fn is_service_manager(&self) -> bool {
        matches!(self.link, Link::ServiceManager(_))
    }

    /// Tells the next server that this one ends on purpose, for a restart by the service manager. Then
    /// [drain](crate::Handle::drain) the session, and call [`finish_restart`](Self::finish_restart).
    ///
    /// # Errors
    /// The guardian is a process, which knows [`upgrade`](Self::upgrade) instead, or the record cannot be written.
    pub fn begin_restart(&self) -> Result<(), GuardianError> {
        self.managed()?.begin_restart().map_err(GuardianError::Store)
    }

    /// Stores all descriptors that the next server needs. The process must exit next, without any cleanup.
    ///
    /// # Errors
    /// The guardian is a process, or the service manager cannot be reached.
    pub fn finish_restart(&self) -> Result<(), GuardianError> {
        self.managed()?.finish_restart().map_err(GuardianError::Store)
    }

    fn managed(&self) -> Result<&ManagedLink, GuardianError> {
        match &self.link {
            Link::ServiceManager(link) => Ok(link),
            Link::Process { .. } => Err(GuardianError::Store(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Watches a mount that is about to be attached at `mountpoint`. Call it before
    /// [`Detached::attach`], and [`confirm`](Self::confirm) after.
    ///
    /// # Errors
    ///
    /// The mount point cannot be examined, or the guardian process has exited.
    pub(crate) fn watch(&self, detached: &Detached, mountpoint: &Path) -> Result<Watch, GuardianError> {
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

    /// Reports the identity of the attached mount to the guardian.
    ///
    /// # Errors
    ///
    /// The guardian process has exited.
    pub(crate) fn confirm(&self, watch: Watch, mount: &MountPoint) -> Result<(), GuardianError> {
        let path = mount.path().to_owned();
        self.send(&Message::Mounted { token: watch.0, mark: mount.mark(), path })
    }

    /// Ends a watch: the mount was unmounted cleanly, or was never created.
    ///
    /// # Errors
    ///
    /// The guardian process has exited.
    pub(crate) fn release(&self, watch: Watch) -> Result<(), GuardianError> {
        self.send(&Message::Release { token: watch.0 })
    }

    /// Makes the guardian refuse further mounts, programs, and descriptors of the session. Those of the file system can still be
    /// [stored](crate::takeover::Takeover::store). Call it once the mount is complete, in a server that processes untrusted data and
    /// might be compromised later.
    ///
    /// # Errors
    ///
    /// The guardian process has exited.
    pub fn seal(&self) -> Result<(), GuardianError> {
        self.sealed.store(true, Ordering::SeqCst);
        self.send(&Message::Seal)
    }

    /// Has the guardian accept the connections of emulators to `listener`, which is at `path`. Returns the socket from which this
    /// server receives them.
    #[cfg(feature = "virtiofs")]
    pub(crate) fn relay(&self, listener: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, GuardianError> {
        let (ours, theirs) = relay::pair().map_err(GuardianError::Start)?;
        self.store(fd_store::GUEST_LISTENER, listener)?;
        self.store(fd_store::GUEST_CONNECTIONS, theirs.as_fd())?;
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(&Message::Guest { token, path: path.to_owned() })?;
        Ok(ours)
    }

    /// Drops the state and the descriptors of the session of a guest, which has ended.
    #[cfg(feature = "virtiofs")]
    pub(crate) fn end_session(&self) -> Result<(), GuardianError> {
        self.send(&Message::EndSession)
    }

    /// Makes the guardian accept only what the server of a guest needs from here on.
    #[cfg(feature = "virtiofs")]
    pub(crate) fn confine(&self) -> Result<(), GuardianError> {
        self.send(&Message::Confine)
    }

    /// Reports whether this server has sealed it.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::SeqCst)
    }

    /// Announces that this server is about to exit without a successor: the guardian removes its mount.
    ///
    /// # Errors
    ///
    /// The guardian process has exited.
    pub fn end(&self) -> Result<(), GuardianError> {
        self.send(&Message::Ending)
    }

    /// Sets the program of the next server: `program` is an executable file (no script: its interpreter could not open it). It
    /// takes over once this process exits. If it does not serve within ten seconds, or exits twice within its first ten seconds,
    /// the guardian returns to the previous program.
    ///
    /// A [sealed](Self::seal) guardian ignores `program`, as [`upgrade_in_place`](Self::upgrade_in_place) does.
    ///
    /// # Errors
    ///
    /// The guardian process has exited.
    pub fn upgrade(&self, program: BorrowedFd<'_>) -> Result<(), GuardianError> {
        self.send_with(&Message::Upgrade, Some(program))
    }

    /// Sets the program of the next server as [`upgrade`](Self::upgrade) does, to the file that is at the path of the guardian's own
    /// program now.
    ///
    /// # Errors
    ///
    /// The guardian process has exited.
    pub fn upgrade_in_place(&self) -> Result<(), GuardianError> {
        self.send(&Message::Upgrade)
    }

    /// Stores the log file for the next server, which cannot open it by its path: that may lead through the mount.
    ///
    /// # Errors
    ///
    /// The guardian process has exited.
    pub fn store_log(&self, file: BorrowedFd<'_>) -> Result<(), GuardianError> {
        self.store(Key { class: fd_store::DescriptorClass::Log, id: 0 }, file)
    }

    /// Stores a descriptor for the next server, replacing one with the same key. Once this returns, the descriptor survives this
    /// process.
    pub(crate) fn store(&self, key: Key, descriptor: BorrowedFd<'_>) -> Result<(), GuardianError> {
        self.send_with(&Message::Store(key), Some(descriptor))
    }

    pub(crate) fn remove_stored(&self, key: Key) -> Result<(), GuardianError> {
        self.send(&Message::Remove(key))
    }

    /// Reports whether the guardian process has exited.
    pub fn has_exited(&self) -> bool {
        let Link::Process { socket, .. } = &self.link else { return false };
        let mut fds = [PollFd::new(socket, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Reports whether a successor was requested at the start of the guardian.
    pub(crate) fn may_restart(&self) -> bool {
        self.restarts
    }

    /// From here on the guardian starts a successor if the server dies.
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
        match &self.link {
            // The guardian reads what is in the socket's buffer even if the server dies right after this.
            Link::Process { socket, .. } => {
                seqpacket::send(socket.as_fd(), &message.encode(), descriptor).map_err(GuardianError::Gone)
            }
            Link::ServiceManager(link) => link.apply(message, descriptor),
        }
    }
}

/// Waits until the guardian process is ready.
fn is_ready(socket: BorrowedFd<'_>) -> bool {
    let timeout = Timespec { tv_sec: START_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    let ready = retry_on_intr(|| poll(&mut fds, Some(&timeout))).unwrap_or(0);
    let mut byte = [0; wire::READY.len()];
    ready == 1 && recv(socket, &mut byte, RecvFlags::DONTWAIT).is_ok() && byte == *wire::READY
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let Link::Process { socket, child } = &mut self.link else { return };
        // A child of ours may hold a copy of the socket; shutting down ends all copies.
        let _ = shutdown(&*socket, rustix::net::Shutdown::Both);
        // The guardian then exits by itself. If it is not our child, because the server forked, there is nothing to wait for.
        let _ = child.as_mut().map(Child::wait);
    }
}
