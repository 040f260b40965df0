//! Loop devices.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::cmd::{Ran, run, within};
use crate::turn;

/// Runs a `losetup` or `mount` that takes a loop device, one at a time, and for ten seconds as long as that is busy.
///
/// The kernel claims a device for itself before it looks whether that is free. Where two programs were given the same free
/// device, the slower one is refused, and meanwhile the faster one cannot mount its own. And what was unmounted just now stays
/// in the mount namespaces that others are just making, until they have left the tree that they were made with.
pub fn set_up(command: &mut Command) -> Ran {
    while_busy(|| {
        let _turn = turn::alone("loops");
        run(command)
    })
}

/// Runs a program that takes a device, for ten seconds as long as that is in use.
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

/// Whether a device is over a file.
///
/// # Panics
/// Where `/sys` does not tell.
pub fn is_over(file: &Path) -> bool {
    let devices = std::fs::read_dir("/sys/block").expect("/sys/block");
    devices.flatten().any(|device| {
        let of = std::fs::read(device.path().join("loop/backing_file"));
        of.is_ok_and(|path| path.trim_ascii_end() == file.as_os_str().as_bytes())
    })
}

/// A block device over a file, for as long as this lives.
#[derive(Debug)]
pub struct Loop(String);

impl Loop {
    /// `None` where there can be none.
    pub fn over(file: &Path) -> Option<Self> {
        let ran = set_up(Command::new("losetup").args(["-f", "--show"]).arg(file));
        ran.success().then(|| Self(ran.out.trim().to_owned()))
    }

    /// Its path.
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
