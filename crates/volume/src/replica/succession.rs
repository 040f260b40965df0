//! Succession: another process continues to serve the replica after this one was killed, while the kernel keeps its inodes, its
//! open files and the requests that were not replied to.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;

use crate::replica::data::open_file::{self, Opened};
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::{ROOT, number};
use crate::replica::error::Result;
use crate::replica::{Replica, Shared};

/// A request of a user: a number that is never reused while the kernel may send the request again, and not 0.
pub type RequestId = u64;

thread_local! {
    static REQUEST: Cell<RequestId> = const { Cell::new(0) };
}

/// The request of which this thread executes an operation, or 0.
pub(crate) fn current_request() -> RequestId {
    REQUEST.get()
}

struct RequestScope;

impl Drop for RequestScope {
    fn drop(&mut self) {
        REQUEST.set(0);
    }
}

impl Replica {
    /// Executes an operation for a request. The redo log records the request and its result together with the change.
    pub fn execute_for<T>(&self, request: RequestId, operation: impl FnOnce(&Self) -> T) -> T {
        REQUEST.set(request);
        let _scope = RequestScope;
        operation(self)
    }

    /// Returns the result of a request that an earlier process executed: the inode number that the operation returned, or 0.
    pub fn earlier_result(&self, request: RequestId) -> Option<u64> {
        self.inner.shared.inherited_results.get(&request).copied()
    }

    /// Returns the lock of the directory, which the next process needs.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.inner.shared.lock.as_fd()
    }

    /// Stops to write the redo log, since no other process will execute it.
    pub fn disable_redo(&self) {
        self.inner.db.lock().disable_redo();
    }

    /// Opens a file that is open already in the last process, in its current version. Nothing is fetched, and neither its length
    /// nor its times change.
    ///
    /// # Errors
    /// ESTALE if the object does not exist; EIO.
    pub fn adopt_open(&self, num: u64, write: bool) -> Result<Opened, Errno> {
        self.change(|db, shared| {
            if db.find(num)?.is_some_and(|inode| inode.links == 0 && num != ROOT) {
                db.mark_unlinked(num)?;
            }
            let inode = db.inode(num)?;
            if !inode.is_regular() {
                return Err(Errno::STALE.into());
            }
            open_file::adopt(db, shared, inode, write)
        })
    }

    /// Permits evictions: all files that the last process had open are adopted.
    pub fn finish_adoption(&self) {
        self.inner.db.lock().adopts_opens = false;
    }

    /// Takes over the open backing file of a version that was replaced while it was open in the last process. All of it is cached.
    pub fn adopt_older(&self, file: File) -> Opened {
        let session = self.inner.db.lock().new_session();
        Opened { file: Arc::new(file), session, complete: true }
    }

    /// Returns the path of the backing file of an object.
    pub fn backing_path(&self, num: u64) -> PathBuf {
        self.inner.shared.files.path(num)
    }

    /// Expires all names in the kernel's caches, without waiting.
    pub fn expire_names(&self) {
        drop(self.names_stale());
    }

    /// Invalidates the data and attributes of an object in the kernel's caches.
    pub fn invalidate_content(&self, num: u64) {
        if let Some(caches) = self.inner.shared.kernel_cache.get() {
            caches.content_changed(num);
        }
    }

    /// Invalidates the data and attributes of all objects that the kernel may know.
    pub fn invalidate_all_contents(&self) {
        let known = self.inner.shared.known_inodes(&self.inner.db.lock());
        known.into_iter().chain([ROOT]).for_each(|num| self.invalidate_content(num));
    }

    /// Returns the unlinked objects that are not open and of which this process has not told the kernel: the kernel may have
    /// forgotten them while no process served.
    pub fn doubtful_unlinked(&self) -> Vec<u64> {
        let db = self.inner.db.lock();
        let counts = &self.inner.shared.lookup_counts;
        let is_doubtful = |num: &&u64| !db.opens.contains_key(num) && counts.is_doubtful(**num);
        db.unlinked_open.iter().filter(is_doubtful).copied().collect()
    }
}

impl ReplicaDb {
    /// Returns the numbers of all objects.
    pub(crate) fn all_numbers(&self) -> Result<Vec<u64>> {
        let mut query = self.db.prepare("SELECT num FROM object")?;
        let rows = query.query_map([], |row| row.get(0).map(number))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl Shared {
    /// Reports whether the kernel may refer to an object.
    pub(crate) fn is_referenced(&self, num: u64) -> bool {
        self.lookup_counts.contains(num)
    }
}
