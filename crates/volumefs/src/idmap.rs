//! Mapping of users and groups between the volume and this node. The volume's ids are mapped in every attribute reply, local
//! ids in every change. Ids without a reverse mapping cannot own anything.

use shunt_fuse::{Attributes, Errno, Request};
use shunt_volume::object::Kind;
use shunt_volume::replica::{CacheState, Inode, NewObject, SetAttr};

use crate::{VolumeFs, convert};

/// Smaller files are not checked for holes.
const MIN_SPARSE_BYTES: u64 = 64 << 10;

/// Maps user and group ids of the volume to ids of this node, and back.
pub trait Owners: Send + Sync {
    /// Returns the local id of a user of the volume.
    fn shown_user(&self, stored: u32) -> u32;
    /// Returns the local id of a group of the volume.
    fn shown_group(&self, stored: u32) -> u32;
    /// Returns the volume's id of a local user.
    fn stored_user(&self, shown: u32) -> u32;
    /// Returns the volume's id of a local group.
    fn stored_group(&self, shown: u32) -> u32;
}

impl VolumeFs {
    pub(crate) fn mapped_attributes(&self, inode: &Inode) -> Attributes {
        let mut attributes = convert::attributes(inode);
        // The holes of an incomplete file are unknown.
        if inode.is_regular() && inode.state == CacheState::Complete && inode.size >= MIN_SPARSE_BYTES {
            let here = self.replica.cached_blocks(inode.ino);
            attributes.blocks = here.map_or(attributes.blocks, |here| here.min(attributes.blocks));
        }
        if let Some(owners) = &self.owners {
            attributes.uid = owners.shown_user(attributes.uid);
            attributes.gid = owners.shown_group(attributes.gid);
        }
        attributes
    }

    fn user(&self, shown: u32) -> Result<u32, Errno> {
        let Some(owners) = &self.owners else { return Ok(shown) };
        let stored = owners.stored_user(shown);
        // Ids that do not map back are refused, as the kernel does for idmapped mounts.
        if owners.shown_user(stored) == shown { Ok(stored) } else { Err(Errno::OVERFLOW) }
    }

    fn group(&self, shown: u32) -> Result<u32, Errno> {
        let Some(owners) = &self.owners else { return Ok(shown) };
        let stored = owners.stored_group(shown);
        if owners.shown_group(stored) == shown { Ok(stored) } else { Err(Errno::OVERFLOW) }
    }

    /// Builds a new object that the caller owns.
    pub(crate) fn new_of<'a>(
        &self,
        request: &Request<'_>,
        kind: Kind,
        mode: u32,
        target: &'a [u8],
    ) -> Result<NewObject<'a>, Errno> {
        let mut new = convert::new(request, kind, mode, target);
        new.owner.0 = self.user(new.owner.0)?;
        new.group.0 = self.group(new.group.0)?;
        Ok(new)
    }

    pub(crate) fn stored(&self, mut set: SetAttr) -> Result<SetAttr, Errno> {
        if let Some(owner) = &mut set.owner {
            owner.0 = self.user(owner.0)?;
        }
        if let Some(group) = &mut set.group {
            group.0 = self.group(group.0)?;
        }
        Ok(set)
    }
}
