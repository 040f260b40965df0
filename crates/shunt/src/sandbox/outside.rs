//! The process that unmounts for a daemon that is locked in. It hears one byte for each wish, and ends with the daemon, whose
//! control socket it removes then.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use shunt_fuse::mount::MountPoint;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::LogArgs;
use crate::log;
use crate::serve::stop;

/// To the process, where there is one.
static OUTSIDE: OnceLock<Mutex<ChildStdin>> = OnceLock::new();

const IN_GOOD_ORDER: u8 = b'1';
const BY_FORCE: u8 = b'2';

/// Starts it.
pub(super) fn start(mountpoint: &Path, socket: Option<&Path>) -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("__outside").arg(mountpoint).args(socket).stdin(Stdio::piped()).stdout(Stdio::null());
    if let Some(log) = log::file() {
        command.stderr(log.try_clone()?);
    }
    let mut child = command.spawn()?;
    let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    // It ends after us: nobody waits for it.
    OUTSIDE.set(Mutex::new(stdin)).map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// Has the mount taken away; `false` where that is left to the caller.
pub fn unmount(by_force: bool) -> bool {
    let wish = if by_force { BY_FORCE } else { IN_GOOD_ORDER };
    OUTSIDE.get().and_then(|stdin| stdin.lock().ok()?.write_all(&[wish]).ok()).is_some()
}

/// Runs as that process.
pub fn main(mountpoint: &Path, socket: Option<&Path>) -> ExitCode {
    // The terminal's signals are for the daemon, which tells us.
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
            IN_GOOD_ORDER => stop::in_good_order(mount.clone(), Vec::new()),
            _ => stop::by_force(&mount),
        }
    }
    // The daemon is not who made it any more.
    if let Some(socket) = socket {
        let _ = std::fs::remove_file(socket);
    }
    ExitCode::SUCCESS
}
