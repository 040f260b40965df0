//! Finds the users of a busy mount, from /proc alone: no request is sent to the mount.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use shunt_fuse::mount::{MountPoint, unescape};

/// Limit of the users in one message.
const MAX_SHOWN_USERS: usize = 5;

/// A user of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process.
    Process {
        /// Its PID.
        pid: u32,
        /// Its name.
        name: String,
        /// The kind of use.
        what: &'static str,
    },
    /// A mount on top of it.
    Mount(PathBuf),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Process { pid, name, what } => write!(f, "{name} (pid {pid}: {what})"),
            Holder::Mount(path) => write!(f, "the mount {} on it", path.display()),
        }
    }
}

/// Some users of the mount, as far as this user may see them.
pub fn of(mount: &MountPoint) -> Vec<Holder> {
    let mut holders: Vec<Holder> =
        mounts_below(mount.old_id()).into_iter().map(|(_, path)| Holder::Mount(path)).collect();
    holders.extend(processes(mount).take(MAX_SHOWN_USERS));
    holders.truncate(MAX_SHOWN_USERS);
    holders
}

fn processes(mount: &MountPoint) -> impl Iterator<Item = Holder> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        if pid == std::process::id() {
            return None;
        }
        let proc = entry.path();
        let what = use_of(&proc, mount)?;
        let name = fs::read_to_string(proc.join("comm")).unwrap_or_default();
        Some(Holder::Process { pid, name: name.trim_end().to_owned(), what })
    })
}

fn use_of(proc: &Path, mount: &MountPoint) -> Option<&'static str> {
    let below = |link: &str| fs::read_link(proc.join(link)).is_ok_and(|path| path.starts_with(mount.path()));
    if below("cwd") {
        return Some("working directory");
    }
    if below("root") {
        return Some("root directory");
    }
    // By mount id and device, not by the path of a link: a stat of its target would send a request to the mount.
    if has_open(proc, mount.old_id()) {
        return Some("open file");
    }
    let dev = mount.dev();
    has_mapped(proc, dev.major, dev.minor).then_some("mapped file")
}

fn has_open(proc: &Path, mount_id: u64) -> bool {
    let entries = fs::read_dir(proc.join("fdinfo")).into_iter().flatten().flatten();
    entries.filter_map(|entry| fs::read_to_string(entry.path()).ok()).any(|info| {
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        id.and_then(|id| id.trim().parse().ok()) == Some(mount_id)
    })
}

fn has_mapped(proc: &Path, major: u32, minor: u32) -> bool {
    let Ok(maps) = fs::File::open(proc.join("maps")) else { return false };
    let device = format!("{major:02x}:{minor:02x}");
    // Fields: range, permissions, offset, device, inode, path. The path may contain any byte; the fields before it are ASCII.
    BufReader::new(maps)
        .split(b'\n')
        .map_while(Result::ok)
        .any(|line| line.split(|b| *b == b' ').nth(3) == Some(device.as_bytes()))
}

/// The mounts whose parent is this one, the latest first: id and path.
pub fn mounts_below(id: u64) -> Vec<(u64, PathBuf)> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u64>().ok();
    let below = table.split(|b| *b == b'\n').filter_map(|line| {
        let mut fields = line.split(|b| *b == b' ');
        let (own, parent) = (number(fields.next()?)?, number(fields.next()?)?);
        let path = unescape(fields.nth(2)?);
        (parent == id).then(|| (own, PathBuf::from(OsString::from_vec(path))))
    });
    let mut below: Vec<_> = below.collect();
    below.reverse();
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_root_is_seen_to_be_in_use() {
        let proc = Path::new("/proc/self");
        let file = fs::File::open("/proc/self/exe").unwrap();
        let info =
            fs::read_to_string(format!("/proc/self/fdinfo/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
        let id = info.unwrap().lines().find_map(|l| l.strip_prefix("mnt_id:")?.trim().parse().ok()).unwrap();
        assert!(has_open(proc, id));
        assert!(!has_open(proc, u64::MAX));
        assert!(!has_mapped(proc, 4095, 9999));
    }
}
