//! Loop devices.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::cmd::{Ran, run, within};
use crate::turn;

/// Runs a `losetup` or `mount` command that allocates a loop device, serialised with others, and retries for ten seconds while
/// the device is busy.
///
/// The kernel claims a device before it checks whether it is free. If two programs get the same free device, the slower one
/// fails, and meanwhile the faster one cannot mount its own. Besides, a mount that was just unmounted stays in mount namespaces
/// that others are just creating, until they have left the tree they were copied from.
pub fn set_up(command: &mut Command) -> Ran {
    while_busy(|| {
        let _turn = turn::lock_exclusive("loops");
        run(command)
    })
}

/// Runs a program that takes a device, and retries for ten seconds while the device is busy.
pub fn while_busy(mut take: impl FnMut() -> Ran) -> Ran {
    let mut ran = take();
    within(Duration::from_secs(10), || {
        let busy = !ran.success()
            && ["busy", "in use", "is the loop device"].iter().any(|word| ran.err.contains(word));
        if busy {
            ran = take();
        }
        !busy
    });
    ran
}

/// Reports whether any loop device is attached to a file.
///
/// # Panics
/// If `/sys` does not list the devices.
pub fn is_over(file: &Path) -> bool {
    let devices = std::fs::read_dir("/sys/block").expect("/sys/block");
    devices.flatten().any(|device| {
        let of = std::fs::read(device.path().join("loop/backing_file"));
        of.is_ok_and(|path| path.trim_ascii_end() == file.as_os_str().as_bytes())
    })
}

/// A loop device attached to a file, detached on drop.
#[derive(Debug)]
pub struct Loop(String);

impl Loop {
    /// Attaches a device; `None` if that is not possible.
    pub fn over(file: &Path) -> Option<Self> {
        let ran = set_up(Command::new("losetup").args(["-f", "--show"]).arg(file));
        ran.success().then(|| Self(ran.out.trim().to_owned()))
    }

    /// Returns its path.
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run(Command::new("losetup").args(["-d", &self.0]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_its_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 20).expect("room");
        assert!(!is_over(file.path()));
        let Some(device) = Loop::over(file.path()) else {
            return crate::skip::kernel_cannot("no loop device");
        };
        assert!(is_over(file.path()));
        drop(device);
        assert!(within(Duration::from_secs(10), || !is_over(file.path())));
    }
}
