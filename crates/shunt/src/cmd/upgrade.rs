//! `shunt upgrade`: hands a mount over to another program, and waits until that serves it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::print;
use crate::cli::UpgradeArgs;
use crate::control::{self, SocketDir, SocketName};
use crate::error::{Code, Failure, Result, failed};
use crate::own_mounts;
use crate::report::{Stat, Upgraded};

/// The new program has ten seconds to take over, and so has the old one if the new one fails.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub fn run(mountpoint: &Path, args: &UpgradeArgs) -> Result<()> {
    let upgraded = hand_over(mountpoint, &binary(args.binary.as_deref())?)?;
    print(match args.json {
        true => serde_json::to_string_pretty(&upgraded).map_err(failed)? + "\n",
        false => line(&upgraded),
    })
}

/// Hands one mount over to `binary`, and waits until that serves it.
///
/// # Errors
/// The path is not a mount of Shunt, its daemon refuses, or the new program does not take over.
pub(super) fn hand_over(mountpoint: &Path, binary: &Path) -> Result<Upgraded> {
    let path = mountpoint.display();
    let (mount, info) = own_mounts::find(mountpoint)?;
    let dirs = own_mounts::owner(&info).map(SocketDir::of).unwrap_or_default();
    let name = SocketName::of(&mount);
    let cannot = |error| failed(format_args!("cannot upgrade {path}: {error}"));
    let peer =
        control::find(&dirs, &name).map_err(cannot)?.ok_or_else(|| match own_mounts::owner(&info) {
            Some(owner) if dirs.is_empty() => Failure::new(
                Code::Privilege,
                format_args!("{path} was mounted by user {owner}: upgrade it as that user or as root"),
            ),
            _ => failed(format_args!(
                "no daemon serves {path}: remove the dead mount with `shunt umount {path}`"
            )),
        })?;
    let before = peer.stat().map_err(cannot)?;
    peer.upgrade(binary).map_err(cannot)?;
    let now = || control::find(&dirs, &name).ok().flatten()?.stat().ok();
    let after = wait(&before, now).ok_or_else(|| {
        let seconds = UPGRADE_TIMEOUT.as_secs();
        match mount.is_mounted() {
            true => failed(format_args!("no daemon took over {path} within {seconds} seconds")),
            false => failed(format_args!("no daemon could take over {path}: it is unmounted")),
        }
    })?;
    let took_over = after.takeover.clone().unwrap_or_default();
    if took_over.cause == "failed upgrade" {
        return Err(failed(format_args!(
            "{} did not take over {path}: version {} (pid {}) continues after {:.1} ms",
            binary.display(),
            after.version,
            after.pid,
            took_over.pause_ms
        )));
    }
    Ok(Upgraded {
        mountpoint: after.mountpoint,
        binary: binary.to_string_lossy().into_owned(),
        old_version: before.version,
        version: after.version,
        old_pid: before.pid,
        pid: after.pid,
        pause_ms: took_over.pause_ms,
        takeovers: after.takeovers,
    })
}

pub(super) fn line(upgraded: &Upgraded) -> String {
    let Upgraded { mountpoint, old_version, version, pid, pause_ms, .. } = upgraded;
    let mountpoint = crate::text::printable(mountpoint);
    format!(
        "shunt: {mountpoint} is served by version {version} (pid {pid}), previously {old_version}: pause {pause_ms:.1} ms\n"
    )
}

/// The absolute path of the program.
pub(super) fn binary(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe().map_err(|error| {
            failed(format_args!("cannot find the path of this binary: {error}; name it with --binary"))
        })?,
    };
    let cannot = |error| failed(format_args!("cannot run {}: {error}", path.display()));
    fs::canonicalize(&path).map_err(cannot)
}

/// Waits for the daemon that took over. A program that fails to do so never serves, and so is never found.
fn wait(before: &Stat, now: impl Fn() -> Option<Stat>) -> Option<Stat> {
    let end = Instant::now() + UPGRADE_TIMEOUT;
    while Instant::now() < end {
        match now() {
            // It reports how it took over once it serves.
            Some(stat) if stat.takeovers > before.takeovers && stat.takeover.is_some() => return Some(stat),
            _ => thread::sleep(POLL_INTERVAL),
        }
    }
    None
}
