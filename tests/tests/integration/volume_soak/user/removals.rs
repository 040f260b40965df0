//! Deletion and replacement of files, such that only contents end that the user saw.
//!
//! Between a look at a file and the removal of its name another version may arrive. So a user on a connected node first renames
//! the file to a name that no other user uses, and looks at it there. A user on a disconnected node acts directly.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::User;
use crate::volume_soak::cluster::NODES;
use crate::volume_soak::tagged_content::FoundContent;

/// Time after a disconnect by which earlier changes have been applied.
const ARRIVED: Duration = Duration::from_secs(2);

impl User<'_> {
    fn alone_since(&self) -> Option<Instant> {
        self.ledger().cut_since(self.node).filter(|since| since.elapsed() > ARRIVED)
    }

    /// Unlinks a file.
    pub(super) fn do_away(&mut self, path: &Path) -> io::Result<()> {
        if let Some(since) = self.alone_since() {
            let held = self.seen_at(path)?;
            // It is unknown to which file it belongs.
            if held == FoundContent::Nothing {
                return Ok(());
            }
            self.log(format_args!("unlink {path:?} with {held:?}"));
            return self.end(&held, since, || fs::remove_file(path));
        }
        self.asides += 1;
        let aside = path.with_file_name(format!(".{}-{}", NODES[self.node], self.asides));
        self.log(format_args!("moves {path:?} aside to {aside:?}"));
        renameat_with(CWD, path, CWD, &aside, RenameFlags::NOREPLACE)?;
        let seen = match fs::symlink_metadata(&aside)?.is_file() {
            true => File::open(&aside).and_then(|file| self.seen(&file, &aside)),
            false => Err(Errno::ISDIR.into()),
        };
        match seen {
            Ok(held) if held != FoundContent::Nothing => {
                self.ends(&held);
                self.log(format_args!("unlink {aside:?} with {held:?}"));
                let done = fs::remove_file(&aside);
                self.ended(&held);
                done
            }
            left => {
                renameat_with(CWD, &aside, CWD, path, RenameFlags::NOREPLACE)?;
                left.map(drop)
            }
        }
    }

    /// Renames a file over another.
    pub(super) fn take_place(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if let Some(since) = self.alone_since() {
            let held = self.seen_at(to)?;
            if held == FoundContent::Nothing {
                return Ok(());
            }
            self.log(format_args!("{from:?} takes the place of {to:?} with {held:?}"));
            return self.end(&held, since, || fs::rename(from, to));
        }
        self.log(format_args!("{from:?} changes places with {to:?}"));
        renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)?;
        self.do_away(from)
    }

    /// Deletes or replaces a file with this content, on a disconnected node.
    fn end(
        &self,
        held: &FoundContent,
        since: Instant,
        act: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.ends(held);
        let done = act();
        self.ended(held);
        if self.alone_since() != Some(since) {
            self.log(format_args!("is not alone any more"));
            self.ledger().ended_another(self.node);
            self.cluster.counts.unseen.add(1);
        }
        done
    }
}
