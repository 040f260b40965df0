//! Modes, extended attributes, times.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, XattrFlags};

use super::{Kind, User};

pub const ATTRIBUTE: &str = "user.soak";

impl User<'_> {
    pub(super) fn set_mode(&mut self) -> io::Result<()> {
        let path = self.pick(|kind| kind != Kind::Link)?;
        let mode = 0o700 | self.rng.below(0o100) as u32;
        self.log(format_args!("chmod {mode:o} {path:?}"));
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    pub(super) fn set_attribute(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let value = [b'0' + self.rng.below(4) as u8];
        self.log(format_args!("xattr {value:?} {path:?}"));
        match value {
            [b'0'] => rustix::fs::removexattr(&path, ATTRIBUTE)?,
            _ => rustix::fs::setxattr(&path, ATTRIBUTE, &value, XattrFlags::empty())?,
        }
        Ok(())
    }

    /// Sets the time of a named file, or of one that has been open for some time.
    pub(super) fn set_time(&mut self) -> io::Result<()> {
        let last_modification = Timespec {
            tv_sec: self.rng.below(2_000_000_000) as i64,
            tv_nsec: self.rng.below(1_000_000_000) as _,
        };
        let times =
            Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification };
        let time = format!("{}.{:09}", last_modification.tv_sec, last_modification.tv_nsec);
        if self.rng.below(4) == 0 && !self.open.is_empty() {
            let handle = &self.open[self.rng.below(self.open.len())];
            self.log(format_args!("sets the time {time} of {:?}, which is open", handle.path));
            rustix::fs::futimens(&handle.file, &times)?;
        } else {
            let path = self.pick(|_| true)?;
            self.log(format_args!("sets the time {time} of {path:?}"));
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}
