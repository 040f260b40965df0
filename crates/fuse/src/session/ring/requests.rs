//! Classification of requests by their header, before they are parsed.

use shunt_fuse_abi::{GetattrFlags, GetattrIn, InHeader, LkIn, Opcode, Wire};

/// Reports whether a request is mostly sent for regular files. GETATTR carries an open file only before a read, write or seek in
/// it.
pub(super) fn is_of_regular_file(header: &InHeader, message: &[u8]) -> bool {
    use Opcode::{
        CopyFileRange, Fallocate, Flush, Fsync, Getattr, Lseek, Open, Read, Release, Setlkw, Write,
    };
    match Opcode::from_raw(header.opcode) {
        Some(CopyFileRange | Fallocate | Flush | Fsync | Lseek | Open | Read | Release | Setlkw | Write) => {
            true
        }
        Some(Getattr) => {
            message.get(InHeader::SIZE..).and_then(GetattrIn::read_from_prefix).is_some_and(|(arg, _)| {
                GetattrFlags::from_bits_retain(arg.getattr_flags).contains(GetattrFlags::FH)
            })
        }
        _ => false,
    }
}

/// Reports whether a request may wait for a lock. Unlocking by `flock` has the same opcode.
pub(super) fn waits_for_lock(header: &InHeader, message: &[u8]) -> bool {
    header.opcode == Opcode::Setlkw.as_raw()
        && message
            .get(InHeader::SIZE..)
            .and_then(LkIn::read_from_prefix)
            .is_none_or(|(arg, _)| arg.lk.r#type != libc::F_UNLCK as u32)
}
