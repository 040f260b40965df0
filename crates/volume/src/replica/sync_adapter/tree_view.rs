//! Presents the local and the base tree of a replica to the merge planner, read from the tables.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Read as _;

use rusqlite::params;
use rustix::io::Errno;
use shunt_change_stamp::ChangeStamp;

use super::{CachedContent, ConflictDirs, ContentCache};
use crate::chunks::ContentStore;
use crate::id::{ObjectId, Seq};
use crate::merge::{Conflict, DentryKey, Ino, Tree, Trees};
use crate::object::{Content, Layout, Object, VersionedObject};
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::{Dirty, Inode, number};
use crate::replica::error::{OpError, Result};
use crate::replica::{CacheState, Shared};

/// A larger file is not read while the replica is locked: until it is uploaded, it differs from every other file.
const MAX_LOCKED_READ_BYTES: u64 = 16 << 20;

pub(super) struct TreeView<'a> {
    pub(super) db: RefCell<&'a mut ReplicaDb>,
    shared: &'a Shared,
    content_cache: &'a ContentCache,
    contents: Option<&'a ContentStore>,
    conflict_dirs: &'a ConflictDirs,
    /// A file open for writing has the content of its last snapshot while its change stamp is unchanged. Set only for
    /// pushes; for pulls, the content of such a file differs from every other.
    pub(super) uses_open_snapshots: bool,
    failed: Cell<Option<Errno>>,
}

impl<'a> TreeView<'a> {
    pub(super) fn new(
        db: &'a mut ReplicaDb,
        shared: &'a Shared,
        content_cache: &'a ContentCache,
        contents: Option<&'a ContentStore>,
        shown: &'a ConflictDirs,
    ) -> Self {
        Self {
            db: RefCell::new(db),
            shared,
            content_cache,
            contents,
            conflict_dirs: shown,
            uses_open_snapshots: false,
            failed: Cell::new(None),
        }
    }

    pub(super) fn content_cache(&self) -> &ContentCache {
        self.content_cache
    }

    pub(super) fn new_number(&self) -> Ino {
        self.db.borrow_mut().new_number().unwrap_or_else(|fail| {
            self.failed.set(Some(fail.errno));
            0
        })
    }

    /// Returns an error if an inode number could not be allocated.
    pub(super) fn check(&self) -> Result<(), Errno> {
        self.failed.get().map_or(Ok(()), Err)
    }

    fn read_db<T>(&self, query: impl FnOnce(&mut ReplicaDb) -> Result<T>) -> Result<T, Errno> {
        query(&mut self.db.borrow_mut()).map_err(|fail| fail.errno)
    }

    /// Returns size and digest of a locally changed file; `layout` is a placeholder.
    fn content(&self, db: &ReplicaDb, inode: &Inode) -> Result<Content> {
        let open = db.opens.get(&inode.ino).filter(|open| open.writers > 0);
        let stamp = match open {
            Some(_) if !self.uses_open_snapshots => return Ok(unknown(inode)),
            Some(open) => Some(ChangeStamp::of(&open.file).map_err(OpError::from)?),
            None => None,
        };
        if let Some(cached) = self.content_cache.lock().get(&inode.ino)
            && cached.is_valid_for(inode, stamp)
        {
            return Ok(cached.content.clone());
        }
        let Some(contents) = self.contents.filter(|_| open.is_none() && inode.size <= MAX_LOCKED_READ_BYTES)
        else {
            return Ok(unknown(inode));
        };
        let file = self.shared.files.existing(inode.ino).map_err(OpError::from)?;
        let content = identify(contents, &file).map_err(OpError::from)?;
        let cached = CachedContent { generation: inode.generation, content: content.clone(), open: None };
        self.content_cache.lock().insert(inode.ino, cached);
        Ok(content)
    }
}

/// Returns a placeholder for the content of a file that was not read, different from every other content.
pub(super) fn unknown(inode: &Inode) -> Content {
    let mut digest = [0xff; 32];
    digest[..8].copy_from_slice(&inode.ino.to_be_bytes());
    digest[8..16].copy_from_slice(&inode.generation.to_be_bytes());
    Content { size: inode.size, digest, layout: Layout::Inline(Vec::new()) }
}

fn identify(contents: &ContentStore, file: &File) -> std::io::Result<Content> {
    let (mut hasher, mut size) = (contents.hasher(), 0);
    let mut buffer = vec![0; 1 << 16];
    let mut file = file;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hasher.update(&buffer[..n]);
        size += n as u64;
    }
    if size == 0 {
        return Ok(Content::empty());
    }
    Ok(Content { size, digest: *hasher.finalize().as_bytes(), layout: Layout::Inline(Vec::new()) })
}

impl Trees for TreeView<'_> {
    fn local(&self, num: Ino) -> Result<Option<Object>, Errno> {
        self.read_db(|db| {
            let Some(inode) = db.find(num)? else { return Ok(None) };
            let mut object = db.object(&inode)?;
            let was_written = inode.maybe_dirty || inode.dirty.intersects(Dirty::CONTENT | Dirty::NEW);
            if inode.is_regular() && inode.state == CacheState::Complete && was_written {
                object.content = self.content(db, &inode)?;
                if self.uses_open_snapshots {
                    self.modified_while_open(db, &inode, &mut object)?;
                }
            }
            Ok(Some(object))
        })
    }

    fn base(&self, num: Ino) -> Result<Option<VersionedObject>, Errno> {
        self.read_db(|db| {
            let Some(inode) = db.find(num)? else { return Ok(None) };
            match db.base(num)? {
                Some(base) => Ok(base),
                None if inode.dirty.contains(Dirty::NEW) => Ok(None),
                None if inode.created_seq == Seq(0) && num != crate::replica::ROOT => Ok(None),
                None => db.stored(&inode).map(Some),
            }
        })
    }

    fn num(&self, id: ObjectId) -> Result<Option<Ino>, Errno> {
        self.read_db(|db| Ok(db.find_id(id)?.map(|inode| inode.ino)))
    }

    fn link(&self, tree: Tree, at: &DentryKey) -> Result<Option<(Ino, Seq)>, Errno> {
        self.read_db(|db| match tree {
            Tree::Local => match self.conflict_dirs.at(at) {
                Some(shown) => Ok(shown.remote.map(|num| (num, Seq(0)))),
                None => Ok(db.link_of(at.parent, &at.name)?.map(|(num, _)| (num, Seq(0)))),
            },
            Tree::Base if db.link_differs(at.parent, &at.name)? => db.base_link(at.parent, &at.name),
            Tree::Base if self.conflict_dirs.at(at).is_some() => Ok(None),
            Tree::Base => db.link_of(at.parent, &at.name),
        })
    }

    fn names(&self, tree: Tree, num: Ino) -> Result<Vec<DentryKey>, Errno> {
        self.read_db(|db| {
            let query = match tree {
                Tree::Local => "SELECT parent, name FROM link WHERE child = ?1",
                Tree::Base => {
                    "SELECT parent, name FROM base_link WHERE child = ?1
                     UNION ALL SELECT parent, name FROM link WHERE child = ?1 AND set_seq > 0 AND NOT EXISTS
                         (SELECT 1 FROM base_link b WHERE b.parent = link.parent AND b.name = link.name)"
                }
            };
            let mut query = db.db.prepare_cached(query)?;
            let rows = query.query_map([num as i64], |row| {
                Ok(DentryKey { parent: number(row.get(0)?), name: row.get(1)? })
            })?;
            let mut names: Vec<DentryKey> = rows.collect::<rusqlite::Result<_>>()?;
            names.retain(|at| !self.conflict_dirs.is_directory(at.parent));
            if tree == Tree::Local {
                names.retain(|at| self.conflict_dirs.at(at).is_none());
                names.extend(self.conflict_dirs.names_of(num));
            }
            Ok(names)
        })
    }

    fn children(&self, tree: Tree, parent: Ino) -> Result<Vec<(Vec<u8>, Ino)>, Errno> {
        self.read_db(|db| {
            let query = match tree {
                Tree::Local => "SELECT name, child FROM link WHERE parent = ?1",
                Tree::Base => {
                    "SELECT name, child FROM base_link WHERE parent = ?1 AND child IS NOT NULL
                     UNION ALL SELECT name, child FROM link WHERE parent = ?1 AND set_seq > 0 AND NOT EXISTS
                         (SELECT 1 FROM base_link b WHERE b.parent = link.parent AND b.name = link.name)"
                }
            };
            let mut query = db.db.prepare_cached(query)?;
            let rows =
                query.query_map(params![parent as i64], |row| Ok((row.get(0)?, number(row.get(1)?))))?;
            let mut children: Vec<(Vec<u8>, Ino)> = rows.collect::<rusqlite::Result<_>>()?;
            if tree == Tree::Local {
                children.retain(|(name, _)| {
                    let at = DentryKey { parent, name: name.clone() };
                    self.conflict_dirs.at(&at).is_none()
                });
                children.extend(self.conflict_dirs.children_of(parent));
            }
            Ok(children)
        })
    }

    fn conflict(&self, at: &DentryKey) -> Result<Option<Conflict>, Errno> {
        Ok(self.conflict_dirs.at(at).map(|shown| shown.conflict.clone()))
    }

    fn sides(&self, local: Ino) -> Result<Vec<DentryKey>, Errno> {
        Ok(self.conflict_dirs.sides(local))
    }

    fn version(&self, num: Ino) -> Result<u64, Errno> {
        self.read_db(|db| Ok(db.find(num)?.map_or(0, |inode| inode.generation)))
    }

    fn conflicts_in(&self, parent: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(self.conflict_dirs.within(parent).map(|(at, _)| at.name.clone()).collect())
    }

    fn conflicts(&self) -> Result<Vec<DentryKey>, Errno> {
        Ok(self.conflict_dirs.keys())
    }
}
