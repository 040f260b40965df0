//! The guardian itself.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::exit_watch::{LOOK, Life, SELDOM};
use super::fd_store::Held;
use super::removal::{Watched, take_away};
use super::seqpacket;
use super::successor::Succession;
use super::wire::{MAX, Message, READY};
use crate::mount::sys;

/// More mounts than one server ever has; bounds the memory.
const MAX_HELD_DESCRIPTORS: usize = 4096;

const NAME: &CStr = c"shunt-guardian";
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// What the guardian knows of its server.
#[derive(Default)]
pub(super) struct Book {
    pub(super) mounts: BTreeMap<u32, Watched>,
    pub(super) held: Held,
    /// How to start another server: how many crashes are too many, and its arguments. Settled by the first packet.
    pub(super) restart: Option<(u32, Vec<OsString>)>,
    /// A server that dies from now on is followed by another one.
    armed: bool,
    /// No other mounts are taken, and nothing else is kept.
    sealed: bool,
    /// The server.
    life: Option<Life>,
    /// The server ends on purpose.
    ending: bool,
    /// The program of the next server, where it is to be another one, and when the server began to hand over.
    pub(super) upgrade: Option<(OwnedFd, u64)>,
    /// The server has taken over.
    pub(super) serving: bool,
}

impl Book {
    /// The only mount, if another server is to serve it on.
    pub(super) fn to_be_continued(&self) -> Option<(u32, &Watched)> {
        let (token, watched) = self.mounts.iter().next()?;
        let mounted = self.mounts.len() == 1 && matches!(watched, Watched::Mounted { .. });
        (mounted && self.is_armed() && !self.ending).then_some((*token, watched))
    }

    fn is_armed(&self) -> bool {
        self.armed && self.restart.is_some()
    }

    /// Settles what may ever be done, by the first packet. `false` where that is none that does.
    pub(super) fn settle(&mut self, first: Option<Message>) -> bool {
        match first {
            Some(Message::UnmountOnly) => {}
            Some(Message::Restart { crashes, arguments }) => self.restart = Some((crashes, arguments)),
            _ => return false,
        }
        true
    }

    /// Whether the server may ask for this, now. One that reads what nobody vouches for may be told what to say.
    fn allows(&self, message: &Message) -> bool {
        match message {
            Message::Release { .. } | Message::Ending => true,
            Message::Pending { .. } | Message::Mounted { .. } => !self.sealed,
            Message::Hold(_) | Message::LetGo(_) | Message::Arm | Message::Upgrade | Message::Serving => {
                !self.sealed && self.restart.is_some()
            }
            Message::Seal => true,
            Message::Restart { .. } | Message::UnmountOnly | Message::Go { .. } => false,
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        match self.mounts.values().next() {
            Some(Watched::Mounted { path, .. } | Watched::Pending { path, .. }) => path.clone(),
            None => PathBuf::new(),
        }
    }

    pub(super) fn note(&mut self, message: Option<Message>, descriptor: Option<OwnedFd>) {
        let message = message.filter(|message| self.allows(message));
        let (token, watched) = match (message, descriptor) {
            (Some(Message::Pending { token, before, path }), _) => (token, Watched::Pending { before, path }),
            (Some(Message::Mounted { token, mark, path }), _) => (token, Watched::Mounted { mark, path }),
            (Some(Message::Release { token }), _) => {
                self.mounts.remove(&token);
                return;
            }
            (Some(Message::Hold(key)), Some(descriptor)) => {
                self.held.insert(key, descriptor);
                return;
            }
            (Some(Message::Hold(key)), None) => {
                // The name must not lead to an older descriptor.
                self.held.remove(&key);
                log("no descriptor is left for a file of the server: it will be lost if the server dies");
                return;
            }
            (Some(Message::LetGo(key)), _) => {
                self.held.remove(&key);
                return;
            }
            (Some(Message::Arm), _) => {
                self.armed = true;
                return;
            }
            (Some(Message::Seal), _) => {
                self.sealed = true;
                return;
            }
            (Some(Message::Ending), _) => {
                self.ending = true;
                return;
            }
            (Some(Message::Upgrade), program) => {
                self.upgrade = program.map(|program| (program, now()));
                return;
            }
            (Some(Message::Serving), _) => {
                self.serving = true;
                return;
            }
            (Some(Message::Restart { .. } | Message::UnmountOnly | Message::Go { .. }) | None, _) => {
                log("dropped a message that it does not know, or that its server may not send");
                return;
            }
        };
        if self.mounts.len() < MAX_HELD_DESCRIPTORS || self.mounts.contains_key(&token) {
            self.mounts.insert(token, watched);
        } else {
            log("too many mounts: one is not watched");
        }
    }
}

/// Runs as the guardian until the server at the other end of standard input ends; then starts another one, where that
/// was asked for, or cleans up after it.
///
/// To be called first in a process that [`Guardian::spawn`](super::Guardian::spawn) started. Makes the process a
/// session of its own, deaf to SIGINT, SIGTERM, SIGHUP and SIGQUIT, hard to pick for the OOM killer.
///
/// The exit code is a failure if a mount could not be taken away, or if standard input is not the socket.
pub fn main() -> ExitCode {
    // Fails if we lead a process group already, and then no terminal's signals are meant for us anyway.
    let _ = rustix::process::setsid();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        sys::ignore_signal(signal);
    }
    let _ = rustix::thread::set_name(NAME);
    // Keeps no directory busy.
    let _ = std::env::set_current_dir("/");
    let oom_score = std::fs::read_to_string(OOM_SCORE).ok().and_then(|line| line.trim().parse().ok());
    // Lower than zero takes root; nothing is lost without.
    let _ = std::fs::write(OOM_SCORE, "-1000");
    // Room for the descriptors of a server.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);

    let stdin = std::io::stdin();
    // The first server started us.
    let life = rustix::process::getppid().map(Life::of);
    let mut book = Book { serving: true, life, ..Book::default() };
    let mut first = vec![0; MAX];
    let settled = seqpacket::receive(stdin.as_fd(), &mut first)
        .is_ok_and(|(length, _)| book.settle(Message::decode(&first[..length])));
    if !settled || send(&stdin, READY, SendFlags::NOSIGNAL).is_err() {
        log("standard input is not the server's socket; do not start this by hand");
        return ExitCode::FAILURE;
    }
    follow(stdin.as_fd(), &mut book, None);
    let mut succession = Succession::new(oom_score.unwrap_or(0));
    while book.to_be_continued().is_some() {
        match succession.next(&mut book) {
            Ok(server) => {
                book.life = server.life();
                follow(server.socket(), &mut book, Some(server.deadline()));
                server.reap(&mut succession, &book);
            }
            Err(reason) => {
                log(&format!("{reason}: given up, unmounting {}", book.path().display()));
                break;
            }
        }
    }
    // The last descriptors of the connection: whoever waits for an answer gets an error now.
    book.held.clear();
    let mut clean = true;
    for watched in book.mounts.into_values() {
        clean &= take_away(watched);
    }
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Keeps the book until the server's end is closed, or until `deadline` if it does not serve by then.
fn follow(socket: BorrowedFd<'_>, book: &mut Book, deadline: Option<Instant>) {
    let mut buf = vec![0; MAX];
    loop {
        let deadline = deadline.filter(|_| !book.serving);
        // Somebody waits for the next server.
        let pause = if book.is_armed() { LOOK } else { SELDOM };
        if !wait(socket, deadline, book.life, pause) {
            return;
        }
        match seqpacket::receive(socket, &mut buf) {
            // No message is empty, so this is the end.
            Ok((0, _)) => return,
            Ok((length, descriptor)) => book.note(Message::decode(&buf[..length]), descriptor),
            // The server ended with unread bytes; what it sent is still to be read.
            Err(Errno::CONNRESET) => {}
            Err(errno) => {
                log(&format!("cannot hear the server: {errno}"));
                return;
            }
        }
    }
}

/// Waits until there is something to be read. Tells `false` where there will be nothing.
fn wait(socket: BorrowedFd<'_>, deadline: Option<Instant>, life: Option<Life>, pause: Duration) -> bool {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let time = left.into_iter().chain(life.map(|_| pause)).min();
        if says_something(socket, time) {
            return true;
        }
        let late = left.is_some_and(|left| left <= pause);
        if late || life.is_some_and(Life::is_as_good_as_over) {
            // What it said comes first, also what it said between the two looks: that it ends on purpose.
            return says_something(socket, Some(Duration::ZERO));
        }
    }
}

/// Whether there is something to be read within the time, the end included.
fn says_something(socket: BorrowedFd<'_>, time: Option<Duration>) -> bool {
    let timeout =
        time.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
    let polled = poll(&mut [PollFd::new(&socket, PollFlags::IN)], timeout.as_ref());
    !matches!(polled, Ok(0) | Err(Errno::INTR))
}

/// Standard error may be closed or full; that must not stop the cleaning.
pub(super) fn log(message: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "shunt guardian: {message}");
}
