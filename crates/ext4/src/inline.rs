//! Small directories whose entries lie in the inode.

use crate::directory::{Entries, Entry};
use crate::error::{Corruption, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};

/// The parent's number comes first; there are no entries for `.` and `..`.
const PARENT: usize = 4;

/// Entries lie in the first sixty bytes and, apart from them, in an attribute.
const OWN: usize = 60;

pub(crate) fn list(
    filesystem: &Filesystem,
    inode: &Inode,
    offset: u64,
    mut take: impl FnMut(Entry) -> bool,
) -> Result<()> {
    let content = filesystem.inline(inode)?;
    let parent = u32::from_le_bytes(content[..PARENT].try_into().expect("four bytes"));
    let directory = Some(Kind::Directory);
    let dots = [
        Entry { name: b".".to_vec(), inode: inode.number, kind: directory, next: 1 },
        Entry { name: b"..".to_vec(), inode: parent, kind: directory, next: 2 },
    ];
    for dot in dots {
        if offset < dot.next && !take(dot) {
            return Ok(());
        }
    }
    for (start, part) in [(PARENT, &content[PARENT..OWN]), (OWN, &content[OWN..])] {
        for entry in Entries::new(part, &filesystem.geometry) {
            let entry = entry.map_err(|corruption: Corruption| corruption.inode(inode.number))?;
            let at = start as u64;
            if entry.inode == 0 || at + entry.start < offset {
                continue;
            }
            let next = at + entry.end;
            let entry = Entry { name: entry.name.to_vec(), inode: entry.inode, kind: entry.kind, next };
            if !take(entry) {
                return Ok(());
            }
        }
    }
    Ok(())
}
