//! Superseded versions of files, kept open as the basis of a delta download.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, OnceLock};

use crate::chunks::BasisSource;
use crate::object::Content;
use crate::runtime::runtime;

/// Maximum number of basis files.
const MAX_BASIS_FILES: usize = 32;

/// The old version of a file.
#[derive(Debug)]
pub struct BasisFile {
    content: Content,
    file: Arc<File>,
    /// Its chunks, once requested.
    local: OnceLock<Option<BasisSource>>,
}

impl BasisFile {
    pub(crate) fn new(content: Content, file: Arc<File>) -> Self {
        Self { content, file, local: OnceLock::new() }
    }

    /// Returns its chunks, which `list` provides on the first successful call.
    pub(crate) fn local<E>(
        &self,
        list: impl FnOnce(&Content, &Arc<File>) -> Result<Option<BasisSource>, E>,
    ) -> Result<Option<&BasisSource>, E> {
        if let Some(cached) = self.local.get() {
            return Ok(cached.as_ref());
        }
        let local = list(&self.content, &self.file)?;
        Ok(self.local.get_or_init(|| local).as_ref())
    }
}

/// Basis files by inode number, oldest first.
#[derive(Default)]
pub(crate) struct BasisCache(VecDeque<(u64, Arc<BasisFile>)>);

impl BasisCache {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, num: u64) -> Option<Arc<BasisFile>> {
        self.0.iter().find(|(other, _)| *other == num).map(|(_, before)| before.clone())
    }

    pub(crate) fn set(&mut self, num: u64, before: Option<BasisFile>) {
        if let Some(at) = self.0.iter().position(|(other, _)| *other == num) {
            close_basis(self.0.remove(at));
        }
        self.0.extend(before.map(|before| (num, Arc::new(before))));
        if self.0.len() > MAX_BASIS_FILES {
            close_basis(self.0.pop_front());
        }
    }

    /// Drops the oldest ones until the others take at most `limit` bytes.
    pub(crate) fn shrink(&mut self, limit: u64) {
        while self.0.iter().map(|(_, before)| before.content.size).sum::<u64>() > limit {
            close_basis(self.0.pop_front());
        }
    }
}

/// Closes a basis file in the background: freeing a large file takes long, and the caller has the replica locked.
fn close_basis(old: Option<(u64, Arc<BasisFile>)>) {
    if let Some(old) = old {
        runtime().spawn_blocking(move || drop(old));
    }
}
