//! A power cut as the kernel can play it.

use std::fs::File;
use std::path::Path;

/// `EXT4_IOC_SHUTDOWN`.
const SHUTDOWN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);

/// What becomes of the journal.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub enum Log {
    /// The running transaction is committed.
    Flush = 1,
    /// It is lost.
    Lose = 2,
}

/// From now on nothing reaches the image of this mount. It can only be unmounted.
pub fn shutdown(mnt: &Path, log: Log) {
    let root = File::open(mnt).unwrap();
    // SAFETY: the opcode takes a pointer to 32 bits, which it reads.
    unsafe { rustix::ioctl::ioctl(&root, rustix::ioctl::Setter::<SHUTDOWN, u32>::new(log as u32)) }.unwrap();
}
