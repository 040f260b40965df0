//! The process that unmounts for a sandboxed daemon. It reads one byte per request, exits with the daemon, and then removes the
//! daemon's control socket.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use shunt_fuse::mount::MountPoint;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::LogArgs;
use crate::log;
use crate::unmount;

/// The process, if it was started.
static HELPER: OnceLock<Mutex<Child>> = OnceLock::new();

const UNMOUNT: u8 = b'1';
const FORCE_UNMOUNT: u8 = b'2';
const REMOVE_UNSERVED: u8 = b'3';

/// Timeout of removing a mount that was never served.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The parameters of the process.
#[derive(Clone, Copy, Debug)]
pub struct HelperArgs<'a> {
    /// The mount point.
    pub mountpoint: &'a Path,
    /// The control socket.
    pub socket: Option<&'a Path>,
    /// The daemon runs in the background: standard error belongs to the process that started it, which waits until it is closed.
    pub background: bool,
}

/// Starts the process.
pub(super) fn start(HelperArgs { mountpoint, socket, background }: HelperArgs<'_>) -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("__outside").arg(mountpoint).args(socket).stdin(Stdio::piped()).stdout(Stdio::null());
    match log::file() {
        Some(log) => command.stderr(log.try_clone()?),
        None if background => command.stderr(Stdio::null()),
        None => &mut command,
    };
    // Never waited for: it exits after the daemon.
    HELPER.set(Mutex::new(command.spawn()?)).map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// Requests the unmount; `false` if that is left to the caller.
pub fn unmount(by_force: bool) -> bool {
    send_request(if by_force { FORCE_UNMOUNT } else { UNMOUNT }).is_some()
}

/// Requests the removal of a mount that was never served, and waits until it is unmounted; `false` if that is left to the caller.
pub fn remove_unserved() -> bool {
    let Some(mut outside) = send_request(REMOVE_UNSERVED) else { return false };
    outside.stdin = None;
    let begun = Instant::now();
    while matches!(outside.try_wait(), Ok(None)) && begun.elapsed() < REMOVE_TIMEOUT {
        thread::sleep(Duration::from_millis(5));
    }
    true
}

fn send_request(wish: u8) -> Option<MutexGuard<'static, Child>> {
    let mut outside = HELPER.get()?.lock().ok()?;
    outside.stdin.as_mut()?.write_all(&[wish]).ok()?;
    Some(outside)
}

/// The main function of that process.
pub fn main(mountpoint: &Path, socket: Option<&Path>) -> ExitCode {
    // The terminal's signals are for the daemon, which forwards them as requests.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"shunt-outside");
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
    let _ = std::env::set_current_dir("/");
    log::start_in(&LogArgs::default(), None);
    let Ok(mount) = MountPoint::find(mountpoint) else { return ExitCode::FAILURE };
    let mut wish = [0];
    while let Ok(1) = io::stdin().read(&mut wish) {
        match wish[0] {
            UNMOUNT => unmount::in_good_order(mount.clone(), Vec::new()),
            REMOVE_UNSERVED => unmount::remove_unserved(&mount),
            _ => unmount::by_force(&mount),
        }
    }
    // The sandboxed daemon no longer has the user id that created it. While the mount exists, a successor may have made it anew.
    let is_mounted = MountPoint::find(mountpoint).is_ok_and(|found| found.id() == mount.id());
    if let Some(socket) = socket.filter(|_| !is_mounted) {
        let _ = std::fs::remove_file(socket);
    }
    ExitCode::SUCCESS
}
