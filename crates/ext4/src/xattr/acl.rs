//! ACLs: shorter on the disk than in the system call.

use crate::error::{Corruption, Result};

/// Version of the form on the disk.
const STORED: u32 = 1;
/// Version of the form of `getxattr(2)`.
const SHOWN: u32 = 2;

/// Tags of entries that name a user or a group.
const NAMED: [u16; 2] = [0x02, 0x08];
/// Tags of entries that do not.
const UNNAMED: [u16; 4] = [0x01, 0x04, 0x10, 0x20];
/// The id of an entry without one.
const NOBODY: u32 = u32::MAX;

/// From the form on the disk to that of `getxattr(2)`.
pub(super) fn to_xattr(stored: &[u8]) -> Result<Vec<u8>> {
    let wrong = || Corruption::new("an ACL that cannot be").into();
    let Some((version, mut rest)) = stored.split_first_chunk() else { return Err(wrong()) };
    if u32::from_le_bytes(*version) != STORED {
        return Err(wrong());
    }
    let mut shown = SHOWN.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let Some((&[t0, t1, p0, p1], after)) = rest.split_first_chunk() else { return Err(wrong()) };
        rest = after;
        let tag = u16::from_le_bytes([t0, t1]);
        let id = if NAMED.contains(&tag) {
            let Some((id, after)) = rest.split_first_chunk() else { return Err(wrong()) };
            rest = after;
            u32::from_le_bytes(*id)
        } else if UNNAMED.contains(&tag) {
            NOBODY
        } else {
            return Err(wrong());
        };
        shown.extend([t0, t1, p0, p1]);
        shown.extend(id.to_le_bytes());
    }
    Ok(shown)
}
