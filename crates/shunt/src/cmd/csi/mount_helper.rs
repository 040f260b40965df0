//! `shunt __csi-mount`: starts a daemon on behalf of a plugin, which may be killed meanwhile.
//!
//! It holds a lock until the daemon serves. So a plugin that is started again cannot mount a second time what its predecessor was about to
//! mount.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::fs::{FlockOperation, flock};

use crate::args::CsiMountArgs;
use crate::error::{Code, Failure, Result, failed};
use crate::own_mounts;

pub fn run(args: &CsiMountArgs) -> Result<ExitCode> {
    if let Some(cgroup) = &args.cgroup {
        enter_cgroup(cgroup)
            .map_err(|error| failed(format_args!("cannot enter the cgroup {}: {error}", cgroup.display())))?;
    }
    // The leader of a process group is the leader of a session already, or of a job of a shell.
    let _ = rustix::process::setsid();
    let cannot_lock = |error: io::Error| failed(format_args!("cannot lock {}: {error}", args.lock.display()));
    let lock =
        OpenOptions::new().create(true).truncate(false).write(true).open(&args.lock).map_err(cannot_lock)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => Failure::new(Code::Busy, "the volume is being mounted: try again"),
        other => cannot_lock(other.into()),
    })?;
    if own_mounts::find(&args.mountpoint).is_ok() {
        return Ok(ExitCode::SUCCESS);
    }
    let status = Command::new("/proc/self/exe")
        .arg0("shunt")
        .args(&args.command)
        .status()
        .map_err(|error| failed(format_args!("cannot execute /proc/self/exe: {error}")))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(Code::Failed as u8);
    Ok(ExitCode::from(code))
}

fn enter_cgroup(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // 0 is the process that writes.
    fs::write(directory.join("cgroup.procs"), "0")
}
