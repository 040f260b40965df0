//! The effect of reads on access times of the source.

use shunt_fuse::mount::Atime;

/// Rules for access times, which the private copy of the source gets as mount options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadTimes {
    /// Rule for updating access times; `None` uses the options of the source's mount.
    pub atime: Option<Atime>,
    /// Access times of directories are not updated.
    pub nodiratime: bool,
}

impl ReadTimes {
    /// Reports whether reads never update access times.
    pub(super) fn never(self) -> bool {
        self.atime == Some(Atime::Never)
    }
}
