//! Conflicts as users see them: by path, and by the names of the nodes.

use rusqlite::OptionalExtension as _;
use rustix::io::Errno;

use crate::id::{NodeName, ObjectId, Seq};
use crate::merge::{Conflict, ConflictKind, CycleDetector, DentryKey, Side};
use crate::object::{LinkName, Time};
use crate::replica::Replica;
use crate::replica::db::ReplicaDb;
use crate::replica::db::conflict_dirs::ConflictDirs;
use crate::replica::db::inode::{Inode, ROOT, number};
use crate::replica::error::{OpError, Result};

/// A conflict between two versions, with the directory that replaces them.
#[derive(Debug, Clone)]
pub struct ConflictInfo {
    /// The name, for the merge planner.
    pub at: DentryKey,
    /// The path from the root directory, with `/` between names.
    pub path: Vec<u8>,
    /// The kind of conflict.
    pub kind: ConflictKind,
    /// When it was detected here.
    pub since: Time,
    /// This node's side, and the store's.
    pub sides: [Version; 2],
}

/// One side of a conflict.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its name in the conflict directory.
    pub name: Vec<u8>,
    /// The side of the conflict.
    pub side: Side,
    /// The inode of this version; `None` if it was deleted.
    pub inode: Option<Inode>,
}

/// Returns the names of the entries of a conflict directory: this node's side, and the store's.
pub(crate) fn entries(own: &NodeName, conflict: &Conflict) -> [Vec<u8>; 2] {
    let local = own.as_str().as_bytes().to_vec();
    let mut remote = conflict.remote_node.as_str().as_bytes().to_vec();
    if local == remote {
        remote.extend_from_slice(b".store");
    }
    [local, remote]
}

impl Replica {
    /// Returns all conflicts, in the order of their directories.
    ///
    /// # Errors
    /// EIO.
    pub fn conflicts_with_paths(&self) -> Result<Vec<ConflictInfo>, Errno> {
        let own = self.node_name();
        self.read(|db| {
            let shown = ConflictDirs::all(db)?;
            let mut all = Vec::new();
            for at in shown.keys() {
                let Some(one) = shown.at(&at) else { continue };
                let [local, remote] = entries(own, &one.conflict);
                let mut version = |name, side, num: Option<u64>| -> Result<Version> {
                    let mut inode = num.map(|num| db.find(num)).transpose()?.flatten();
                    if let Some(inode) = &mut inode {
                        db.overlay(inode)?;
                    }
                    Ok(Version { name, side, inode })
                };
                let sides = [
                    version(local, Side::Local, one.conflict.local)?,
                    version(remote, Side::Remote, one.remote)?,
                ];
                // The directory's time is never set again, because no process can change it.
                let since = db.find(one.directory)?.map_or(Time(0), |inode| inode.modified);
                let mut path = db.path_of(at.parent)?;
                path.extend_from_slice(&at.name);
                all.push(ConflictInfo { kind: one.conflict.kind, at, path, since, sides });
            }
            Ok(all)
        })
    }

    /// Returns the inode of an object id, which is the same on all nodes.
    ///
    /// # Errors
    /// EIO.
    pub fn find(&self, id: ObjectId) -> Result<Option<Inode>, Errno> {
        self.read(|db| db.find_id(id))
    }

    /// Returns the names that an object has in the store, as far as this node has read the log, with the commits that set
    /// them.
    ///
    /// # Errors
    /// EIO.
    pub fn agreed_names(&self, id: ObjectId) -> Result<Vec<(LinkName, Seq)>, Errno> {
        self.read(|db| {
            let Some(inode) = db.find_id(id)? else { return Ok(Vec::new()) };
            let mut query = db.db.prepare_cached(
                "SELECT parent, name, set_seq FROM base_link WHERE child = ?1
                 UNION ALL SELECT parent, name, set_seq FROM link WHERE child = ?1 AND set_seq > 0",
            )?;
            let rows = query.query_map([inode.ino as i64], |row| {
                Ok((number(row.get(0)?), row.get::<_, Vec<u8>>(1)?, Seq(number(row.get(2)?))))
            })?;
            let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            drop(query);
            let mut names = Vec::new();
            for (parent, name, set) in rows {
                if let Some(directory) = db.find(parent)? {
                    names.push((LinkName { parent: directory.id, name }, set));
                }
            }
            Ok(names)
        })
    }

    /// Resolves a path from the root directory, without following symbolic links.
    ///
    /// # Errors
    /// ENOENT, EIO.
    pub fn walk(&self, path: &[u8]) -> Result<Inode, Errno> {
        self.read(|db| {
            let mut at = ROOT;
            for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
                (at, _) = db.link_of(at, name)?.ok_or(OpError::new(Errno::NOENT))?;
            }
            db.inode(at)
        })
    }
}

impl ReplicaDb {
    /// Returns the path of an object from the root directory, which itself has an empty path.
    pub(crate) fn path(&self, num: u64) -> Result<Vec<u8>> {
        let mut path = self.path_of(num)?;
        path.pop();
        Ok(path)
    }

    /// Returns the path of a directory with a `/` at its end; empty for the root directory.
    pub(crate) fn path_of(&self, num: u64) -> Result<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let (mut at, mut detector) = (num, CycleDetector::default());
        // A cycle in the tree would make the walk endless.
        while at != ROOT && !detector.closes_cycle(at) {
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
