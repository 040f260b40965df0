//! Reading and syncing of files, and records of contents that users saw.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use rustix::io::Errno;

use super::User;
use crate::volume_soak::cluster::NODES;
use crate::volume_soak::tagged_content::{Content, FoundContent};

/// Reads to the actual end, independent of the reported length: while a later version arrives, an open file reports the length of
/// that version.
fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let from = bytes.len();
        bytes.resize(from + (64 << 10), 0);
        let more = file.read_at(&mut bytes[from..], from as u64)?;
        bytes.truncate(from + more);
        if more == 0 {
            return Ok(bytes);
        }
    }
}

impl User<'_> {
    /// Returns the content of an open file, and checks that it is a version that a user wrote.
    pub(super) fn seen(&self, file: &File, path: &Path) -> io::Result<FoundContent> {
        let held = FoundContent::of(&read(file)?);
        let allowed = self.ledger().allows(&held);
        if let Err(what) = allowed {
            self.cluster.note(format!("{} sees in {path:?} {what}", NODES[self.node]));
        }
        Ok(held)
    }

    /// Returns the content of a file that is about to be deleted or replaced.
    pub(super) fn seen_at(&self, path: &Path) -> io::Result<FoundContent> {
        let file = File::open(path)?;
        let held = self.seen(&file, path)?;
        // A version that arrived in between was not seen.
        match fs::symlink_metadata(path)?.ino() == file.metadata()?.ino() {
            true => Ok(held),
            false => Err(Errno::NOENT.into()),
        }
    }

    /// Records that these contents are about to be deleted or overwritten.
    pub(super) fn ends(&self, held: &FoundContent) {
        held.contents().iter().for_each(|content| self.ledger().ends(content));
    }

    /// Records that a file with these contents was deleted or replaced.
    pub(super) fn ended(&self, held: &FoundContent) {
        held.contents().iter().for_each(|content| self.ledger().ended_unseen(self.node, content));
    }

    pub(super) fn sync(&self, file: &File, content: &Content) -> io::Result<()> {
        // A file without a name ends with its last close; one that was restored by then does not hold earlier writes.
        let had_name = file.metadata()?.nlink() > 0;
        file.sync_all()?;
        let has_name = had_name && file.metadata()?.nlink() > 0;
        self.log(format_args!("synced {}, has a name: {has_name}", content.token));
        if has_name && self.ledger().synced(content) {
            self.cluster.counts.synced.add(1);
            self.cluster.counts.synced_bytes.add(content.len as u64);
        }
        Ok(())
    }

    /// Syncs an existing file, written by any user.
    pub(super) fn sync_what_is_there(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let file = File::open(&path)?;
        match self.seen(&file, &path)?.newest() {
            Some(content) => self.sync(&file, &content),
            None => Ok(()),
        }
    }
}
