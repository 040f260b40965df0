//! The guardian itself.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::wire::{MAX, Message, READY};
use crate::mount::{Mark, MountError, MountPoint, Unmount, sys};

/// Waits between the tries to take a mount away; about four seconds in all.
const PAUSES: [u64; 6] = [10, 50, 200, 500, 1000, 2000];
/// How long a mount of unknown state may take to show whether it is dead.
const PROBE: Duration = Duration::from_secs(2);
/// More mounts than one server ever has; bounds the memory.
const MOST: usize = 4096;

const NAME: &CStr = c"shunt-guardian";

enum Watched {
    Pending { before: Mark, path: PathBuf },
    Mounted { mark: Mark, path: PathBuf },
}

/// Runs as the guardian until the server at the other end of standard input ends; then cleans up after it.
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
    // Lower than zero takes root; nothing is lost without.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");

    let stdin = std::io::stdin();
    let socket = stdin.as_fd();
    if send(socket, READY, SendFlags::NOSIGNAL).is_err() {
        log("standard input is not the server's socket; do not start this by hand");
        return ExitCode::FAILURE;
    }
    let left = follow(socket);
    let mut clean = true;
    for watched in left.into_values() {
        clean &= take_away(watched);
    }
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Keeps the list until the server's end is closed, and returns what is left on it.
fn follow(socket: BorrowedFd<'_>) -> BTreeMap<u32, Watched> {
    let mut list = BTreeMap::new();
    let mut buf = [0; MAX];
    loop {
        let len = match retry_on_intr(|| recv(socket, &mut buf[..], RecvFlags::empty())) {
            // No message is empty, so this is the end.
            Ok((0, _)) => return list,
            Ok((len, _)) => len,
            // The server ended with unread bytes; what it sent is still to be read.
            Err(Errno::CONNRESET) => continue,
            Err(errno) => {
                log(&format!("cannot hear the server: {errno}"));
                return list;
            }
        };
        let (token, watched) = match Message::decode(&buf[..len]) {
            Some(Message::Pending { token, before, path }) => (token, Watched::Pending { before, path }),
            Some(Message::Mounted { token, mark, path }) => (token, Watched::Mounted { mark, path }),
            Some(Message::Release { token }) => {
                list.remove(&token);
                continue;
            }
            None => {
                log("dropped a message that it does not know");
                continue;
            }
        };
        if list.len() < MOST || list.contains_key(&token) {
            list.insert(token, watched);
        } else {
            log("too many mounts: one is not watched");
        }
    }
}

/// Whether nothing is left of it.
fn take_away(watched: Watched) -> bool {
    match watched {
        Watched::Mounted { mark, path } => remove(&MountPoint::new(path, mark)),
        Watched::Pending { before, path } => remove_pending(before, &path),
    }
}

fn remove(mount: &MountPoint) -> bool {
    let mut last = None;
    for pause in PAUSES {
        if !mount.is_mounted() {
            return true;
        }
        // Ends what still waits for an answer, even if the unmount is refused.
        let _ = mount.abort();
        match mount.unmount(Unmount::Lazy) {
            Ok(()) | Err(MountError::NotMounted(_)) => {
                log(&format!("the server is gone: unmounted {}", mount.path().display()));
                return true;
            }
            Err(error) => last = Some(error),
        }
        thread::sleep(Duration::from_millis(pause));
    }
    if let Some(error) = last {
        log(&format!("the server is gone, but its mount stays: {error}"));
    }
    false
}

/// The server died around its mount call, so it is not known whether and which mount is there. A new one at
/// the path is ours if its server is gone; a restarted server's mount is alive.
fn remove_pending(before: Mark, path: &Path) -> bool {
    // The helper may still be about to mount.
    for pause in &PAUSES[..4] {
        if let Ok(mount) = MountPoint::find(path)
            && mount.mark() != before
        {
            return if is_dead(path) { remove(&mount) } else { true };
        }
        thread::sleep(Duration::from_millis(*pause));
    }
    true
}

/// Asks the mount itself, in another thread because a hung server would not answer.
fn is_dead(path: &Path) -> bool {
    let (answer, dead) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        let seen = statx(CWD, &path, flags, StatxFlags::TYPE);
        let _ = answer.send(matches!(seen, Err(Errno::NOTCONN | Errno::CONNABORTED)));
    });
    dead.recv_timeout(PROBE).unwrap_or(false)
}

/// Standard error may be closed or full; that must not stop the cleaning.
fn log(message: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "shunt guardian: {message}");
}
