//! Simulated power failure of a kernel mount.

use std::fs::File;
use std::path::Path;

/// `EXT4_IOC_SHUTDOWN`.
const SHUTDOWN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);

/// Treatment of the running transaction.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub enum Log {
    /// The running transaction is committed.
    Flush = 1,
    /// The running transaction is lost.
    Lose = 2,
}

/// Stops all writes of a mount to its image. The mount can only be unmounted afterwards.
pub fn shutdown(mnt: &Path, log: Log) {
    let root = File::open(mnt).unwrap();
    // SAFETY: the opcode takes a pointer to 32 bits, which it reads.
    unsafe { rustix::ioctl::ioctl(&root, rustix::ioctl::Setter::<SHUTDOWN, u32>::new(log as u32)) }.unwrap();
}
