//! Conflicts, as users speak of them: by path, and by the names of the machines.

use rusqlite::OptionalExtension as _;
use rustix::io::Errno;

use super::Replica;
use super::core::Core;
use super::error::{Done, Fail};
use super::node::{Node, ROOT, number};
use super::site::Shown;
use crate::id::{NodeName, ObjectId};
use crate::object::{LinkName, Time};
use crate::plan::{At, Conflict, ConflictKind, Side};

/// Two versions of one thing, in a directory that stands in its place.
#[derive(Debug, Clone)]
pub struct InConflict {
    /// Where it is in the plan's words.
    pub at: At,
    /// The same from the top directory, with `/` between names.
    pub path: Vec<u8>,
    /// What happened.
    pub kind: ConflictKind,
    /// When it was found here.
    pub since: Time,
    /// This node's side, and the store's.
    pub sides: [Version; 2],
}

/// One side of a conflict.
#[derive(Debug, Clone)]
pub struct Version {
    /// What it is called in the directory.
    pub name: Vec<u8>,
    /// Whose it is.
    pub side: Side,
    /// As it is; `None`: it was deleted.
    pub node: Option<Node>,
}

/// What the entries of a directory that shows a conflict are called: this node's side, and the store's.
pub(super) fn entries(own: &NodeName, conflict: &Conflict) -> [Vec<u8>; 2] {
    let mine = own.as_str().as_bytes().to_vec();
    let mut theirs = conflict.theirs.as_str().as_bytes().to_vec();
    if mine == theirs {
        theirs.extend_from_slice(b".store");
    }
    [mine, theirs]
}

impl Replica {
    /// All conflicts, in order of their directories.
    ///
    /// # Errors
    /// EIO.
    pub fn in_conflict(&self) -> Result<Vec<InConflict>, Errno> {
        let own = self.node_name();
        self.read(|core| {
            let shown = Shown::all(core)?;
            let mut all = Vec::new();
            for at in shown.places() {
                let Some(one) = shown.at(&at) else { continue };
                let [mine, theirs] = entries(own, &one.conflict);
                let mut version = |name, side, num: Option<u64>| -> Done<Version> {
                    let mut node = num.map(|num| core.find(num)).transpose()?.flatten();
                    if let Some(node) = &mut node {
                        core.overlay(node)?;
                    }
                    Ok(Version { name, side, node })
                };
                let sides = [
                    version(mine, Side::Mine, one.conflict.mine)?,
                    version(theirs, Side::Theirs, one.theirs)?,
                ];
                // Its time is never set again: nobody can change such a directory.
                let since = core.find(one.directory)?.map_or(Time(0), |node| node.modified);
                let mut path = core.path_of(at.parent)?;
                path.extend_from_slice(&at.name);
                all.push(InConflict { kind: one.conflict.kind, at, path, since, sides });
            }
            Ok(all)
        })
    }

    /// An object by what all nodes call it.
    ///
    /// # Errors
    /// EIO.
    pub fn find(&self, id: ObjectId) -> Result<Option<Node>, Errno> {
        self.read(|core| core.find_id(id))
    }

    /// A name that an object has in the store, as far as that is known here.
    ///
    /// # Errors
    /// EIO.
    pub fn agreed_place(&self, id: ObjectId) -> Result<Option<LinkName>, Errno> {
        self.read(|core| {
            let Some(node) = core.find_id(id)? else { return Ok(None) };
            let Some((mut parent, mut name)) = core.agreed_name(node.num)? else { return Ok(None) };
            if core.conflicts.contains(&parent) {
                let shown = Shown::all(core)?;
                let Some((at, _)) = shown.of_directory(parent) else { return Ok(None) };
                (parent, name) = (at.parent, at.name.clone());
            }
            Ok(core.find(parent)?.map(|directory| LinkName { parent: directory.id, name }))
        })
    }

    /// What a path from the top directory leads to; no symbolic link is followed.
    ///
    /// # Errors
    /// ENOENT, EIO.
    pub fn walk(&self, path: &[u8]) -> Result<Node, Errno> {
        self.read(|core| {
            let mut at = ROOT;
            for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
                (at, _) = core.link_of(at, name)?.ok_or(Fail::new(Errno::NOENT))?;
            }
            core.node(at)
        })
    }
}

impl Core {
    /// The name that both sides agreed on; where there is none, any.
    fn agreed_name(&self, num: u64) -> Done<Option<(u64, Vec<u8>)>> {
        let mut query = self.db.prepare_cached(
            "SELECT parent, name, 0 FROM base_link WHERE child = ?1
             UNION ALL SELECT parent, name, set_seq = 0 FROM link WHERE child = ?1 ORDER BY 3 LIMIT 1",
        )?;
        Ok(query.query_row([num as i64], |row| Ok((number(row.get(0)?), row.get(1)?))).optional()?)
    }

    /// The way from the top directory to another, with a `/` at its end; nothing for the top directory.
    pub(super) fn path_of(&self, num: u64) -> Done<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = num;
        // A tree that is not one would go on for ever.
        while at != ROOT && names.len() < 100_000 {
            let mut query =
                self.db.prepare_cached("SELECT parent, name FROM link WHERE child = ?1 LIMIT 1")?;
            let found = query.query_row([at as i64], |row| Ok((number(row.get(0)?), row.get(1)?)));
            let Some((parent, name)) = found.optional()? else { break };
            names.push(name);
            at = parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.extend_from_slice(name);
            path.push(b'/');
        }
        Ok(path)
    }
}
