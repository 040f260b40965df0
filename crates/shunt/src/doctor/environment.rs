//! The clock, and the space for caches.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Product::Volume;
use super::mounts::{Mounts, statfs};
use super::{Finding, Level, probes};
use crate::text::{bytes, shell_quoted};
use crate::xdg;

/// 2025-01-01: an earlier clock was never set.
const EARLIEST_TIME: Duration = Duration::from_secs(1_735_689_600);
/// Free bytes below which writes to a cache may soon fail.
const MIN_FREE_BYTES: u64 = 1 << 30;
/// Share of the disk that must be free likewise.
const MIN_FREE_PERCENT: u64 = 2;

pub fn check(mounts: &Mounts) -> Vec<Finding> {
    let mut dirs = vec![xdg::cache().join("shunt/volumes")];
    dirs.extend(mounts.volume_caches());
    dirs.dedup();
    let mut findings = vec![clock()];
    findings.extend(dirs.iter().map(|dir| space(dir)));
    findings
}

fn clock() -> Finding {
    let check = "environment.clock";
    if SystemTime::now().duration_since(UNIX_EPOCH).is_ok_and(|now| now < EARLIEST_TIME) {
        let effect = "certificates of gateways are refused, and history has wrong times";
        return Finding::new(Level::Error, check, "the clock was never set", &[Volume], effect)
            .fix("timedatectl set-ntp true, or date -s 'YYYY-MM-DD HH:MM:SS'");
    }
    match probes::clock_is_synchronised() {
        Some(false) => {
            let effect = "history has wrong times, and `shunt volume gc` refuses to run if clocks differ by more than 10 minutes";
            let message = "the kernel's clock is not synchronised by NTP";
            Finding::new(Level::Note, check, message, &[Volume], effect).fix("timedatectl set-ntp true")
        }
        _ => Finding::ok(check, "the clock is set"),
    }
}

/// The free space of the file system that a directory is on, or will be on when it is created.
fn space(dir: &Path) -> Finding {
    let check = "environment.cache_space";
    let existing: PathBuf =
        dir.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(dir).into();
    let shown = dir.display();
    let stat = match statfs(&existing) {
        Some(Ok(stat)) => stat,
        other => {
            let cause = other
                .and_then(Result::err)
                .map_or_else(|| "it does not answer".to_owned(), |e| e.to_string());
            let effect = "volumes cannot be mounted there";
            return Finding::new(Level::Warning, check, format!("{shown}: {cause}"), &[Volume], effect)
                .fix("name another directory with `shunt volume mount --cache DIR`");
        }
    };
    let (free, total) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
    let message = format!("{shown}: {} of {} free", bytes(free), bytes(total));
    let no_inodes = stat.f_files > 0 && stat.f_favail * 100 / stat.f_files < MIN_FREE_PERCENT;
    if no_inodes {
        let effect = "new files in volumes fail with ENOSPC";
        let message = format!("{shown}: {} of {} inodes free", stat.f_favail, stat.f_files);
        return Finding::new(Level::Warning, check, message, &[Volume], effect).fix(format!(
            "du --inodes -xd1 {} shows which directory has most",
            shell_quoted(&existing.to_string_lossy())
        ));
    }
    if free < MIN_FREE_BYTES.min(total / 5) || free * 100 / total.max(1) < MIN_FREE_PERCENT {
        let effect = "cached files are evicted early, and writes to volumes fail with ENOSPC";
        return Finding::new(Level::Warning, check, message, &[Volume], effect)
            .fix("free space there, or mount with --cache DIR on another disk or a smaller --cache-size");
    }
    Finding::ok(check, message)
}
