//! Node ids that encode the lower inode.
//!
//! | bits, from the highest | encodes | used for |
//! |---|---|---|
//! | 1, 32 generation, 31 number | the lower inode | the source's own file system |
//! | 01, 4 mount, 32 generation, 26 number | the lower inode | the first [`MOUNTS`] mounts seen below the source |
//! | below 2^61 | a slot of the node table | everything else |
//!
//! The number comes last because tables hash by the lowest bits, which are spread evenly there. An id of the first two
//! kinds is enough to build the lower file handle when the inode is not in the node table.

use shunt_fuse::NodeId;

const OWN: u64 = 1 << 63;

/// Bound on the inode numbers that fit.
const NUMBERS: u64 = 1 << 31;

const BELOW: u64 = 1 << 62;

/// Limit on the mounts below the source whose inodes fit, and bound on their inode numbers.
pub const MOUNTS: u16 = 15;
const NUMBERS_BELOW: u64 = 1 << 26;

/// The lower inode that an id encodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ident {
    /// Index of the mount.
    pub mount: u16,
    /// Inode number.
    pub ino: u64,
    /// Generation: distinguishes the inodes that had this number.
    pub generation: u32,
}

impl Ident {
    /// Encodes the id; `None` if a field is too large.
    pub fn id(self) -> Option<NodeId> {
        let Self { mount, ino, generation } = self;
        match mount {
            0 if ino < NUMBERS => Some(NodeId(OWN | u64::from(generation) << 31 | ino)),
            1..=MOUNTS if ino < NUMBERS_BELOW => {
                Some(NodeId(BELOW | u64::from(mount) << 58 | u64::from(generation) << 26 | ino))
            }
            _ => None,
        }
    }

    /// Decodes an id.
    pub fn of(id: NodeId) -> Option<Self> {
        if id.0 & OWN != 0 {
            return Some(Self { mount: 0, ino: id.0 % NUMBERS, generation: (id.0 >> 31) as u32 });
        }
        let mount = (id.0 >> 58) as u16 & MOUNTS;
        let ident = Self { mount, ino: id.0 % NUMBERS_BELOW, generation: (id.0 >> 26) as u32 };
        (id.0 & BELOW != 0 && mount != 0).then_some(ident)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_say_what_they_were_made_of() {
        for (ino, generation) in [(1, 0), (2, 7), (NUMBERS - 1, u32::MAX)] {
            let ident = Ident { mount: 0, ino, generation };
            assert_eq!(Ident::of(ident.id().unwrap()), Some(ident));
        }
        for (mount, ino, generation) in [(1, 1, 0), (MOUNTS, NUMBERS_BELOW - 1, u32::MAX), (7, 2, 1 << 31)] {
            let ident = Ident { mount, ino, generation };
            assert_eq!(Ident::of(ident.id().unwrap()), Some(ident));
        }
        assert_eq!(Ident { mount: 0, ino: NUMBERS, generation: 0 }.id(), None);
        assert_eq!(Ident { mount: 1, ino: NUMBERS_BELOW, generation: 0 }.id(), None);
        assert_eq!(Ident { mount: MOUNTS + 1, ino: 2, generation: 0 }.id(), None);
        assert_eq!(Ident::of(NodeId(BELOW | 2)), None);
        assert_eq!(Ident::of(NodeId::ROOT), None);
    }
}
