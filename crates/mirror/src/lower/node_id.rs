//! Node ids that encode the lower inode.
//!
//! | bits, from the highest | encodes | used for |
//! |---|---|---|
//! | 1, 32 generation, 31 number | the lower inode | the source's own file system |
//! | 01, 4 mount, 32 generation, 26 number | the lower inode | the first [`MAX_ENCODED_MOUNTS`] mounts seen below the source |
//! | below 2^61 | a slot of the node table | everything else |
//!
//! The number comes last because tables hash by the lowest bits, which are spread evenly there. An id of the first two
//! kinds is enough to build the lower file handle when the inode is not in the node table.

use shunt_fuse::NodeId;

const SOURCE_MOUNT_BIT: u64 = 1 << 63;

/// Exclusive bound on the inode numbers of the source that an id can encode.
const SOURCE_INO_BOUND: u64 = 1 << 31;

const SUBMOUNT_BIT: u64 = 1 << 62;

/// Limit on the mounts below the source whose inodes an id can encode.
pub(crate) const MAX_ENCODED_MOUNTS: u16 = 15;

/// Exclusive bound on the inode numbers of these mounts.
const SUBMOUNT_INO_BOUND: u64 = 1 << 26;

/// The lower inode that an id encodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ident {
    /// Index of the mount.
    pub mount: u16,
    /// Inode number.
    pub ino: u64,
    /// Generation: distinguishes the inodes that had this number.
    pub generation: u32,
}

impl Ident {
    /// Encodes the id; `None` if a field is too large.
    pub(crate) fn id(self) -> Option<NodeId> {
        let Self { mount, ino, generation } = self;
        match mount {
            0 if ino < SOURCE_INO_BOUND => Some(NodeId(SOURCE_MOUNT_BIT | u64::from(generation) << 31 | ino)),
            1..=MAX_ENCODED_MOUNTS if ino < SUBMOUNT_INO_BOUND => {
                Some(NodeId(SUBMOUNT_BIT | u64::from(mount) << 58 | u64::from(generation) << 26 | ino))
            }
            _ => None,
        }
    }

    /// Decodes an id.
    pub(crate) fn of(id: NodeId) -> Option<Self> {
        if id.0 & SOURCE_MOUNT_BIT != 0 {
            return Some(Self { mount: 0, ino: id.0 % SOURCE_INO_BOUND, generation: (id.0 >> 31) as u32 });
        }
        let mount = (id.0 >> 58) as u16 & MAX_ENCODED_MOUNTS;
        let ident = Self { mount, ino: id.0 % SUBMOUNT_INO_BOUND, generation: (id.0 >> 26) as u32 };
        (id.0 & SUBMOUNT_BIT != 0 && mount != 0).then_some(ident)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_decodes_to_the_encoded_inode() {
        for (ino, generation) in [(1, 0), (2, 7), (SOURCE_INO_BOUND - 1, u32::MAX)] {
            let ident = Ident { mount: 0, ino, generation };
            assert_eq!(Ident::of(ident.id().unwrap()), Some(ident));
        }
        for (mount, ino, generation) in
            [(1, 1, 0), (MAX_ENCODED_MOUNTS, SUBMOUNT_INO_BOUND - 1, u32::MAX), (7, 2, 1 << 31)]
        {
            let ident = Ident { mount, ino, generation };
            assert_eq!(Ident::of(ident.id().unwrap()), Some(ident));
        }
        assert_eq!(Ident { mount: 0, ino: SOURCE_INO_BOUND, generation: 0 }.id(), None);
        assert_eq!(Ident { mount: 1, ino: SUBMOUNT_INO_BOUND, generation: 0 }.id(), None);
        assert_eq!(Ident { mount: MAX_ENCODED_MOUNTS + 1, ino: 2, generation: 0 }.id(), None);
        assert_eq!(Ident::of(NodeId(SUBMOUNT_BIT | 2)), None);
        assert_eq!(Ident::of(NodeId::ROOT), None);
    }
}
