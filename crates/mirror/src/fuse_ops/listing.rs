//! READDIR and READDIRPLUS: directory listings, optionally with the entry of each name.

use shunt_fuse::{DirectoryPlusBuffer, Entry, Errno, FileHandle, NodeId, Request};

use super::convert;
use super::expiry::NameRequest;
use crate::lower::Component;
use crate::lower::listing::DirEntry;
use crate::{CacheMode, Mirror};

/// A filter over directory listings.
pub trait ListingFilter {
    /// Reports whether the caller may see a name.
    ///
    /// # Errors
    /// The listing ends with this error.
    fn shows(&mut self, entry: &DirEntry<'_>) -> Result<bool, Errno>;
    /// Returns the entry to list with a name that was looked up; `None` lists the name alone.
    ///
    /// # Errors
    /// The listing ends with this error.
    fn entry(&mut self, name: &[u8], entry: Entry) -> Result<Option<Entry>, Errno>;
    /// Undoes the lookup of an entry that did not fit into the buffer.
    fn drop_lookup(&mut self, node: NodeId);
}

/// A filter that shows every entry unchanged.
pub(super) struct Unfiltered<'a>(pub(super) &'a Mirror);

impl ListingFilter for Unfiltered<'_> {
    fn shows(&mut self, _entry: &DirEntry<'_>) -> Result<bool, Errno> {
        Ok(true)
    }

    fn entry(&mut self, _name: &[u8], entry: Entry) -> Result<Option<Entry>, Errno> {
        Ok(Some(entry))
    }

    fn drop_lookup(&mut self, node: NodeId) {
        self.0.lower.forget(node, 1);
    }
}

impl Mirror {
    /// Lists a directory by names (READDIR).
    ///
    /// # Errors
    /// The error of `getdents64(2)`, or of the filter.
    pub fn list_names(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut shunt_fuse::DirectoryBuffer,
        filter: &mut impl ListingFilter,
    ) -> Result<(), Errno> {
        let handle = self.dir_handle(request, handle);
        self.lower.list(node, handle, offset, |_, entry| {
            Ok(!filter.shows(&entry)?
                || out.push(entry.name.to_bytes(), entry.ino, convert::kind(entry.kind), entry.next))
        })
    }

    /// Lists a directory with an entry for each name (READDIRPLUS).
    ///
    /// # Errors
    /// The error of `getdents64(2)`, or of the filter.
    pub fn list_entries(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
        filter: &mut impl ListingFilter,
    ) -> Result<(), Errno> {
        let handle = self.dir_handle(request, handle);
        let since = self.looking_into(node);
        self.lower.list(node, handle, offset, |dir, entry| {
            let name = entry.name.to_bytes();
            if !filter.shows(&entry)? {
                return Ok(true);
            }
            if !out.has_room_for(name) {
                return Ok(false);
            }
            let found = match entry.is_dots() || (entry.held && self.cache == CacheMode::Exclusive) {
                // The kernel holds the inode and caches it without expiry: after a first walk a listing costs no lookups.
                true => None,
                // A name whose lookup fails is listed without an entry: a later access gets the error.
                false => {
                    let name = Component::new(entry.name)?;
                    let name_request = NameRequest { parent: node, name, since };
                    self.lower.lookup_at(node, dir, name).ok().map(|found| self.entry(found, &name_request))
                }
            };
            let shown = match found {
                None => None,
                Some(found) => filter.entry(name, found)?,
            };
            let Some(shown) = shown else {
                return Ok(out.push_name(name, entry.ino, convert::kind(entry.kind), entry.next));
            };
            let taken = out.push(name, &shown, entry.next);
            if !taken {
                filter.drop_lookup(shown.node);
            }
            Ok(taken)
        })
    }
}
