//! Conflict directories: local directories that replace conflicting names, which present both sides and are never pushed.

use std::collections::{BTreeMap, HashSet};

use rusqlite::params;

use crate::merge::{Conflict, DentryKey, Ino};
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::number;
use crate::replica::error::Result;

/// A conflict with the directory that presents it.
#[derive(Debug, Clone)]
pub(crate) struct ConflictDir {
    pub(crate) conflict: Conflict,
    /// The store's side: what the name refers to in the synchronised tree.
    pub(crate) remote: Option<Ino>,
    /// The conflict directory.
    pub(crate) directory: Ino,
}

/// All conflicts of a replica, expected to be few.
#[derive(Debug, Default)]
pub(crate) struct ConflictDirs {
    all: BTreeMap<DentryKey, ConflictDir>,
    directories: HashSet<Ino>,
}

impl ConflictDirs {
    pub(crate) fn all(db: &ReplicaDb) -> Result<Self> {
        let mut query = db.db.prepare_cached("SELECT n, parent, name, detail FROM conflict")?;
        let mut rows = query.query([])?;
        let mut shown = Self::default();
        while let Some(row) = rows.next()? {
            let at = DentryKey { parent: number(row.get(1)?), name: row.get(2)? };
            let (conflict, remote) = postcard::from_bytes(&row.get::<_, Vec<u8>>(3)?)?;
            let directory = number(row.get(0)?);
            shown.directories.insert(directory);
            shown.all.insert(at, ConflictDir { conflict, remote, directory });
        }
        Ok(shown)
    }

    pub(crate) fn set(&mut self, db: &mut ReplicaDb, at: &DentryKey, one: ConflictDir) -> Result<()> {
        db.begin()?;
        db.db
            .prepare_cached(
                "INSERT OR REPLACE INTO conflict (n, kind, parent, name, num_local, detail)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                one.directory as i64,
                one.conflict.kind as u8,
                at.parent as i64,
                at.name,
                one.conflict.local.map(|num| num as i64),
                postcard::to_stdvec(&(&one.conflict, one.remote))?
            ])?;
        self.directories.insert(one.directory);
        db.conflicts.insert(one.directory);
        self.all.insert(at.clone(), one);
        Ok(())
    }

    pub(crate) fn remove(&mut self, db: &mut ReplicaDb, at: &DentryKey) -> Result<()> {
        db.begin()?;
        if let Some(one) = self.all.remove(at) {
            db.db.prepare_cached("DELETE FROM conflict WHERE n = ?1")?.execute([one.directory as i64])?;
            self.directories.remove(&one.directory);
            db.conflicts.remove(&one.directory);
        }
        Ok(())
    }

    pub(crate) fn at(&self, at: &DentryKey) -> Option<&ConflictDir> {
        self.all.get(at)
    }

    pub(crate) fn keys(&self) -> Vec<DentryKey> {
        self.all.keys().cloned().collect()
    }

    pub(crate) fn directories(self) -> HashSet<Ino> {
        self.directories
    }

    pub(crate) fn list(self) -> Vec<(DentryKey, Conflict)> {
        self.all.into_iter().map(|(at, one)| (at, one.conflict)).collect()
    }

    /// Returns the name that a conflict directory replaces.
    pub(crate) fn of_directory(&self, num: Ino) -> Option<(&DentryKey, &ConflictDir)> {
        self.all.iter().find(|(_, one)| one.directory == num)
    }

    pub(crate) fn is_directory(&self, num: Ino) -> bool {
        self.directories.contains(&num)
    }

    pub(crate) fn names_of(&self, num: Ino) -> impl Iterator<Item = DentryKey> {
        self.all.iter().filter(move |(_, one)| one.remote == Some(num)).map(|(at, _)| at.clone())
    }

    pub(crate) fn children_of(&self, parent: Ino) -> impl Iterator<Item = (Vec<u8>, Ino)> {
        self.within(parent).filter_map(|(at, one)| Some((at.name.clone(), one.remote?)))
    }

    /// Returns the conflicts in a directory.
    pub(crate) fn within(&self, parent: Ino) -> impl Iterator<Item = (&DentryKey, &ConflictDir)> {
        let first = DentryKey { parent, name: Vec::new() };
        self.all.range(first..).take_while(move |(at, _)| at.parent == parent)
    }

    pub(crate) fn sides(&self, local: Ino) -> Vec<DentryKey> {
        let sides = self.all.iter().filter(|(_, one)| one.conflict.local == Some(local));
        sides.map(|(at, _)| at.clone()).collect()
    }
}

/// The inode numbers of all directories that show a conflict.
pub(crate) fn directories(db: &ReplicaDb) -> Result<HashSet<Ino>> {
    Ok(ConflictDirs::all(db)?.directories())
}
