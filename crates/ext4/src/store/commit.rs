//! Commits: what a transaction changed reaches the device as a whole.

use super::{Store, Tid, Writer, place};
use crate::error::{Error, Result};

/// Where transactions are written before their blocks go to their places.
pub(crate) enum Log {
    /// Nowhere: blocks go to their places at once, and a power cut in between is for e2fsck to mend.
    None,
}

impl Log {
    /// Blocks that one transaction may change; `None` for any number.
    pub(super) fn largest_transaction(&self) -> Option<u32> {
        match self {
            Self::None => None,
        }
    }
}

impl Store {
    /// Returns when all that was changed before, and all data that was written before, lasts.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] after a commit failed, and what made it fail.
    pub(crate) fn sync(&self) -> Result<()> {
        match &self.writer {
            Some(writer) => self.commit(writer.gate.running()),
            None => Ok(()),
        }
    }

    /// Commits this transaction, if nobody else did. One commit takes along all who asked meanwhile.
    pub(super) fn commit(&self, tid: Tid) -> Result<()> {
        let writer = self.writer()?;
        let mut log = writer.log.lock();
        if writer.gate.is_aborted() {
            return Err(Error::ReadOnly);
        }
        if writer.gate.committed() >= tid {
            return Ok(());
        }
        let result = self.write_transaction(writer, &mut log);
        if let Err(error) = &result {
            self.abort(writer, error);
        }
        result
    }

    fn write_transaction(&self, writer: &Writer, log: &mut Log) -> Result<()> {
        let (tid, frozen, revoked) = writer.gate.freeze(|tid| {
            if self.cache.dirty() > 0 || writer.superblock.is_changed() {
                self.put_superblock(writer)?;
            }
            Ok::<_, Error>((tid, self.cache.freeze(), std::mem::take(&mut *writer.revoked.lock())))
        })?;
        match log {
            Log::None => {
                place::write(&*self.device, self.geometry.block_bits, &frozen)?;
                self.device.flush()?;
                self.cache.committed(frozen, false);
            }
        }
        revoked.into_iter().for_each(|number| self.cache.revoked(number));
        writer.gate.set_committed(tid);
        Ok(())
    }

    /// Nothing can be changed from here on: the device has the last whole transaction, and that must stay so.
    fn abort(&self, writer: &Writer, error: &Error) {
        writer.gate.abort();
        tracing::error!(
            "a transaction could not be written ({error}): the file system is read-only from now on"
        );
    }

    /// The last commit: everything goes to its place.
    pub(crate) fn close(&self) -> Result<()> {
        self.sync()
    }
}
