//! Idempotent execution of operations that must not run twice. The kernel resends a request if a daemon ended before it
//! replied.
//!
//! Each function records what it is about to do, does it, and treats the error that means "already done" as success if
//! an earlier daemon had begun the same request. Meanwhile the kernel keeps the directory or the file locked for the
//! caller, so no other operation through the mount can interfere. A change that others make in the source at that very
//! moment can be mistaken for our own.

use std::ffi::CStr;

use rustix::fs::{Statx, StatxFlags};
use shunt_fuse::takeover::{BegunOperation, IntentData};
use shunt_fuse::{CreateArgs, Errno, NodeId, Request, XattrSet};

use super::convert::caller;
use crate::Mirror;
use crate::lower::{Component, Found, Opening};

/// `XATTR_CREATE`
const CREATE: u32 = 1;

const ABSENT: IntentData = [0; 4];
const PRESENT: IntentData = [1, 0, 0, 0];

fn was_done(begun: &BegunOperation) -> bool {
    begun.outcome == Some(Ok(()))
}

/// Reports whether an inode was created after an earlier daemon began to create it.
fn is_ours(stat: &Statx, begun: &BegunOperation) -> bool {
    if was_done(begun) || stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return true;
    }
    let born = stat.stx_btime.tv_sec as u64 * 1_000_000_000 + u64::from(stat.stx_btime.tv_nsec);
    // Some file systems store timestamps in whole seconds.
    let grain = if stat.stx_btime.tv_nsec == 0 { 1_000_000_000 } else { 1 };
    born / grain >= begun.since / grain
}

impl Mirror {
    /// Creates a name, unless an earlier daemon created it for this request.
    pub(super) fn make_once(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Component<'_>,
        make: impl FnOnce() -> Result<Found, Errno>,
    ) -> Result<Found, Errno> {
        request.begin(|| Ok([0; 4]))?;
        match (make(), request.begun()) {
            (Err(Errno::EXIST), Some(begun)) => {
                self.made_earlier(parent, name, |made| is_ours(&made.stat, begun))
            }
            (made, _) => made,
        }
    }

    /// Returns the inode that an earlier daemon created for this request, or EEXIST.
    pub(super) fn made_earlier(
        &self,
        parent: NodeId,
        name: Component<'_>,
        ours: impl FnOnce(&Found) -> bool,
    ) -> Result<Found, Errno> {
        let found = self.lower.lookup(parent, name)?;
        if ours(&found) {
            return Ok(found);
        }
        self.lower.forget(found.id, 1);
        Err(Errno::EXIST)
    }

    /// Creates and opens a file.
    pub(super) fn create_once(
        &self,
        request: &Request<'_>,
        parent: NodeId,
        name: Component<'_>,
        args: &CreateArgs,
    ) -> Result<(Found, Opening), Errno> {
        let CreateArgs { flags, mode, umask, .. } = *args;
        request.begin(|| Ok([0; 4]))?;
        let made = self.lower.create(parent, name, flags, mode, umask, caller(request));
        // ESTALE: the file exists, and the caller did not pass O_EXCL.
        let (Err(errno @ (Errno::EXIST | Errno::STALE)), Some(begun)) = (&made, request.begun()) else {
            return made;
        };
        let found = self.made_earlier(parent, name, |made| is_ours(&made.stat, begun)).map_err(|_| *errno)?;
        match self.lower.open_file(found.id, flags, false, caller(request)) {
            Ok(opening) => Ok((found, opening)),
            Err(errno) => {
                self.lower.forget(found.id, 1);
                Err(errno)
            }
        }
    }

    /// Creates a hard link.
    pub(super) fn link_once(
        &self,
        request: &Request<'_>,
        node: NodeId,
        parent: NodeId,
        name: Component<'_>,
    ) -> Result<Found, Errno> {
        request.begin(|| Ok([0; 4]))?;
        match (self.lower.link(node, parent, name), request.begun()) {
            (Err(Errno::EXIST), Some(_)) => self.made_earlier(parent, name, |found| found.id == node),
            (linked, _) => linked,
        }
    }

    /// Removes a name. The kernel sends this only for a name that it has looked up.
    pub(super) fn remove_once(
        &self,
        request: &Request<'_>,
        remove: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        request.begin(|| Ok([0; 4]))?;
        if request.begun().is_some_and(was_done) {
            return Ok(());
        }
        match remove() {
            Err(Errno::NOENT) if request.begun().is_some() => Ok(()),
            removed => removed,
        }
    }

    /// Renames or exchanges names.
    pub(super) fn rename_once(
        &self,
        request: &Request<'_>,
        (parent, name): (NodeId, Component<'_>),
        (new_parent, new_name): (NodeId, Component<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        let identity = |parent, name| self.lower.identity(parent, name);
        request.begin(|| {
            // If the name does not exist, the rename itself reports the error.
            let [ino, device] = identity(parent, name).unwrap_or_default();
            Ok([ino, device, 0, 0])
        })?;
        if let Some(begun) = request.begun() {
            let [ino, device, ..] = begun.before;
            let moved = identity(new_parent, new_name) == Ok([ino, device])
                && identity(parent, name) != Ok([ino, device]);
            if was_done(begun) || moved {
                return Ok(());
            }
        }
        self.lower.rename(parent, name, new_parent, new_name, flags)
    }

    /// Sets an extended attribute.
    pub(super) fn setxattr_once(
        &self,
        request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        set: XattrSet,
    ) -> Result<(), Errno> {
        if set.flags & CREATE != 0 {
            request.begin(|| Ok(self.has_xattr(node, name)))?;
        }
        match self.lower.setxattr(node, name, value, set.flags, set.acl_kill_sgid) {
            Err(Errno::EXIST) if request.begun().is_some_and(|begun| begun.before == ABSENT) => Ok(()),
            result => result,
        }
    }

    /// Removes an extended attribute.
    pub(super) fn removexattr_once(
        &self,
        request: &Request<'_>,
        node: NodeId,
        name: &CStr,
    ) -> Result<(), Errno> {
        request.begin(|| Ok(self.has_xattr(node, name)))?;
        match self.lower.removexattr(node, name) {
            Err(Errno::NODATA) if request.begun().is_some_and(|begun| begun.before == PRESENT) => Ok(()),
            result => result,
        }
    }

    fn has_xattr(&self, node: NodeId, name: &CStr) -> IntentData {
        if self.lower.getxattr(node, name, 0).is_ok() { PRESENT } else { ABSENT }
    }
}
