//! The relay: holds the socket of a guest's emulator while daemons come and go behind it.
//!
//! An emulator sets up its device by messages (vhost-user): the guest's memory, the addresses of the queues, and the eventfds by
//! which the two sides notify each other. The relay forwards the messages to the daemon and records what they set. When the daemon
//! ends, it sends the record to the next one, and then the request that was not answered. So the emulator notices nothing, and
//! need not be able to reconnect. The data of requests does not pass through here: it is in the guest's memory, which the daemon
//! maps.
//!
//! For the requests in the queues the relay does what the specification expects of an emulator that reconnects: it keeps the
//! memory in which the daemon records the requests in flight, and gives it to the next daemon. An emulator that does so itself
//! is left to it.

pub(crate) mod message;
mod record;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::log::log;
use super::seqpacket;
use crate::transport::virtio::{MAX_CHAINS, MAX_QUEUES, inflight};
use message::{Message, Request};
use record::{INFLIGHT_SHMFD, Record, forget_queue};

/// Timeout for a daemon that closed its connection to exit. If it stays, it refused the emulator.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after a connection could not be accepted, for lack of descriptors for example.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The guardian's handle on its relay.
#[derive(Debug, Clone)]
pub(super) struct Relay(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The socket on which the next daemon receives connections, until the relay uses it.
    next: Mutex<Option<OwnedFd>>,
    wake: OwnedFd,
}

impl Relay {
    /// Starts the relay of a socket on which emulators connect.
    ///
    /// # Errors
    /// No descriptor or thread is available.
    pub(super) fn start(listener: OwnedFd) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { next: Mutex::default(), wake });
        let mut state = State { shared: shared.clone(), daemon: None };
        let listener = UnixListener::from(listener);
        thread::Builder::new().name("relay".into()).spawn(move || state.run(&listener))?;
        Ok(Self(shared))
    }

    /// Adds a daemon, which receives connections on the other end of `connections`.
    pub(super) fn attach(&self, connections: OwnedFd) {
        *self.0.next.lock() = Some(connections);
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }
}

/// Makes the two ends of a socket on which a daemon receives connections.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Receives the next connection from the relay; `None` once the relay has ended.
pub(crate) fn accept(connections: BorrowedFd<'_>) -> Option<UnixStream> {
    match seqpacket::receive(connections, &mut [0; 1]) {
        Ok((1, Some(stream))) => Some(stream.into()),
        _ => None,
    }
}

/// The reason why a connection ended.
enum End {
    /// The emulator ended it, or broke the protocol, or the daemon refused it.
    Emulator,
    /// The daemon ended. Another one may follow.
    Daemon,
}

struct State {
    shared: Arc<Shared>,
    daemon: Option<OwnedFd>,
}

impl State {
    fn run(&mut self, listener: &UnixListener) {
        loop {
            match listener.accept() {
                Ok((emulator, _)) => self.serve(&emulator),
                Err(error) => {
                    log(&format!("cannot accept the connection of an emulator: {error}"));
                    thread::sleep(ACCEPT_RETRY_INTERVAL);
                }
            }
        }
    }

    /// Serves one emulator, by one daemon after the other.
    fn serve(&mut self, emulator: &UnixStream) {
        let mut link = Link { record: Record::default(), unanswered: None };
        loop {
            let Ok(back) = self.connect(emulator) else { return };
            let end = link.replay(&back).and_then(|()| link.forward(emulator, &back, &self.shared));
            match end {
                Ok(()) | Err(End::Emulator) => return,
                Err(End::Daemon) if self.has_exited() => self.daemon = None,
                Err(End::Daemon) => {
                    log("the server closed the connection of an emulator: closing it as well");
                    return;
                }
            }
        }
    }

    /// Reports whether the daemon has exited, which takes a moment after it closed its connection.
    fn has_exited(&self) -> bool {
        let Some(daemon) = &self.daemon else { return true };
        let timeout = Timespec { tv_sec: EXIT_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        let mut fds = [PollFd::new(daemon, PollFlags::empty())];
        let _ = poll(&mut fds, Some(&timeout));
        fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) || self.shared.next.lock().is_some()
    }

    /// Makes a connection to the daemon; waits for one to be there.
    ///
    /// # Errors
    /// The emulator has ended meanwhile, or no descriptor is available.
    fn connect(&mut self, emulator: &UnixStream) -> Result<UnixStream, Errno> {
        loop {
            if let Some(next) = self.shared.next.lock().take() {
                self.daemon = Some(next);
            }
            if let Some(daemon) = &self.daemon {
                let (ours, theirs) = UnixStream::pair().map_err(|_| Errno::MFILE)?;
                match seqpacket::send(daemon.as_fd(), &[0], Some(theirs.as_fd())) {
                    Ok(()) => return Ok(ours),
                    Err(_) => self.daemon = None,
                }
            }
            let mut fds =
                [PollFd::new(&self.shared.wake, PollFlags::IN), PollFd::new(emulator, PollFlags::empty())];
            let _ = poll(&mut fds, None);
            if fds[1].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                return Err(Errno::CONNRESET);
            }
            let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
        }
    }
}

/// A connection of an emulator.
struct Link {
    record: Record,
    /// The request that was forwarded, and that no daemon answered yet.
    unanswered: Option<Message>,
}

impl Link {
    /// Tells a new daemon all that the emulator told the ones before it.
    fn replay(&mut self, back: &UnixStream) -> Result<(), End> {
        if self.record.messages().next().is_some() {
            // A daemon offers its features before it accepts a choice.
            for request in [Request::GetFeatures, Request::GetProtocolFeatures] {
                let message = Message::new(request, Vec::new(), Vec::new());
                message.send(back.as_fd()).map_err(|_| End::Daemon)?;
                Message::receive(back.as_fd(), true).map_err(|_| End::Daemon)?;
            }
        }
        for message in self.record.messages() {
            message.send(back.as_fd()).map_err(|_| End::Daemon)?;
        }
        if let Some(message) = &self.unanswered {
            message.send(back.as_fd()).map_err(|_| End::Daemon)?;
        }
        Ok(())
    }

    /// Forwards requests and replies until one of the sides ends.
    fn forward(&mut self, emulator: &UnixStream, back: &UnixStream, shared: &Shared) -> Result<(), End> {
        loop {
            // A daemon may have to wait for its successor before it can exit.
            if shared.next.lock().is_some() {
                return Err(End::Daemon);
            }
            let is_waiting = self.unanswered.is_some();
            let interest = if is_waiting { PollFlags::empty() } else { PollFlags::IN };
            let mut fds = [
                PollFd::new(back, PollFlags::IN),
                PollFd::new(&shared.wake, PollFlags::IN),
                PollFd::new(emulator, interest),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return Err(End::Emulator),
            }
            let [has_reply, is_woken, has_request] = fds.map(|fd| !fd.revents().is_empty());
            if is_woken {
                let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
                continue;
            }
            if is_waiting && has_reply {
                let mut reply = Message::receive(back.as_fd(), true).map_err(|_| End::Daemon)?;
                let request = self.unanswered.take();
                if let Some(request) = request {
                    self.note_reply(&request, &mut reply).map_err(|_| End::Emulator)?;
                }
                reply.send(emulator.as_fd()).map_err(|_| End::Emulator)?;
                continue;
            }
            if has_reply {
                // A daemon says nothing of its own accord.
                return Err(End::Daemon);
            }
            if !has_request {
                continue;
            }
            if is_waiting {
                return Err(End::Emulator);
            }
            let message = Message::receive(emulator.as_fd(), false).map_err(|_| End::Emulator)?;
            self.pass(message, back)?;
        }
    }

    /// Records and forwards a request of the emulator.
    fn pass(&mut self, mut message: Message, back: &UnixStream) -> Result<(), End> {
        match message.request {
            Request::SetProtocolFeatures => {
                // Ours, if the emulator does not use it.
                let features = message.number().ok_or(End::Emulator)? | self.record.offered(INFLIGHT_SHMFD);
                message.body = features.to_le_bytes().to_vec();
            }
            Request::SetVringKick if self.record.tracks_inflight() && self.record.inflight().is_none() => {
                let setting = inflight_setting().map_err(|_| End::Emulator)?;
                self.record.apply(&setting).map_err(|_| End::Emulator)?;
                setting.send(back.as_fd()).map_err(|_| End::Daemon)?;
            }
            _ => {}
        }
        // A daemon that ends before it has read this gets it again, with the record.
        if !self.record.is_answered(&message) {
            self.record.apply(&message).map_err(|_| End::Emulator)?;
            return message.send(back.as_fd()).map_err(|_| End::Daemon);
        }
        let sent = message.send(back.as_fd());
        self.unanswered = Some(message);
        sent.map_err(|_| End::Daemon)
    }

    /// Records what is settled by a reply.
    fn note_reply(&mut self, request: &Message, reply: &mut Message) -> Result<(), Errno> {
        if request.request != reply.request {
            return Err(Errno::PROTO);
        }
        match request.request {
            Request::GetProtocolFeatures => {
                self.record.offer(reply.number().ok_or(Errno::PROTO)?);
                Ok(())
            }
            Request::GetVringBase => {
                let queue = self.record.stop(reply)?;
                if let Some((message, file)) = self.record.inflight() {
                    forget_queue(message, file, queue);
                }
                Ok(())
            }
            // A setting that the daemon refused is none.
            _ if !request.request.has_reply() && reply.number() == Some(0) => self.record.apply(request),
            _ => Ok(()),
        }
    }
}

/// Makes the memory that tracks the requests in flight, with room for any queues.
fn inflight_setting() -> io::Result<Message> {
    let (queues, entries) = (MAX_QUEUES, MAX_CHAINS as u16);
    let file = inflight::create(queues, entries)?;
    let mut body = (inflight::region_bytes(queues, entries) as u64).to_le_bytes().to_vec();
    body.extend(0_u64.to_le_bytes());
    body.extend((queues as u16).to_le_bytes());
    body.extend(entries.to_le_bytes());
    // The structure is padded to a multiple of its alignment.
    body.extend([0; 4]);
    Ok(Message::new(Request::SetInflightFd, body, vec![file.into()]))
}
