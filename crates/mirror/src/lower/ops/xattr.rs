//! Extended attribute operations.

use std::ffi::CStr;

use rustix::buffer::spare_capacity;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::credentials::KeepSetid;
use super::super::sys::ProcPath;
use super::super::{Caller, Lower};

/// `XATTR_SIZE_MAX` and `XATTR_LIST_MAX`.
const MAX_XATTR_BYTES: usize = 65_536;

/// An attribute value or a list of names, or only its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum XattrAnswer {
    /// Its size in bytes.
    Size(usize),
    /// Its contents.
    Bytes(Vec<u8>),
}

fn is_acl(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"system.posix_acl_access" | b"system.posix_acl_default")
}

/// Reports whether an attribute is a command to the file system. The file system checks the caller's rights itself, and
/// would check the daemon's instead.
fn is_command(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"system.") && !is_acl(name)
}

impl Lower {
    /// Reads an attribute; with `room` 0 it returns only the size.
    ///
    /// # Errors
    /// ENODATA, ERANGE, EOPNOTSUPP, or another error of `getxattr(2)`.
    pub(crate) fn getxattr(&self, id: NodeId, name: &CStr, room: usize) -> Result<XattrAnswer, Errno> {
        let reached = self.open_path(id)?;
        // O_PATH descriptors do not support attribute calls; the path under /proc does.
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
        value.reserve_exact(room.min(MAX_XATTR_BYTES));
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

    /// Sets an attribute. `kill_setgid`: an ACL is set by a caller outside the file's group, which clears setgid.
    ///
    /// # Errors
    /// The error of `setxattr(2)`; EOPNOTSUPP for `system.` attributes other than ACLs.
    pub(crate) fn setxattr(
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

    /// Lists the names of attributes, each terminated by a NUL; with `room` 0 it returns only the size. `trusted.`
    /// attributes are listed for root only.
    ///
    /// # Errors
    /// The error of `listxattr(2)`.
    pub(crate) fn listxattr(&self, id: NodeId, room: usize, caller: Caller) -> Result<XattrAnswer, Errno> {
        let reached = self.open_path(id)?;
        let mut names = Vec::with_capacity(1024);
        loop {
            match rustix::fs::listxattr(ProcPath::new(&reached).as_cstr(), spare_capacity(&mut names)) {
                Err(Errno::RANGE) if names.capacity() < MAX_XATTR_BYTES => {
                    names.reserve_exact(MAX_XATTR_BYTES)
                }
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
    /// The error of `removexattr(2)`.
    pub(crate) fn removexattr(&self, id: NodeId, name: &CStr) -> Result<(), Errno> {
        self.writable()?;
        if is_command(name) {
            return Err(Errno::OPNOTSUPP);
        }
        let reached = self.open_path(id)?;
        rustix::fs::removexattr(ProcPath::new(&reached).as_cstr(), name)
    }
}
