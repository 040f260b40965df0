//! Replay after a takeover: replies to resent requests that an earlier server had executed without replying. Opens are answered
//! from their records, creates by a lookup of the new file, and releases of closed handles succeed.

use rustix::io::Errno;
use shunt_fuse_abi::Operation;

use super::dispatch::{Reply, undo};
use crate::api::Entry;
use crate::id::FileHandle;
use crate::session::{FileSystem, Request};
use crate::takeover::{OpenKind, OpenRecord};

/// Returns the reply to a request that was executed already; `None`: handle it, with regard to what [`begun`](Request::begun)
/// returns.
pub(crate) async fn replay<F: FileSystem>(
    fs: &F,
    request: &Request<'_>,
    operation: &Operation<'_>,
) -> Option<Result<Reply<'static>, Errno>> {
    if !request.is_resend() {
        return None;
    }
    if let Some(Err(errno)) = request.begun().and_then(|begun| begun.outcome) {
        return Some(Err(errno));
    }
    let takeover = request.session.shared.takeover.as_ref()?;
    let is_closed = |kind, handle| !takeover.is_open(kind, FileHandle(handle));
    match operation {
        // A handle that is no longer open may soon belong to another file.
        Operation::Release { arg } if is_closed(OpenKind::File, arg.fh) => Some(Ok(Reply::Empty)),
        Operation::Releasedir { arg } if arg.fh != 0 && is_closed(OpenKind::Directory, arg.fh) => {
            Some(Ok(Reply::Empty))
        }
        Operation::Open { .. } | Operation::Opendir { .. } => {
            let (kind, record) = takeover.opened_by(request.header.original_id())?;
            Some(Ok(Reply::Reopened(kind, record)))
        }
        Operation::Create { name, .. } => {
            let (_, record) = takeover.opened_by(request.header.original_id())?;
            let entry = fs.lookup(request, request.node(), *name).await;
            recreated(fs, request, entry, record).await
        }
        Operation::Tmpfile { .. } => {
            let (_, record) = takeover.opened_by(request.header.original_id())?;
            let found = fs.getattr(request, record.node, Some(record.handle)).await;
            let entry = found.map(|(attributes, expiry)| Entry::new(record.node, attributes, expiry));
            recreated(fs, request, entry, record).await
        }
        _ => None,
    }
}

async fn recreated<F: FileSystem>(
    fs: &F,
    request: &Request<'_>,
    entry: Result<Entry, Errno>,
    record: OpenRecord,
) -> Option<Result<Reply<'static>, Errno>> {
    match entry {
        Ok(entry) if entry.node == record.node => {
            return Some(Ok(Reply::Recreated { entry: entry.wire(), record }));
        }
        Ok(entry) if entry.node.0 != 0 => fs.forget(entry.node, 1),
        _ => {}
    }
    // The name was removed behind our back: create the file again.
    undo(fs, request, Reply::Reopened(OpenKind::File, record)).await;
    None
}
