//! Listings with what lookups would say.

use shunt_fuse::{DirectoryPlusBuffer, Entry, Errno, FileHandle, NodeId, Request};

use super::convert;
use crate::coherence::Asked;
use crate::lower::Component;
use crate::lower::listing::DirEntry;
use crate::{CacheMode, Mirror};

/// What is shown of a listing.
pub(crate) trait Show {
    /// Whether a name is shown.
    fn shows(&mut self, entry: &DirEntry<'_>) -> Result<bool, Errno>;
    /// What is told of a name that was looked up; `None`: the name alone.
    fn entry(&mut self, name: &[u8], entry: Entry) -> Result<Option<Entry>, Errno>;
    /// What was to be told was not.
    fn untold(&mut self, node: NodeId);
}

/// Everything as it is.
pub(super) struct ShowAll<'a>(pub(super) &'a Mirror);

impl Show for ShowAll<'_> {
    fn shows(&mut self, _entry: &DirEntry<'_>) -> Result<bool, Errno> {
        Ok(true)
    }

    fn entry(&mut self, _name: &[u8], entry: Entry) -> Result<Option<Entry>, Errno> {
        Ok(Some(entry))
    }

    fn untold(&mut self, node: NodeId) {
        self.0.lower.forget(node, 1);
    }
}

impl Mirror {
    /// Lists a directory by names.
    pub(crate) fn list_names(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut shunt_fuse::DirectoryBuffer,
        show: &mut impl Show,
    ) -> Result<(), Errno> {
        let handle = self.dir_handle(request, handle);
        self.lower.list(node, handle, offset, |_, entry| {
            Ok(!show.shows(&entry)?
                || out.push(entry.name.to_bytes(), entry.ino, convert::kind(entry.kind), entry.next))
        })
    }

    /// Lists a directory, each name with its entry.
    pub(crate) fn list_entries(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
        show: &mut impl Show,
    ) -> Result<(), Errno> {
        let handle = self.dir_handle(request, handle);
        let since = self.looking_into(node);
        self.lower.list(node, handle, offset, |dir, entry| {
            let name = entry.name.to_bytes();
            if !show.shows(&entry)? {
                return Ok(true);
            }
            if !out.has_room_for(name) {
                return Ok(false);
            }
            let found = match entry.is_dots() || (entry.held && self.cache == CacheMode::Exclusive) {
                // What the kernel holds for ever it need not be told again: after a first walk a listing costs no
                // lookups.
                true => None,
                // What cannot be looked up is listed by name: the one who asks for it gets the error.
                false => {
                    let name = Component::new(entry.name)?;
                    let asked = Asked { parent: node, name, since };
                    self.lower.lookup_at(node, dir, name).ok().map(|found| self.entry(found, &asked))
                }
            };
            let shown = match found {
                None => None,
                Some(found) => show.entry(name, found)?,
            };
            let Some(shown) = shown else {
                return Ok(out.push_name(name, entry.ino, convert::kind(entry.kind), entry.next));
            };
            let taken = out.push(name, &shown, entry.next);
            if !taken {
                show.untold(shown.node);
            }
            Ok(taken)
        })
    }
}
