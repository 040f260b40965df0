//! Starting the next server.

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
use rustix::time::{ClockId, clock_gettime};

use super::death::Life;
use super::link;
use super::process::{Book, log};
use super::removal::Watched;
use super::wire::Message;
use crate::mount::sys;

/// Servers that end more often than they may in this time are given up.
const WINDOW: Duration = Duration::from_secs(10);
/// How long a server may take to take over.
const START: Duration = Duration::from_secs(10);

/// The servers of one mount, one after the other.
pub(super) struct Succession {
    ends: VecDeque<Instant>,
    takeovers: u32,
    oom_score: i32,
    /// The program that an upgrade brought.
    program: Option<OwnedFd>,
    /// Servers that end as soon as their successors serve.
    dying: Vec<Child>,
}

/// A server that we started.
pub(super) struct Server {
    child: Child,
    socket: OwnedFd,
    started: Instant,
}

impl Succession {
    pub(super) fn new(oom_score: i32) -> Self {
        Self { ends: VecDeque::new(), takeovers: 0, oom_score, program: None, dying: Vec::new() }
    }

    /// The server ended: starts the next one and hands everything over.
    pub(super) fn next(&mut self, book: &mut Book) -> Result<Server, String> {
        let gone = clock_gettime(ClockId::Monotonic);
        let gone = gone.tv_sec as u64 * 1_000_000_000 + gone.tv_nsec as u64;
        self.dying.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.count(book)?;
        let upgrade = book.upgrade.take();
        if let Some(program) = upgrade {
            self.program = Some(program);
        }
        self.takeovers += 1;
        book.serving = false;
        let server = self.start(book).map_err(|error| format!("no other server can be started ({error})"))?;
        let go = Message::Go { takeovers: self.takeovers, oom_score: self.oom_score, gone };
        if let Err(error) = server.hand_over(book, &go) {
            // It ended already, which is seen next.
            log(&format!("cannot hand over: {error}"));
        }
        Ok(server)
    }

    fn count(&mut self, book: &Book) -> Result<(), String> {
        let most = book.restart.as_ref().map_or(0, |(crashes, _)| *crashes as usize);
        if book.upgrade.is_none() {
            let now = Instant::now();
            self.ends.retain(|end| now.duration_since(*end) < WINDOW);
            self.ends.push_back(now);
        }
        if self.ends.len() >= most.max(1) {
            let times = self.ends.len();
            return Err(format!("the server ended {times} times within {} seconds", WINDOW.as_secs()));
        }
        Ok(())
    }

    fn start(&self, book: &Book) -> io::Result<Server> {
        let no_arguments = Vec::new();
        let arguments: &Vec<OsString> =
            book.restart.as_ref().map_or(&no_arguments, |(_, arguments)| arguments);
        let [name, rest @ ..] = arguments.as_slice() else { return Err(io::ErrorKind::InvalidInput.into()) };
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = match &self.program {
            Some(program) => Command::new(format!("/proc/self/fd/{}", program.as_raw_fd())),
            // Ours: the same that the first server was, even if that file was replaced since.
            None => Command::new("/proc/self/exe"),
        };
        command.arg0(name).args(rest).stdin(theirs).stdout(Stdio::null());
        sys::close_all_on_exec(&mut command);
        let child = command.spawn()?;
        Ok(Server { child, socket, started: Instant::now() })
    }

    /// A program that did not get as far as to serve is not tried again.
    fn failed(&mut self) {
        if self.program.take().is_some() {
            log("the new program did not take over: back to the old one");
        }
    }
}

impl Server {
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn life(&self) -> Option<Life> {
        self.pid().map(Life::of)
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id() as i32)
    }

    pub(super) fn deadline(&self) -> Instant {
        self.started + START
    }

    fn hand_over(&self, book: &Book, go: &Message) -> io::Result<()> {
        for (key, descriptor) in &book.held {
            link::send(self.socket(), &Message::Hold(*key).encode(), Some(descriptor.as_fd()))?;
        }
        for (token, watched) in &book.mounts {
            if let Watched::Mounted { mark, path } = watched {
                let mounted = Message::Mounted { token: *token, mark: *mark, path: path.clone() };
                link::send(self.socket(), &mounted.encode(), None)?;
            }
        }
        link::send(self.socket(), &go.encode(), None)?;
        Ok(())
    }

    /// Sees to its end, which came or is due.
    pub(super) fn reap(mut self, succession: &mut Succession, book: &Book) {
        // It may live on without its socket, or not have got to serve in time.
        let _ = self.child.kill();
        let life = self.life();
        let status = loop {
            match self.child.try_wait() {
                Ok(None) => {}
                ended => break ended.ok().flatten(),
            }
            // Then it may not end before another one serves.
            if life.is_some_and(Life::is_as_good_as_over) {
                break None;
            }
            thread::sleep(Duration::from_millis(1));
        };
        if !book.serving {
            succession.failed();
        }
        if book.to_be_continued().is_some() {
            let how = status.map_or_else(String::new, |status| format!(" ({status})"));
            log(&format!("the server of {} ended{how}: another one goes on", book.path().display()));
        }
        if status.is_none() {
            succession.dying.push(self.child);
        }
    }
}
