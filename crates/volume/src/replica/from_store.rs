//! Contents that come from a store.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::io::Errno;

use super::fetch::{Came, Fetcher};
use crate::content::{ContentError, ContentStore};
use crate::id::ObjectId;
use crate::object::{Content, Layout};
use crate::store::MetaStore;

/// Brings what is wanted from where a volume is.
pub struct FromStore {
    /// Knows where chunks are.
    pub meta: Arc<dyn MetaStore>,
    /// Has them.
    pub contents: ContentStore,
}

impl Fetcher for FromStore {
    fn fetch(
        &self,
        id: ObjectId,
        content: &Content,
        range: Range<u64>,
        into: &File,
        came: Came<'_>,
    ) -> Result<Range<u64>, Errno> {
        self.bring(content, range, into, came).map_err(|error| match error {
            error if error.is_unreachable() => {
                tracing::info!("contents of {id} are wanted: {error}");
                Errno::NETUNREACH
            }
            ContentError::Io(error) => Errno::from_io_error(&error).unwrap_or(Errno::IO),
            error => {
                tracing::error!("contents of {id}: {error}");
                Errno::IO
            }
        })
    }
}

impl FromStore {
    fn bring(
        &self,
        content: &Content,
        range: Range<u64>,
        into: &File,
        came: Came<'_>,
    ) -> Result<Range<u64>, ContentError> {
        let meta = &*self.meta;
        if let Layout::Inline(bytes) = &content.layout {
            into.write_all_at(bytes, 0).map_err(ContentError::Io)?;
            return Ok(0..content.size);
        }
        let pieces = self.contents.pieces(meta, content)?;
        self.contents.fetch(meta, &pieces, range, into, came)
    }
}
