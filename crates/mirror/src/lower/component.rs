//! Validated single path components.

use std::ffi::CStr;

use rustix::io::Errno;

/// A path component that is safe to look up: not empty, no slash, not `.` or `..`.
///
/// With O_NOFOLLOW, such a name cannot lead out of the directory, whatever others do to the tree meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Component<'a>(&'a CStr);

impl<'a> Component<'a> {
    /// Validates a name.
    ///
    /// # Errors
    /// EINVAL if it is not a single component.
    pub fn new(name: &'a CStr) -> Result<Self, Errno> {
        match name.to_bytes() {
            b"" | b"." | b".." => Err(Errno::INVAL),
            bytes if bytes.contains(&b'/') => Err(Errno::INVAL),
            _ => Ok(Self(name)),
        }
    }

    /// Returns the name.
    pub fn as_cstr(self) -> &'a CStr {
        self.0
    }
}
