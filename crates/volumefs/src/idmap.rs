//! Who is who on this machine.

use shunt_fuse::{Attributes, Errno, Request};
use shunt_volume::object::Kind;
use shunt_volume::replica::{CacheState, Inode, NewObject, SetAttr};

use crate::{VolumeFs, convert};

/// Holes of smaller files are not worth a look.
const MIN_SPARSE_BYTES: u64 = 64 << 10;

/// Numbers of users and groups: those of the volume, and those that this machine has for them.
pub trait Owners: Send + Sync {
    /// What this machine shows for a user of the volume.
    fn shown_user(&self, stored: u32) -> u32;
    /// What this machine shows for a group of the volume.
    fn shown_group(&self, stored: u32) -> u32;
    /// Whom of the volume a user of this machine is.
    fn stored_user(&self, shown: u32) -> u32;
    /// Which group of the volume one of this machine is.
    fn stored_group(&self, shown: u32) -> u32;
}

impl VolumeFs {
    pub(crate) fn mapped_attributes(&self, node: &Inode) -> Attributes {
        let mut attributes = convert::attributes(node);
        // Of what is not all here no hole is known.
        if node.is_regular() && node.state == CacheState::Complete && node.size >= MIN_SPARSE_BYTES {
            let here = self.replica.cached_blocks(node.ino);
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
        // One that would come back as somebody else, as the kernel has it for mounts with other ids.
        if owners.shown_user(stored) == shown { Ok(stored) } else { Err(Errno::OVERFLOW) }
    }

    fn group(&self, shown: u32) -> Result<u32, Errno> {
        let Some(owners) = &self.owners else { return Ok(shown) };
        let stored = owners.stored_group(shown);
        if owners.shown_group(stored) == shown { Ok(stored) } else { Err(Errno::OVERFLOW) }
    }

    /// What a caller makes is his.
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
