//! Extended attributes. The engine stores them; this module hides `trusted.` names from users other than root, and clears
//! setgid after an ACL change where the kernel requests it.

use std::ffi::CStr;

use shunt_fuse::{Errno, NodeId, Request, XattrSet};

use crate::summary::may_have_xattrs;
use crate::{Ext4, setattr};

impl Ext4 {
    /// Returns ENOSYS, which the kernel remembers, if the file system has no extended attributes at all.
    fn has_xattrs(&self) -> Result<(), Errno> {
        if may_have_xattrs(&self.filesystem) { Ok(()) } else { Err(Errno::NOSYS) }
    }

    pub(crate) fn xattr(&self, node: NodeId, name: &CStr) -> Result<Vec<u8>, Errno> {
        self.has_xattrs()?;
        let value = self.to_errno(self.filesystem.xattr(&self.inode(node)?, name.to_bytes()))?;
        value.ok_or(Errno::NODATA)
    }

    /// Returns the attribute names visible to a user, each terminated by a zero byte.
    pub(crate) fn xattr_names(&self, node: NodeId, uid: u32) -> Result<Vec<u8>, Errno> {
        self.has_xattrs()?;
        let names = self.to_errno(self.filesystem.xattr_names(&self.inode(node)?))?;
        let mut list = Vec::new();
        for name in names {
            if uid == 0 || !name.starts_with(b"trusted.") {
                list.extend(name);
                list.push(0);
            }
        }
        Ok(list)
    }

    pub(crate) fn set_xattr(
        &self,
        request: &Request<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        set: XattrSet,
    ) -> Result<(), Errno> {
        let (number, mode) = (self.number(node)?, setattr::set_mode(set.flags)?);
        let rights = self.filesystem.rights(request.uid(), request.gid());
        let set_it = || self.filesystem.set_xattr_as(number, name.to_bytes(), value, mode, rights);
        let inode = self.once(request, || self.with_space(set_it), |_| self.inode(node))?;
        if set.acl_kill_sgid { self.drop_setgid(&inode) } else { Ok(()) }
    }
}
