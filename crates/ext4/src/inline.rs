//! Inline directories: small directories whose entries are stored in the inode.

use crate::directory::{self, Entry};
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};

/// Size of the parent's inode number, which comes first; there are no entries for `.` and `..`.
const PARENT_BYTES: usize = 4;

/// Bytes of entries in the inode's block map area. Further entries, stored separately, are in an extended attribute.
const MAP_AREA_BYTES: usize = 60;

pub(crate) fn list(
    filesystem: &Filesystem,
    inode: &Inode,
    offset: u64,
    mut take: impl FnMut(Entry) -> bool,
) -> Result<()> {
    let content = filesystem.inline(inode)?;
    let parent = u32::from_le_bytes(content[..PARENT_BYTES].try_into().expect("four bytes"));
    let kind = Some(Kind::Directory);
    let dots = [
        Entry { name: b".".to_vec(), inode: inode.number, kind, next: 1 },
        Entry { name: b"..".to_vec(), inode: parent, kind, next: 2 },
    ];
    for dot in dots {
        if offset < dot.next && !take(dot) {
            return Ok(());
        }
    }
    for (start, part) in
        [(PARENT_BYTES, &content[PARENT_BYTES..MAP_AREA_BYTES]), (MAP_AREA_BYTES, &content[MAP_AREA_BYTES..])]
    {
        let completed = directory::entries(part, &filesystem.geometry, inode).for_each_used(
            start as u64,
            offset,
            &mut take,
        );
        if !completed.map_err(|corruption| corruption.inode(inode.number))? {
            return Ok(());
        }
    }
    Ok(())
}
