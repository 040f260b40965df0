//! Commands to files: the flags and projects that `chattr`, `lsattr` and quota tools use.

use std::os::fd::AsFd;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::{Lower, sys};

/// Commands passed on: number, bytes of the argument, whether it changes something.
///
/// The flag commands are declared with a `long` and carry an `int`; 32-bit programs use the numbers that say so.
const PASSED: [(u32, u32, usize, bool); 6] = [
    (0x8008_6601, 0x8008_6601, 4, false),  // FS_IOC_GETFLAGS
    (0x8004_6601, 0x8008_6601, 4, false),  // FS_IOC32_GETFLAGS
    (0x4008_6602, 0x4008_6602, 4, true),   // FS_IOC_SETFLAGS
    (0x4004_6602, 0x4008_6602, 4, true),   // FS_IOC32_SETFLAGS
    (0x801c_581f, 0x801c_581f, 28, false), // FS_IOC_FSGETXATTR
    (0x401c_5820, 0x401c_5820, 28, true),  // FS_IOC_FSSETXATTR
];

impl Lower {
    /// An ioctl on an open file (`handle`) or, without one, on an inode. Answers what the command gives back, at most
    /// `room` bytes.
    ///
    /// # Errors
    /// ENOTTY for commands that are not passed on, and those of the lower file system.
    pub fn ioctl(
        &self,
        id: NodeId,
        handle: Option<u64>,
        command: u32,
        data: &[u8],
        room: usize,
    ) -> Result<(i32, Vec<u8>), Errno> {
        let &(_, command, size, changes) =
            PASSED.iter().find(|passed| passed.0 == command).ok_or(Errno::NOTTY)?;
        if changes {
            self.writable()?;
            if data.len() < size {
                return Err(Errno::INVAL);
            }
        }
        let mut buffer = [0u64; sys::IOCTL_ROOM / 8];
        for (word, bytes) in buffer.iter_mut().zip(data[..data.len().min(size)].chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        let result = match handle.and_then(|handle| self.files.get_of(id, handle)) {
            Some(file) => sys::ioctl_buffer(file.as_fd(), command, &mut buffer)?,
            None => {
                let flags = match self.nodes.get(id)?.kind {
                    FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
                    FileType::RegularFile => OFlags::RDONLY,
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
