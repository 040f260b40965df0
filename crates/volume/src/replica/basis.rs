//! What files held before another version took their place: of that most is often in the new version too.
//!
//! The old backing files are kept open, which lose their names as ever. So nothing is to be put right after a crash, and a
//! restart costs no more than that all of a file comes.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, OnceLock};

use super::Shared;
use super::db::ReplicaDb;
use super::error::Result;
use super::inode::{Dirty, Inode, State};
use crate::content::BasisSource;
use crate::object::{Content, Layout};
use crate::runtime::runtime;

/// Files of which it is kept.
const MAX_BASIS_FILES: usize = 32;

/// What a file held.
#[derive(Debug)]
pub struct BasisFile {
    content: Content,
    file: Arc<File>,
    /// Its pieces, once somebody asked for them.
    local: OnceLock<Option<BasisSource>>,
}

impl BasisFile {
    /// Its pieces. The first answer counts.
    pub(super) fn local<E>(
        &self,
        list: impl FnOnce(&Content, &Arc<File>) -> Result<Option<BasisSource>, E>,
    ) -> Result<Option<&BasisSource>, E> {
        if let Some(known) = self.local.get() {
            return Ok(known.as_ref());
        }
        let local = list(&self.content, &self.file)?;
        Ok(self.local.get_or_init(|| local).as_ref())
    }
}

/// By number, the oldest first.
#[derive(Default)]
pub(super) struct BasisCache(VecDeque<(u64, Arc<BasisFile>)>);

impl BasisCache {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, num: u64) -> Option<Arc<BasisFile>> {
        self.0.iter().find(|(other, _)| *other == num).map(|(_, before)| before.clone())
    }

    pub(super) fn set(&mut self, num: u64, before: Option<BasisFile>) {
        if let Some(at) = self.0.iter().position(|(other, _)| *other == num) {
            close_basis(self.0.remove(at));
        }
        self.0.extend(before.map(|before| (num, Arc::new(before))));
        if self.0.len() > MAX_BASIS_FILES {
            close_basis(self.0.pop_front());
        }
    }

    /// Keeps the newest of them, that take so many bytes at most.
    pub(super) fn shrink(&mut self, most: u64) {
        while self.0.iter().map(|(_, before)| before.content.size).sum::<u64>() > most {
            close_basis(self.0.pop_front());
        }
    }
}

/// The last bytes of a large file take long to go: that is not for who has the replica locked.
fn close_basis(old: Option<(u64, Arc<BasisFile>)>) {
    if let Some(old) = old {
        runtime().spawn_blocking(move || drop(old));
    }
}

impl ReplicaDb {
    /// What a file holds, while it is still at its place, if it can be of use for what comes there.
    pub(super) fn basis_of(&self, node: &Inode, shared: &Shared) -> Result<Option<BasisFile>> {
        let is_known = node.state == State::Complete
            && !node.maybe_dirty
            && !node.dirty.intersects(Dirty::CONTENT | Dirty::NEW);
        if !is_known {
            return Ok(None);
        }
        let content = self.content(node.ino)?;
        let has_parts = match &content.layout {
            Layout::Inline(_) => false,
            Layout::Pieces(pieces) => pieces.len() > 1,
            Layout::Indirect(_) => true,
        };
        if !has_parts {
            return Ok(None);
        }
        let file = match self.opens.get(&node.ino) {
            Some(open) => Some(open.file.clone()),
            None => shared.files.existing(node.ino).ok().map(Arc::new),
        };
        Ok(file.map(|file| BasisFile { content, file, local: OnceLock::new() }))
    }
}
