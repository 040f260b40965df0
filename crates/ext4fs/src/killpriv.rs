//! The privilege bits that a write, a truncation or a change of owner clears (`FUSE_HANDLE_KILLPRIV_V2`): setuid, setgid and file
//! capabilities.

use shunt_ext4::{Attributes, Inode};
use shunt_fuse::Errno;

use crate::Ext4;

/// File capabilities, which a write by an unprivileged user removes.
const CAPABILITY_XATTR: &[u8] = b"security.capability";

const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const GROUP_EXECUTES: u16 = 0o010;

/// Returns the permission bits that remain after a write by another user or a change of owner. Setgid without group execute
/// permission marks mandatory locking and stays.
pub(crate) fn without_setid(permissions: u16) -> u16 {
    let setgid = if permissions & GROUP_EXECUTES != 0 { SETGID } else { 0 };
    permissions & !SETUID & !setgid
}

impl Ext4 {
    /// Removes the privileges that an unprivileged write removes: file capabilities and the setuid and setgid bits.
    pub(crate) fn drop_privileges(&self, inode: &Inode) -> Result<(), Errno> {
        self.drop_capability(inode)?;
        let permissions = without_setid(inode.permissions);
        if permissions != inode.permissions {
            let change = Attributes { permissions: Some(permissions), ..Attributes::default() };
            self.to_errno(self.filesystem.set_attributes(inode.number, &change))?;
        }
        Ok(())
    }

    /// Clears setgid after an ACL was set by a caller outside the file's group.
    pub(crate) fn drop_setgid(&self, inode: &Inode) -> Result<(), Errno> {
        let permissions = Some(inode.permissions & !SETGID);
        let change = Attributes { permissions, ..Attributes::default() };
        self.to_errno(self.filesystem.set_attributes(inode.number, &change)).map(drop)
    }

    pub(crate) fn drop_capability(&self, inode: &Inode) -> Result<(), Errno> {
        match self.filesystem.remove_xattr(inode.number, CAPABILITY_XATTR) {
            Ok(_) | Err(shunt_ext4::Error::NoAttribute) => Ok(()),
            Err(error) => self.to_errno(Err(error)),
        }
    }
}
