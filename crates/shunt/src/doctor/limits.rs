//! Resource limits of this process, which daemons started from here inherit, and limits of the kernel per user.

use rustix::process::{Resource, getrlimit};

use super::Product::{Ext4, Mirror, Volume};
use super::{Finding, Level, number, sysctl};
use crate::text::bytes;

/// Open files of a daemon below which programs soon see ENFILE.
const MIN_OPEN_FILES: u64 = 16_384;
/// The recommended limit of open files, systemd's default hard limit.
const WANTED_OPEN_FILES: u64 = 524_288;
/// Directories that inotify should be able to watch.
const MIN_INOTIFY_WATCHES: u64 = 65_536;
const WANTED_INOTIFY_WATCHES: u64 = 1_048_576;
/// The kernel's default.
const MIN_INOTIFY_INSTANCES: u64 = 128;
/// Locked memory of a daemon with `--mlock`, in bytes.
const MIN_LOCKED_BYTES: u64 = 64 << 20;

pub fn check() -> Vec<Finding> {
    vec![open_files(), locked_memory(), inotify_watches(), inotify_instances()]
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

fn open_files() -> Finding {
    let check = "limits.open_files";
    let limit = getrlimit(Resource::Nofile);
    let message = format!("RLIMIT_NOFILE is {} (hard {})", shown(limit.current), shown(limit.maximum));
    // A daemon raises its soft limit to the hard one.
    if limit.maximum.is_none_or(|hard| hard >= MIN_OPEN_FILES) {
        return Finding::ok(check, message);
    }
    let effect = "opens fail with ENFILE when programs hold many files of a mount open; caches of directories are smaller";
    Finding::new(Level::Warning, check, message, &[Mirror, Volume], effect).fix(format!(
        "ulimit -Hn {WANTED_OPEN_FILES} (as root), LimitNOFILE={WANTED_OPEN_FILES} in a systemd unit, or `* hard nofile \
         {WANTED_OPEN_FILES}` in /etc/security/limits.conf"
    ))
}

fn locked_memory() -> Finding {
    let check = "limits.memlock";
    let limit = getrlimit(Resource::Memlock).current;
    let text = limit.map_or_else(|| "unlimited".to_owned(), bytes);
    let message = format!("RLIMIT_MEMLOCK is {text}");
    if limit.is_none_or(|soft| soft >= MIN_LOCKED_BYTES) || rustix::process::geteuid().is_root() {
        return Finding::ok(check, message);
    }
    Finding::new(Level::Note, check, message, &[Ext4], "--mlock is refused")
        .fix("ulimit -l unlimited (as root), or LimitMEMLOCK=infinity in a systemd unit")
}

fn inotify_watches() -> Finding {
    let check = "limits.inotify_watches";
    let name = "fs.inotify.max_user_watches";
    let Some(limit) = number("/proc/sys/fs/inotify/max_user_watches") else {
        return Finding::ok(check, format!("{name} is not known"));
    };
    let message = format!("{name} is {limit}");
    if limit >= MIN_INOTIFY_WATCHES {
        return Finding::ok(check, message);
    }
    let effect = "where fanotify is not available, changes in further directories are seen after 1 s instead of 100 ms";
    Finding::new(Level::Warning, check, message, &[Mirror], effect).fix(sysctl(name, WANTED_INOTIFY_WATCHES))
}

fn inotify_instances() -> Finding {
    let check = "limits.inotify_instances";
    let name = "fs.inotify.max_user_instances";
    let Some(limit) = number("/proc/sys/fs/inotify/max_user_instances") else {
        return Finding::ok(check, format!("{name} is not known"));
    };
    let message = format!("{name} is {limit}");
    if limit >= MIN_INOTIFY_INSTANCES {
        return Finding::ok(check, message);
    }
    let effect =
        "where fanotify is not available, further mounts of the same user cannot watch their sources";
    Finding::new(Level::Warning, check, message, &[Mirror], effect).fix(sysctl(name, MIN_INOTIFY_INSTANCES))
}
