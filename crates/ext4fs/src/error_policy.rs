//! Policy for errors of the engine: each becomes an errno, and metadata corruption ends all changes with `errors=remount-ro`.

use shunt_ext4::Error;
use shunt_fuse::Errno;

use crate::Ext4;

impl Ext4 {
    /// Converts an engine error to an errno, logs corruption, and ends all changes if the mount is set to.
    pub(crate) fn to_errno<T>(&self, result: shunt_ext4::Result<T>) -> Result<T, Errno> {
        result.map_err(|error| {
            if self.errors_remount_ro && matches!(error, Error::Corrupt(_)) && self.filesystem.is_writable() {
                self.filesystem.abort(error.cause());
            }
            self.corruption_log.errno(&error)
        })
    }
}
