//! Extended attributes: SETXATTR, GETXATTR, LISTXATTR.

use std::ffi::CStr;

use rustix::buffer::spare_capacity;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::credentials::KeepSetid;
use super::super::sys::ProcPath;
use super::super::{Caller, Lower};

/// `XATTR_SIZE_MAX` and `XATTR_LIST_MAX`.
const LARGEST: usize = 65_536;

/// A value or a list, or only its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XattrAnswer {
    /// Bytes needed.
    Size(usize),
    /// The bytes.
    Bytes(Vec<u8>),
}

fn is_acl(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"system.posix_acl_access" | b"system.posix_acl_default")
}

/// Attributes that are commands to the file system, whose rules for callers are its own: the daemon's rights would stand
/// in for the caller's.
fn is_command(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"system.") && !is_acl(name)
}

impl Lower {
    /// Reads an attribute; with `room` 0 only its size is told.
    ///
    /// # Errors
    /// ENODATA, ERANGE, EOPNOTSUPP and others of `getxattr(2)`.
    pub fn getxattr(&self, id: NodeId, name: &CStr, room: usize) -> Result<XattrAnswer, Errno> {
        let reached = self.open_path(id)?;
        // O_PATH descriptors have no attributes; the inode behind them has, by way of /proc.
        let path = ProcPath::new(&reached);
        let mut value = Vec::new();
        if room == 0 {
            let size = if reached.is_open() {
                rustix::fs::fgetxattr_query(&reached, name)?
            } else {
                rustix::fs::getxattr_query(path.as_cstr(), name)?
            };
            return Ok(XattrAnswer::Size(size));
        }
        value.reserve_exact(room.min(LARGEST));
        if reached.is_open() {
            rustix::fs::fgetxattr(&reached, name, spare_capacity(&mut value))?;
        } else {
            rustix::fs::getxattr(path.as_cstr(), name, spare_capacity(&mut value))?;
        }
        if is_acl(name) {
            self.ids.map_acl(&mut value, true);
        }
        Ok(XattrAnswer::Bytes(value))
    }

    /// Sets an attribute. `kill_setgid`: an ACL is set by somebody outside of the file's group.
    ///
    /// # Errors
    /// Those of `setxattr(2)`; EOPNOTSUPP for `system.` other than ACLs.
    pub fn setxattr(
        &self,
        id: NodeId,
        name: &CStr,
        value: &[u8],
        flags: u32,
        kill_setgid: bool,
    ) -> Result<(), Errno> {
        self.writable()?;
        if is_command(name) {
            return Err(Errno::OPNOTSUPP);
        }
        let reached = self.open_path(id)?;
        let flags = XattrFlags::from_bits_retain(flags);
        let mut mapped;
        let mut value = value;
        if is_acl(name) && !self.ids.is_identity() {
            mapped = value.to_vec();
            self.ids.map_acl(&mut mapped, false);
            value = &mapped;
        }
        let _keep = KeepSetid::when(is_acl(name) && !kill_setgid)?;
        rustix::fs::setxattr(ProcPath::new(&reached).as_cstr(), name, value, flags)
    }

    /// Lists the names of attributes, each ended by a NUL; with `room` 0 only the size is told. `trusted.` ones are
    /// listed for root only.
    ///
    /// # Errors
    /// Those of `listxattr(2)`.
    pub fn listxattr(&self, id: NodeId, room: usize, caller: Caller) -> Result<XattrAnswer, Errno> {
        let reached = self.open_path(id)?;
        let mut names = Vec::with_capacity(1024);
        loop {
            match rustix::fs::listxattr(ProcPath::new(&reached).as_cstr(), spare_capacity(&mut names)) {
                Err(Errno::RANGE) if names.capacity() < LARGEST => names.reserve_exact(LARGEST),
                result => {
                    result?;
                    break;
                }
            };
        }
        if caller.uid != 0 {
            names = names
                .split_inclusive(|&byte| byte == 0)
                .filter(|name| !name.starts_with(b"trusted."))
                .flatten()
                .copied()
                .collect();
        }
        match room {
            0 => Ok(XattrAnswer::Size(names.len())),
            room if room < names.len() => Err(Errno::RANGE),
            _ => Ok(XattrAnswer::Bytes(names)),
        }
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// Those of `removexattr(2)`.
    pub fn removexattr(&self, id: NodeId, name: &CStr) -> Result<(), Errno> {
        self.writable()?;
        if is_command(name) {
            return Err(Errno::OPNOTSUPP);
        }
        let reached = self.open_path(id)?;
        rustix::fs::removexattr(ProcPath::new(&reached).as_cstr(), name)
    }
}
