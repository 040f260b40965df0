//! The guardian process: records the messages of its server, and when the server ends, starts a successor or removes the mounts.
//! It holds the descriptors of the session meanwhile, and accepts only messages that its first packet and its sealing allow.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::exit_watch::{EXIT_POLL_INTERVAL, IDLE_POLL_INTERVAL, ServerProcess};
use super::log::log;
use super::removal::remove_watched;
use super::seqpacket;
use super::state::GuardianState;
use super::successor::Succession;
use super::wire::{MAX_PACKET_BYTES, Message, READY};
use crate::mount::sys;

const NAME: &CStr = c"shunt-guardian";
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Runs as the guardian until the server at the other end of standard input ends; then starts a successor, where that was
/// requested, or cleans up.
///
/// Call it first in a process that [`Guardian::spawn`](super::Guardian::spawn) started. It makes the process a session of its own
/// that ignores SIGINT, SIGTERM, SIGHUP and SIGQUIT, and an unlikely victim of the OOM killer.
///
/// The exit code is a failure if a mount could not be removed, or if standard input is not the socket.
pub fn main() -> ExitCode {
    // Fails if we lead a process group already, and then no terminal sends us signals anyway.
    let _ = rustix::process::setsid();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        sys::ignore_signal(signal);
    }
    let _ = rustix::thread::set_name(NAME);
    // Keeps no directory busy.
    let _ = std::env::set_current_dir("/");
    let oom_score = std::fs::read_to_string(OOM_SCORE).ok().and_then(|line| line.trim().parse().ok());
    // A negative value requires root; without it nothing is lost.
    let _ = std::fs::write(OOM_SCORE, "-1000");
    // Raises the limit for the descriptors of a server.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);

    let stdin = std::io::stdin();
    // The first server is our parent.
    let life = rustix::process::getppid().map(ServerProcess::of);
    let program = std::env::current_exe().ok();
    let mut state = GuardianState { serving: true, server: life, program, ..GuardianState::default() };
    let mut first = vec![0; MAX_PACKET_BYTES];
    let settled = seqpacket::receive(stdin.as_fd(), &mut first)
        .is_ok_and(|(length, _)| state.apply_first(Message::decode(&first[..length])));
    if !settled || send(&stdin, READY, SendFlags::NOSIGNAL).is_err() {
        log("cannot start: standard input is not the server's socket; only shunt can start this process");
        return ExitCode::FAILURE;
    }
    follow(stdin.as_fd(), &mut state, None);
    let mut succession = Succession::new(oom_score.unwrap_or(0));
    while state.to_be_continued().is_some() {
        match succession.next(&mut state) {
            Ok(server) => {
                state.server = server.process();
                follow(server.socket(), &mut state, Some(server.deadline()));
                server.reap(&mut succession, &state);
            }
            Err(reason) => {
                log(&format!("{reason}: no further restart, unmounting {}", state.path().display()));
                break;
            }
        }
    }
    // These are the last descriptors of the connection: processes that wait for a reply get an error now.
    state.descriptors.clear();
    let mut clean = true;
    for watched in state.mounts.into_values() {
        clean &= remove_watched(watched);
    }
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Processes messages until the server's end is closed, or until `deadline` if the server does not serve before it.
fn follow(socket: BorrowedFd<'_>, state: &mut GuardianState, deadline: Option<Instant>) {
    let mut buf = vec![0; MAX_PACKET_BYTES];
    loop {
        let deadline = deadline.filter(|_| !state.serving);
        // With a successor to start, requests are waiting for it.
        let pause = if state.is_armed() { EXIT_POLL_INTERVAL } else { IDLE_POLL_INTERVAL };
        if !wait(socket, deadline, state.server, pause) {
            return;
        }
        match seqpacket::receive(socket, &mut buf) {
            // No message is empty, so this is end of file.
            Ok((0, _)) => return,
            Ok((length, descriptor)) => state.apply(Message::decode(&buf[..length]), descriptor),
            // The server ended with unread bytes; what it sent can still be read.
            Err(Errno::CONNRESET) => {}
            Err(errno) => {
                log(&format!("cannot receive from the server: {errno}"));
                return;
            }
        }
    }
}

/// Waits until the socket is readable. Returns `false` where nothing more will arrive.
fn wait(
    socket: BorrowedFd<'_>,
    deadline: Option<Instant>,
    life: Option<ServerProcess>,
    pause: Duration,
) -> bool {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let time = left.into_iter().chain(life.map(|_| pause)).min();
        if says_something(socket, time) {
            return true;
        }
        let late = left.is_some_and(|left| left <= pause);
        if late || life.is_some_and(ServerProcess::has_effectively_exited) {
            // Drain the socket first, including what the server sent between the two polls: it may announce its exit.
            return says_something(socket, Some(Duration::ZERO));
        }
    }
}

/// Reports whether the socket becomes readable, or reaches its end, within `time`.
fn says_something(socket: BorrowedFd<'_>, time: Option<Duration>) -> bool {
    let timeout =
        time.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
    let polled = poll(&mut [PollFd::new(&socket, PollFlags::IN)], timeout.as_ref());
    !matches!(polled, Ok(0) | Err(Errno::INTR))
}
