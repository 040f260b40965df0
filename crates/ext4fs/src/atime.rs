//! Access times: which reads update them, and the updates that are not yet in the image (`lazytime`). Reads that the daemon
//! serves are recorded here; the times of the kernel's direct reads come from the module's files. Lazy updates stay with the
//! lookup counts until fsync, syncfs, a FORGET or the end of the mount.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Inode, Kind, Time};
use shunt_fuse::{Errno, Timestamp};

use crate::Ext4;
use crate::setattr::time;

const DAY_SECONDS: i64 = 86_400;

/// Policy for the reads that update the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// No read updates it.
    Never,
    /// Reads since the last change update it, and at least one a day.
    #[default]
    Relative,
    /// All reads that reach the daemon update it: the kernel requests a file's content once after each open.
    Strict,
}

/// Access time options: `noatime`, `relatime`, `strictatime`, `nodiratime` and `lazytime` of mount(8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTimes {
    /// Policy for the reads that count.
    pub atime: Atime,
    /// Listing a directory does not count as a read (`nodiratime`).
    pub not_of_directories: bool,
    /// Updates stay in memory until the inode is synced, the kernel forgets it, the file system is synced or the mount ends
    /// (`lazytime`).
    pub lazy: bool,
}

impl ReadTimes {
    /// Reports whether a read at `now` updates an access time of `inode.atime`.
    fn moves(self, inode: &Inode, now: Time) -> bool {
        if inode.flags.contains(InodeFlags::NOATIME)
            || self.not_of_directories && inode.kind == Kind::Directory
        {
            return false;
        }
        let atime = inode.atime;
        match self.atime {
            Atime::Never => false,
            Atime::Strict => atime != now,
            Atime::Relative => {
                atime <= inode.mtime || atime <= inode.ctime || now.seconds - atime.seconds >= DAY_SECONDS
            }
        }
    }
}

impl Ext4 {
    /// Reports whether each open and the reads after it must reach the daemon (`strictatime`).
    pub(crate) fn sees_all_reads(&self) -> bool {
        self.is_writable() && self.read_times.atime == Atime::Strict
    }

    /// Reports whether access times may be newer in memory than in the image (`lazytime`).
    fn is_lazy(&self) -> bool {
        self.is_writable() && self.read_times.lazy
    }

    /// Returns the inode with its latest access time.
    pub(crate) fn with_pending_atime(&self, mut inode: Inode) -> Inode {
        inode.atime = self.pending_atime(inode.number).unwrap_or(inode.atime);
        inode
    }

    /// Returns an access time that is not yet in the image.
    pub(crate) fn pending_atime(&self, number: u32) -> Option<Time> {
        if self.is_lazy() { self.lookup_counts.atime(number) } else { None }
    }

    /// Updates the access time of a file or directory that was read.
    pub(crate) fn note_read(&self, inode: &Inode) {
        if self.is_writable() {
            self.note_read_at(inode, time(Timestamp::now()));
        }
    }

    /// Applies the policy to a read at `now`. Returns whether that is the access time from here on.
    fn note_read_at(&self, inode: &Inode, now: Time) -> bool {
        let moves = self.read_times.moves(inode, now);
        if moves && !(self.is_lazy() && self.lookup_counts.record_atime(inode.number, now)) {
            // A failed update does not fail the read.
            let _ = self.store_atime(inode.number, now);
        }
        moves
    }

    /// Updates the access time for direct reads of the kernel. `inode` has the kernel's size and times except for that.
    pub(crate) fn record_direct_read(&self, inode: &mut Inode) {
        let Some(writing) = &self.writing else { return };
        writing.with_read_time(inode.number, |read| {
            // Another read may have been recorded since `inode` was loaded.
            if let Ok(now) = self.filesystem.inode(inode.number) {
                inode.atime = self.with_pending_atime(now).atime;
            }
            if let Some(read) = read
                && self.note_read_at(inode, read)
            {
                inode.atime = read;
            }
        });
    }

    /// Counts a listing that is requested in several parts as one read.
    pub(crate) fn note_listing(&self, directory: &Inode, offset: u64) {
        if offset == 0 {
            self.note_read(directory);
        }
    }

    /// Discards reads that were recorded before the access time was set explicitly.
    pub(crate) fn drop_pending_atime(&self, number: u32) {
        if let Some(writing) = &self.writing {
            writing.with_read_time(number, drop);
        }
        if self.is_lazy() {
            self.lookup_counts.take_atime(number);
        }
    }

    /// Writes the lazy access time of an inode to the image.
    pub(crate) fn flush_atime(&self, number: u32) -> Result<(), Errno> {
        let read = if self.is_lazy() { self.lookup_counts.take_atime(number) } else { None };
        read.map_or(Ok(()), |time| self.store_atime(number, time))
    }

    /// Writes the lazy access times of all inodes to the image.
    pub(crate) fn flush_atimes(&self) -> Result<(), Errno> {
        let reads = if self.is_lazy() { self.lookup_counts.take_atimes() } else { Vec::new() };
        reads.into_iter().try_for_each(|(number, time)| self.store_atime(number, time))
    }

    pub(crate) fn store_atime(&self, number: u32, time: Time) -> Result<(), Errno> {
        match self.filesystem.set_read_time(number, time) {
            // The inode was freed in between.
            Err(shunt_ext4::Error::NotFound) => Ok(()),
            // After a failed commit nothing can be stored.
            Err(shunt_ext4::Error::ReadOnly) => Ok(()),
            stored => self.to_errno(stored),
        }
    }
}
