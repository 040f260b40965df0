//! Node ids that say which inode they mean.
//!
//! | bits, from the highest | what | for |
//! |---|---|---|
//! | 1, 32 generation, 31 number | the lower inode | the source's own file system |
//! | below 2^61 | a place in the table | everything else |
//!
//! The number comes last because tables all over the place go by the lowest bits, which are spread evenly there.
//! The lower file handle can be made again from an id of the first kind, when nothing is remembered of the inode.

use shunt_fuse::NodeId;

const OWN: u64 = 1 << 63;

/// Inode numbers that fit.
const NUMBERS: u64 = 1 << 31;

/// A lower inode, as an id has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ident {
    /// Index of the mount.
    pub mount: u16,
    /// Inode number.
    pub ino: u64,
    /// Which of the inodes that had this number.
    pub generation: u32,
}

impl Ident {
    /// The id, if there is room for all of it.
    pub fn id(self) -> Option<NodeId> {
        let Self { mount, ino, generation } = self;
        (mount == 0 && ino < NUMBERS).then_some(NodeId(OWN | u64::from(generation) << 31 | ino))
    }

    /// What an id says.
    pub fn of(id: NodeId) -> Option<Self> {
        (id.0 & OWN != 0).then_some(Self { mount: 0, ino: id.0 % NUMBERS, generation: (id.0 >> 31) as u32 })
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
        assert_eq!(Ident { mount: 0, ino: NUMBERS, generation: 0 }.id(), None);
        assert_eq!(Ident { mount: 1, ino: 2, generation: 0 }.id(), None);
        assert_eq!(Ident::of(NodeId::ROOT), None);
    }
}
