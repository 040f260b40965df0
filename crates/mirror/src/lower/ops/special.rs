//! Inode flag and project ioctls, which `chattr`, `lsattr` and quota tools use.

use std::os::fd::AsFd;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::{Lower, sys};

/// Commands that are passed through: number, argument size in bytes, whether it changes something.
///
/// Only commands that the kernel handles itself instead of forwarding unchecked: it checks that the caller owns the
/// inode and may set the value, and then sends its own request. The daemon could not check that, as it has all rights.
/// The numbers that 32-bit programs use for the flag commands are excluded: the kernel translates them for such a
/// program, but forwards them unchecked for any other.
///
/// The flag commands are declared with a `long` and carry an `int`.
const FORWARDED_COMMANDS: [(u32, usize, bool); 4] = [
    (0x8008_6601, 4, false),  // FS_IOC_GETFLAGS
    (0x4008_6602, 4, true),   // FS_IOC_SETFLAGS
    (0x801c_581f, 28, false), // FS_IOC_FSGETXATTR
    (0x401c_5820, 28, true),  // FS_IOC_FSSETXATTR
];

impl Lower {
    /// Runs an ioctl on an open file (`handle`) or, without one, on an inode. Returns the output of the command, at
    /// most `room` bytes.
    ///
    /// # Errors
    /// ENOTTY for commands that are not passed through, EWOULDBLOCK while another process holds a lease on the file, or
    /// the error of the lower file system.
    pub(crate) fn ioctl(
        &self,
        id: NodeId,
        handle: Option<u64>,
        command: u32,
        data: &[u8],
        room: usize,
    ) -> Result<(i32, Vec<u8>), Errno> {
        let &(command, size, changes) =
            FORWARDED_COMMANDS.iter().find(|forwarded| forwarded.0 == command).ok_or(Errno::NOTTY)?;
        if changes {
            self.writable()?;
            // The kernel's own request has exactly this size; a caller's would have that of the declared type.
            if data.len() != size {
                return Err(Errno::NOTTY);
            }
        }
        let mut buffer = [0u64; sys::MAX_IOCTL_BYTES / 8];
        for (word, bytes) in buffer.iter_mut().zip(data[..data.len().min(size)].chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        let result = match handle.and_then(|handle| self.files.get_of(id, handle)) {
            Some(file) => sys::ioctl_buffer(file.as_fd(), command, &mut buffer)?,
            None => {
                let flags = match self.node(id)?.kind {
                    FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
                    FileType::RegularFile => OFlags::RDONLY | OFlags::NONBLOCK,
                    _ => return Err(Errno::NOTTY),
                };
                sys::ioctl_buffer(self.reopen(id, flags)?.as_fd(), command, &mut buffer)?
            }
        };
        let mut answer: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
        answer.truncate(if changes { 0 } else { size.min(room) });
        Ok((result, answer))
    }
}
