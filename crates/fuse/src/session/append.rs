//! Appends that are executed once: an append has no offset that would make it idempotent.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::WriteData;
use crate::session::Request;

/// Appends data to a file, less the part that an earlier server has appended for the same request. Calls
/// [`begin`](Request::begin). The kernel must make one change of the file at a time, as it does for appends through a mount.
///
/// # Errors
/// The errors of `write(2)` and `pread(2)`.
pub fn append_once(request: &Request<'_>, file: BorrowedFd<'_>, data: WriteData<'_>) -> Result<usize, Errno> {
    request.begin(|| Ok([size(file)?, 0, 0, 0]))?;
    let Some(begun) = request.begun() else { return data.append_to(file) };
    let start = begun.before[0];
    let bytes = data.into_bytes()?;
    let there = size(file)?.saturating_sub(start).min(bytes.len() as u64) as usize;
    let (done, rest) = bytes.split_at(if is_at(file, start, &bytes[..there])? { there } else { 0 });
    if rest.is_empty() {
        return Ok(done.len());
    }
    match WriteData::slice(rest).append_to(file) {
        Err(_) if !done.is_empty() => Ok(done.len()),
        appended => Ok(done.len() + appended?),
    }
}

fn size(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0))
}

/// Reports whether the file contains these bytes at this offset.
fn is_at(file: BorrowedFd<'_>, offset: u64, bytes: &[u8]) -> Result<bool, Errno> {
    let mut found = vec![0; bytes.len()];
    let mut done = 0;
    while done < found.len() {
        match rustix::io::pread(file, &mut found[done..], offset + done as u64) {
            Ok(0) => return Ok(false),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            // The file is open for writing only and cannot be compared: trust the size.
            Err(Errno::BADF) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
    Ok(found == bytes)
}
