//! `shunt umount`: unmounts, then waits for the daemon to exit, after which everything is committed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use shunt_fuse::mount::{MountError, MountInfo, MountPoint, Unmount};

use crate::cli::UmountArgs;
use crate::control::{self, Peer, SocketDir, SocketName};
use crate::error::{Code, Failure, Result};
use crate::{grafts, mount_users, own_mounts};

/// Attempts to unmount a mount whose grafts were mounted again, or whose daemon just accessed one; and the pause between them.
const MAX_UNMOUNT_ATTEMPTS: u32 = 25;
const UNMOUNT_RETRY_DELAY: Duration = Duration::from_millis(20);

pub fn run(args: &UmountArgs) -> Result<()> {
    let mut first = None;
    for path in &args.mountpoints {
        if let Err(failure) = one(path, args) {
            // The caller prints the last one.
            if let Some(earlier) = first.replace(failure) {
                let _ = writeln!(io::stderr(), "shunt: {earlier}");
            }
        }
    }
    first.map_or(Ok(()), Err)
}

fn one(path: &Path, args: &UmountArgs) -> Result<()> {
    let (mount, info) = own_mounts::find(path)?;
    let dirs = own_mounts::owner(&info).map(SocketDir::of).unwrap_or_default();
    // Found before the unmount, after which the daemon may exit at any time.
    let peer = control::find(&dirs, &SocketName::of(&mount)).ok().flatten();
    // Only users who may mount have grafts. Their paths lead through the mount, whose daemon may belong to another user.
    let is_mine = own_mounts::owner(&info) == Some(rustix::process::geteuid().as_raw());
    let stat = peer.as_ref().filter(|_| is_mine).and_then(|peer| peer.stat().ok());
    let grafts = stat.map_or_else(Vec::new, |stat| stat.grafts);
    let daemon = peer.map(Daemon::new);
    unmount(&mount, &grafts, args, daemon.is_some())
        .map_err(|failure| not_permitted(&mount, &info).unwrap_or(failure))?;
    match daemon {
        // A lazily unmounted file system may stay in use for hours.
        Some(_) if args.lazy && !args.force => Ok(()),
        Some(daemon) => daemon.wait(&mount, args.timeout.map(Duration::from_secs)),
        None => Ok(()),
    }
}

fn unmount(mount: &MountPoint, grafts: &[PathBuf], args: &UmountArgs, served: bool) -> Result<()> {
    let how = match (args.force, args.lazy) {
        (true, _) => Unmount::Force,
        (false, true) => Unmount::Lazy,
        (false, false) => Unmount::Normal,
    };
    // The daemon mounts grafts again, possibly in between.
    for _ in 0..MAX_UNMOUNT_ATTEMPTS {
        if how == Unmount::Normal && !grafts.is_empty() {
            grafts::unmount(mount, grafts);
        }
        match mount.unmount(how) {
            // A mount whose connection is aborted, or whose daemon has exited, is of no use: detach it.
            Err(MountError::Busy(_)) if args.force || !served => return Ok(mount.unmount(Unmount::Lazy)?),
            Err(MountError::Busy(_)) if !grafts.is_empty() => std::thread::sleep(UNMOUNT_RETRY_DELAY),
            Err(MountError::Busy(_)) => break,
            done => return Ok(done?),
        }
    }
    Err(busy(mount))
}

/// The reason of a failure if another user mounted it.
fn not_permitted(mount: &MountPoint, info: &MountInfo) -> Option<Failure> {
    let me = rustix::process::geteuid();
    let owner = own_mounts::owner(info).filter(|owner| !me.is_root() && *owner != me.as_raw())?;
    let path = mount.path().display();
    Some(Failure::new(
        Code::Privilege,
        format_args!("{path} was mounted by user {owner}: unmount it as that user or as root"),
    ))
}

fn busy(mount: &MountPoint) -> Failure {
    let path = mount.path().display();
    let holders: Vec<String> = mount_users::of(mount).iter().map(ToString::to_string).collect();
    let who = match holders.as_slice() {
        [] => "by a process that this user cannot see".to_owned(),
        some => format!("by {}", some.join(", ")),
    };
    Failure::new(
        Code::Busy,
        format_args!("{path} is busy: it is used {who}; stop using it, or unmount with --lazy or --force"),
    )
}

/// The process that serves a mount.
struct Daemon<'a> {
    peer: Peer<'a>,
    pidfd: Option<std::os::fd::OwnedFd>,
}

impl<'a> Daemon<'a> {
    fn new(peer: Peer<'a>) -> Self {
        let pidfd = peer.pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Daemon { peer, pidfd }
    }

    /// Waits for it to exit; without a limit, indefinitely.
    fn wait(&self, mount: &MountPoint, limit: Option<Duration>) -> Result<()> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if self.ended(left.unwrap_or(Duration::from_secs(3600))) {
                return Ok(());
            }
            if left.is_some_and(|left| left.is_zero()) {
                let pid =
                    self.peer.pid.map_or(String::new(), |pid| format!(" (pid {})", pid.as_raw_nonzero()));
                let path = mount.path().display();
                return Err(Failure::new(
                    Code::Timeout,
                    format_args!(
                        "{path} is unmounted, but its daemon{pid} has not finished its last commit; wait until it exits"
                    ),
                ));
            }
        }
    }

    /// Reports whether it exits within `time`.
    fn ended(&self, time: Duration) -> bool {
        let Some(pidfd) = &self.pidfd else {
            // A daemon in another PID namespace has no pidfd; its socket disappears when it exits.
            let has_exited = !self.peer.is_alive();
            if !has_exited {
                std::thread::sleep(time.min(Duration::from_millis(50)));
            }
            return has_exited;
        };
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        // An interrupted poll counts as not ended yet.
        poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&time)).is_ok_and(|ready| ready > 0)
    }
}
