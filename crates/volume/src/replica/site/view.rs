//! Both trees, read from the tables.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Read as _;

use rusqlite::params;
use rustix::io::Errno;

use super::open::Stamp;
use super::{Known, Shown, Told};
use crate::content::ContentStore;
use crate::id::{ObjectId, Seq};
use crate::object::{Content, Layout, Object, Stored};
use crate::plan::{At, Conflict, Num, Tree, Trees};
use crate::replica::core::Core;
use crate::replica::error::{Done, Fail};
use crate::replica::node::{Dirty, Node, number};
use crate::replica::{Shared, State};

/// A file that is longer is not read while the replica is locked: as long as nobody sent it, it differs from all others.
const READ_AT_ONCE: u64 = 16 << 20;

pub(super) struct View<'a> {
    pub(super) core: RefCell<&'a mut Core>,
    shared: &'a Shared,
    known: &'a Known,
    contents: Option<&'a ContentStore>,
    shown: &'a Shown,
    /// A file that is being written is what it held when that was last looked at, as long as it looks the same. Only for
    /// what is to be sent: for what comes, it differs from everything.
    pub(super) sees_open: bool,
    failed: Cell<Option<Errno>>,
}

impl<'a> View<'a> {
    pub(super) fn new(
        core: &'a mut Core,
        shared: &'a Shared,
        known: &'a Known,
        contents: Option<&'a ContentStore>,
        shown: &'a Shown,
    ) -> Self {
        Self {
            core: RefCell::new(core),
            shared,
            known,
            contents,
            shown,
            sees_open: false,
            failed: Cell::new(None),
        }
    }

    pub(super) fn known(&self) -> &Known {
        self.known
    }

    pub(super) fn new_number(&self) -> Num {
        self.core.borrow_mut().new_number().unwrap_or_else(|fail| {
            self.failed.set(Some(fail.errno));
            0
        })
    }

    /// Whether all numbers could be had.
    pub(super) fn check(&self) -> Result<(), Errno> {
        self.failed.get().map_or(Ok(()), Err)
    }

    fn ask<T>(&self, ask: impl FnOnce(&mut Core) -> Done<T>) -> Result<T, Errno> {
        ask(&mut self.core.borrow_mut()).map_err(|fail| fail.errno)
    }

    /// What a file holds that was changed here. The layout is of no interest.
    fn content(&self, core: &Core, node: &Node) -> Done<Content> {
        let open = core.opens.get(&node.num).filter(|open| open.writers > 0);
        let stamp = match open {
            Some(_) if !self.sees_open => return Ok(unknown(node)),
            Some(open) => Some(Stamp::of(&open.file).map_err(Fail::from)?),
            None => None,
        };
        if let Some(told) = self.known.lock().get(&node.num)
            && told.holds(node, stamp)
        {
            return Ok(told.content.clone());
        }
        let Some(contents) = self.contents.filter(|_| open.is_none() && node.size <= READ_AT_ONCE) else {
            return Ok(unknown(node));
        };
        let file = self.shared.files.existing(node.num).map_err(Fail::from)?;
        let content = identify(contents, &file).map_err(Fail::from)?;
        let told = Told { generation: node.generation, content: content.clone(), open: None };
        self.known.lock().insert(node.num, told);
        Ok(content)
    }
}

/// What a file holds that nobody looked at: different from everything else.
pub(super) fn unknown(node: &Node) -> Content {
    let mut digest = [0xff; 32];
    digest[..8].copy_from_slice(&node.num.to_be_bytes());
    digest[8..16].copy_from_slice(&node.generation.to_be_bytes());
    Content { size: node.size, digest, layout: Layout::Inline(Vec::new()) }
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

impl Trees for View<'_> {
    fn local(&self, num: Num) -> Result<Option<Object>, Errno> {
        self.ask(|core| {
            let Some(node) = core.find(num)? else { return Ok(None) };
            let mut object = core.object(&node)?;
            let was_written = node.maybe_dirty || node.dirty.intersects(Dirty::CONTENT | Dirty::NEW);
            if node.is_regular() && node.state == State::Complete && was_written {
                object.content = self.content(core, &node)?;
                if self.sees_open {
                    self.modified_while_open(core, &node, &mut object)?;
                }
            }
            Ok(Some(object))
        })
    }

    fn base(&self, num: Num) -> Result<Option<Stored>, Errno> {
        self.ask(|core| {
            let Some(node) = core.find(num)? else { return Ok(None) };
            match core.base(num)? {
                Some(base) => Ok(base),
                None if node.dirty.contains(Dirty::NEW) => Ok(None),
                None if node.made == Seq(0) && num != super::super::ROOT => Ok(None),
                None => core.stored(&node).map(Some),
            }
        })
    }

    fn num(&self, id: ObjectId) -> Result<Option<Num>, Errno> {
        self.ask(|core| Ok(core.find_id(id)?.map(|node| node.num)))
    }

    fn link(&self, tree: Tree, at: &At) -> Result<Option<(Num, Seq)>, Errno> {
        self.ask(|core| match tree {
            Tree::Local => match self.shown.at(at) {
                Some(shown) => Ok(shown.theirs.map(|num| (num, Seq(0)))),
                None => Ok(core.link_of(at.parent, &at.name)?.map(|(num, _)| (num, Seq(0)))),
            },
            Tree::Base if core.link_differs(at.parent, &at.name)? => core.base_link(at.parent, &at.name),
            Tree::Base if self.shown.at(at).is_some() => Ok(None),
            Tree::Base => core.link_of(at.parent, &at.name),
        })
    }

    fn names(&self, tree: Tree, num: Num) -> Result<Vec<At>, Errno> {
        self.ask(|core| {
            let query = match tree {
                Tree::Local => "SELECT parent, name FROM link WHERE child = ?1",
                Tree::Base => {
                    "SELECT parent, name FROM base_link WHERE child = ?1
                     UNION ALL SELECT parent, name FROM link WHERE child = ?1 AND set_seq > 0 AND NOT EXISTS
                         (SELECT 1 FROM base_link b WHERE b.parent = link.parent AND b.name = link.name)"
                }
            };
            let mut query = core.db.prepare_cached(query)?;
            let rows = query
                .query_map([num as i64], |row| Ok(At { parent: number(row.get(0)?), name: row.get(1)? }))?;
            let mut names: Vec<At> = rows.collect::<rusqlite::Result<_>>()?;
            names.retain(|at| !self.shown.is_directory(at.parent));
            if tree == Tree::Local {
                names.retain(|at| self.shown.at(at).is_none());
                names.extend(self.shown.names_of(num));
            }
            Ok(names)
        })
    }

    fn children(&self, tree: Tree, parent: Num) -> Result<Vec<(Vec<u8>, Num)>, Errno> {
        self.ask(|core| {
            let query = match tree {
                Tree::Local => "SELECT name, child FROM link WHERE parent = ?1",
                Tree::Base => {
                    "SELECT name, child FROM base_link WHERE parent = ?1 AND child IS NOT NULL
                     UNION ALL SELECT name, child FROM link WHERE parent = ?1 AND set_seq > 0 AND NOT EXISTS
                         (SELECT 1 FROM base_link b WHERE b.parent = link.parent AND b.name = link.name)"
                }
            };
            let mut query = core.db.prepare_cached(query)?;
            let rows =
                query.query_map(params![parent as i64], |row| Ok((row.get(0)?, number(row.get(1)?))))?;
            let mut children: Vec<(Vec<u8>, Num)> = rows.collect::<rusqlite::Result<_>>()?;
            if tree == Tree::Local {
                children.retain(|(name, _)| {
                    let at = At { parent, name: name.clone() };
                    self.shown.at(&at).is_none()
                });
                children.extend(self.shown.children_of(parent));
            }
            Ok(children)
        })
    }

    fn conflict(&self, at: &At) -> Result<Option<Conflict>, Errno> {
        Ok(self.shown.at(at).map(|shown| shown.conflict.clone()))
    }

    fn sides(&self, mine: Num) -> Result<Vec<At>, Errno> {
        Ok(self.shown.sides(mine))
    }

    fn version(&self, num: Num) -> Result<u64, Errno> {
        self.ask(|core| Ok(core.find(num)?.map_or(0, |node| node.generation)))
    }

    fn conflicts_in(&self, parent: Num) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(self.shown.within(parent).map(|(at, _)| at.name.clone()).collect())
    }

    fn conflicts(&self) -> Result<Vec<At>, Errno> {
        Ok(self.shown.places())
    }
}
