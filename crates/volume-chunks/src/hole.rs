//! Writes the holes of downloaded files.
//!
//! A file may contain data where its content has a hole: from an earlier version that was downloaded in part, or from one that
//! was deleted before a power failure and reappeared.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

const BLOCK_BYTES: usize = 1 << 18;

/// Zeroes a range of a file by punching a hole, or by writing zeros where the file system does not support that. The size does
/// not change.
///
/// # Errors
/// An [`io::Error`] of `fallocate(2)`, reading or writing.
pub(super) fn make(file: &File, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, how, range.start, range.end - range.start) {
        Err(Errno::OPNOTSUPP) => overwrite(file, range),
        done => done.map_err(io::Error::from),
    }
}

/// Writes zeros over non-zero bytes, on file systems without holes.
fn overwrite(file: &File, range: Range<u64>) -> io::Result<()> {
    let (mut block, mut at) = (vec![0; BLOCK_BYTES], range.start);
    while at < range.end {
        let limit = (range.end - at).min(BLOCK_BYTES as u64) as usize;
        let length = file.read_at(&mut block[..limit], at)?;
        if length == 0 {
            return Ok(());
        }
        if block[..length].iter().any(|byte| *byte != 0) {
            block[..length].fill(0);
            file.write_all_at(&block[..length], at)?;
        }
        at += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punched_range_reads_as_zeros_and_rest_is_kept() {
        for make in [make, overwrite] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&[7; 3 * BLOCK_BYTES], 0).unwrap();
            make(&file, 5..2 * BLOCK_BYTES as u64 + 1).unwrap();
            // Extends beyond the end of the file.
            make(&file, 3 * BLOCK_BYTES as u64 - 1..9 * BLOCK_BYTES as u64).unwrap();
            make(&file, 9..9).unwrap();
            let mut held = vec![1; 3 * BLOCK_BYTES + 1];
            assert_eq!(file.read_at(&mut held, 0).unwrap(), 3 * BLOCK_BYTES);
            let expected =
                |n: usize| if n < 5 || n > 2 * BLOCK_BYTES && n < 3 * BLOCK_BYTES - 1 { 7 } else { 0 };
            assert!(held[..3 * BLOCK_BYTES].iter().enumerate().all(|(n, byte)| *byte == expected(n)));
        }
    }
}
