//! The times of last reads.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Inode, Kind, Time};
use shunt_fuse::{Errno, Timestamp};

use crate::Ext4;
use crate::setattr::time;

const DAY: i64 = 86_400;

/// Which reads move the time of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// None.
    Never,
    /// Those since the last change, and one a day.
    #[default]
    Relative,
    /// All that are asked for: a file's content is asked for once after each time it is opened.
    Strict,
}

/// How reads are noted: `noatime`, `relatime`, `strictatime`, `nodiratime` and `lazytime` of mount(8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTimes {
    /// Which reads.
    pub atime: Atime,
    /// Listing a directory is no read.
    pub not_of_directories: bool,
    /// Kept in memory until the inode is synced or forgotten by the kernel, all are, or the mount goes.
    pub lazy: bool,
}

impl ReadTimes {
    /// Whether a read at `now` is to be noted where the last one that is known was at `inode.atime`.
    fn moves(self, inode: &Inode, now: Time) -> bool {
        if inode.flags.contains(InodeFlags::NOATIME)
            || self.not_of_directories && inode.kind == Kind::Directory
        {
            return false;
        }
        let known = inode.atime;
        match self.atime {
            Atime::Never => false,
            Atime::Strict => known != now,
            Atime::Relative => {
                known <= inode.mtime || known <= inode.ctime || now.seconds - known.seconds >= DAY
            }
        }
    }
}

impl Ext4 {
    /// Each open is to be seen, and what is read after it.
    pub(crate) fn sees_all_reads(&self) -> bool {
        self.is_writable() && self.read_times.atime == Atime::Strict
    }

    /// Whether the time of an inode's last read may be known here alone.
    fn is_lazy(&self) -> bool {
        self.is_writable() && self.read_times.lazy
    }

    /// The inode with the time of its last read.
    pub(crate) fn as_read(&self, mut inode: Inode) -> Inode {
        inode.atime = self.unstored_read(inode.number).unwrap_or(inode.atime);
        inode
    }

    /// When an inode was last read, where the image does not say.
    pub(crate) fn unstored_read(&self, number: u32) -> Option<Time> {
        if self.is_lazy() { self.known.read(number) } else { None }
    }

    /// A file or directory was read.
    pub(crate) fn note_read(&self, inode: &Inode) {
        if self.is_writable() {
            self.note_read_at(inode, time(Timestamp::now()));
        }
    }

    /// It was read then. Tells whether that is its time now.
    fn note_read_at(&self, inode: &Inode, now: Time) -> bool {
        let moves = self.read_times.moves(inode, now);
        if moves && !(self.is_lazy() && self.known.note_read(inode.number, now)) {
            // Who reads gets what there is to be read.
            let _ = self.store_read(inode.number, now);
        }
        moves
    }

    /// Notes what the kernel read by itself of a file. The inode is as the kernel knows it, but for that.
    pub(crate) fn note_read_past_us(&self, inode: &mut Inode) {
        let Some(writing) = &self.writing else { return };
        writing.noting(inode.number, |read| {
            // Somebody else may have noted one since the inode was looked at.
            if let Ok(now) = self.filesystem.inode(inode.number) {
                inode.atime = self.as_read(now).atime;
            }
            if let Some(read) = read
                && self.note_read_at(inode, read)
            {
                inode.atime = read;
            }
        });
    }

    /// A listing that is asked for in parts is one read.
    pub(crate) fn note_listing(&self, directory: &Inode, offset: u64) {
        if offset == 0 {
            self.note_read(directory);
        }
    }

    /// The time was set: what is known of reads before is of no more use.
    pub(crate) fn drop_read(&self, number: u32) {
        if let Some(writing) = &self.writing {
            writing.noting(number, drop);
        }
        if self.is_lazy() {
            self.known.take_read(number);
        }
    }

    /// Enters in the image when an inode was read, where that is known here alone.
    pub(crate) fn settle_read(&self, number: u32) -> Result<(), Errno> {
        let read = if self.is_lazy() { self.known.take_read(number) } else { None };
        read.map_or(Ok(()), |time| self.store_read(number, time))
    }

    /// As [`settle_read`](Self::settle_read), for all inodes.
    pub(crate) fn settle_reads(&self) -> Result<(), Errno> {
        let reads = if self.is_lazy() { self.known.take_reads() } else { Vec::new() };
        reads.into_iter().try_for_each(|(number, time)| self.store_read(number, time))
    }

    pub(crate) fn store_read(&self, number: u32, time: Time) -> Result<(), Errno> {
        match self.filesystem.set_read_time(number, time) {
            // Freed meanwhile.
            Err(shunt_ext4::Error::NotFound) => Ok(()),
            // After a commit failed nothing can be kept.
            Err(shunt_ext4::Error::ReadOnly) => Ok(()),
            stored => self.told(stored),
        }
    }
}
