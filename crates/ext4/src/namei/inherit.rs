//! Properties that a new inode inherits from its directory: flags, group, and default ACL.

use super::attributes::NewInode;
use crate::error::Result;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::xattr::{Acl, Attribute, Lists};

/// `S_ISGID`
const SETGID: u16 = 0o2000;

/// Name indexes of the attributes that hold ACLs.
const ACL_ACCESS_INDEX: u8 = 2;
const ACL_DEFAULT_INDEX: u8 = 3;

/// Returns the inherited flags.
pub(super) fn flags(parent: &Inode, kind: Kind) -> InodeFlags {
    let all = InodeFlags::SECRM
        | InodeFlags::UNRM
        | InodeFlags::COMPR
        | InodeFlags::SYNC
        | InodeFlags::NODUMP
        | InodeFlags::NOATIME
        | InodeFlags::JOURNAL_DATA
        | InodeFlags::NOTAIL
        | InodeFlags::DIRSYNC
        | InodeFlags::PROJINHERIT
        | InodeFlags::CASEFOLD
        | InodeFlags::DAX;
    let of_directories = InodeFlags::DIRSYNC | InodeFlags::CASEFOLD | InodeFlags::PROJINHERIT;
    let flags = parent.flags & all;
    match kind {
        Kind::Directory => flags,
        Kind::Regular => flags - of_directories,
        _ => flags & (InodeFlags::NODUMP | InodeFlags::NOATIME),
    }
}

/// Returns group and permissions: a set-group-ID directory passes on its group, and the bit to subdirectories.
pub(super) fn owner(parent: &Inode, kind: Kind, new: &NewInode) -> (u32, u16) {
    let permissions = new.permissions & 0o7777;
    match parent.permissions & SETGID {
        0 => (new.gid, permissions),
        bit if kind == Kind::Directory => (parent.gid, permissions | bit),
        _ => (parent.gid, permissions),
    }
}

/// Returns permissions and ACLs: a default ACL of the directory replaces the umask.
pub(super) fn access(
    above: &Lists,
    kind: Kind,
    permissions: u16,
    umask: u16,
) -> Result<(u16, Vec<Attribute>)> {
    let stored = above.get(ACL_DEFAULT_INDEX, b"").filter(|_| kind != Kind::Symlink);
    let Some(stored) = stored else {
        let umask = if kind == Kind::Symlink { 0 } else { umask & 0o777 };
        return Ok((permissions & !umask, Vec::new()));
    };
    let (access, permissions) = Acl::from_stored(stored)?.inherit(permissions);
    let mut list = Vec::new();
    if !access.mode().1 {
        list.push(Attribute { index: ACL_ACCESS_INDEX, name: Vec::new(), value: access.to_stored() });
    }
    if kind == Kind::Directory {
        list.push(Attribute { index: ACL_DEFAULT_INDEX, name: Vec::new(), value: stored.to_vec() });
    }
    Ok((permissions, list))
}
