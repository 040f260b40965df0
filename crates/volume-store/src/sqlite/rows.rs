//! Rows in SQLite: read for a commit, and written after it within the same transaction.

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use shunt_volume_types::id::{NodeName, ObjectId, Seq};
use shunt_volume_types::object::{LinkName, Time, VersionedObject};

use super::fault;
use crate::transaction::{BatchChanges, Row, Rows};
use crate::{StoreError, codec};

/// The rows that a connection reads.
pub(super) struct Table<'a>(pub &'a Connection);

impl Rows for Table<'_> {
    fn object(&mut self, id: ObjectId) -> Result<Option<Row>, StoreError> {
        let mut query =
            self.0.prepare_cached("SELECT parent, names, body FROM object WHERE id = ?").map_err(fault)?;
        let found = query
            .query_row([id.to_bytes()], |row| {
                Ok((row.get::<_, Option<[u8; 16]>>(0)?, row.get::<_, i64>(1)?, row.get::<_, Vec<u8>>(2)?))
            })
            .optional()
            .map_err(fault)?;
        found
            .map(|(parent, names, body)| {
                let stored: VersionedObject = codec::decode("an object", &body)?;
                Ok(Row { stored, parent: parent.map(ObjectId::from_bytes), names: names.max(0) as u64 })
            })
            .transpose()
    }

    fn link(&mut self, at: &LinkName) -> Result<Option<(ObjectId, Seq)>, StoreError> {
        let mut query = self
            .0
            .prepare_cached("SELECT child, seq FROM link WHERE parent = ? AND name = ?")
            .map_err(fault)?;
        query
            .query_row(params![at.parent.to_bytes(), at.name], |row| {
                Ok((ObjectId::from_bytes(row.get(0)?), Seq(row.get::<_, i64>(1)? as u64)))
            })
            .optional()
            .map_err(fault)
    }
}

pub(super) fn put_object(db: &Connection, row: &Row, was: bool) -> rusqlite::Result<()> {
    let body = codec::encode(&row.stored);
    let parent = row.parent.map(ObjectId::to_bytes);
    let id = row.stored.object.id.to_bytes();
    let sql = if was {
        "UPDATE object SET parent = ?2, names = ?3, body = ?4 WHERE id = ?1"
    } else {
        "INSERT INTO object (id, parent, names, body) VALUES (?1, ?2, ?3, ?4)"
    };
    db.prepare_cached(sql)?.execute(params![id, parent, row.names as i64, body])?;
    Ok(())
}

pub(super) fn write(
    db: &Transaction<'_>,
    node: &NodeName,
    at: Time,
    written: &BatchChanges<'_>,
) -> rusqlite::Result<()> {
    let mut delete = db.prepare_cached("DELETE FROM object WHERE id = ?")?;
    for id in &written.deleted_objects {
        delete.execute([id.to_bytes()])?;
    }
    for (row, was) in &written.objects {
        put_object(db, row, *was)?;
    }
    let mut unlink = db.prepare_cached("DELETE FROM link WHERE parent = ? AND name = ?")?;
    for at in &written.deleted_links {
        unlink.execute(params![at.parent.to_bytes(), at.name])?;
    }
    let mut link = db.prepare_cached("REPLACE INTO link (parent, name, child, seq) VALUES (?, ?, ?, ?)")?;
    for (at, child, seq, _) in &written.links {
        link.execute(params![at.parent.to_bytes(), at.name, child.to_bytes(), seq.0 as i64])?;
    }
    let mut chunk = db.prepare_cached(
        "INSERT INTO chunk (id, key, place, stored, length) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET key = excluded.key, place = excluded.place, stored = excluded.stored,
             length = excluded.length, gone = NULL WHERE gone IS NOT NULL",
    )?;
    for (id, location) in &written.chunks {
        chunk.execute(params![
            id.0,
            location.key,
            location.offset as i64,
            location.stored,
            location.length
        ])?;
    }
    let mut log = db.prepare_cached("INSERT INTO log (seq, node, at, change) VALUES (?, ?, ?, ?)")?;
    for (seq, change) in &written.log {
        log.execute(params![seq.0 as i64, node.as_str(), at.0, codec::encode(change)])?;
    }
    let mut past = db.prepare_cached("INSERT INTO past_object (id, until, body) VALUES (?, ?, ?)")?;
    for (stored, until) in &written.past_objects {
        past.execute(params![stored.object.id.to_bytes(), until.0 as i64, codec::encode(stored)])?;
    }
    let mut past = db
        .prepare_cached("INSERT INTO past_link (parent, name, until, since, child) VALUES (?, ?, ?, ?, ?)")?;
    for (name, child, since, until) in &written.past_links {
        let (parent, child) = (name.parent.to_bytes(), child.to_bytes());
        past.execute(params![parent, name.name, until.0 as i64, since.0 as i64, child])?;
    }
    db.prepare_cached("UPDATE about SET head = ?, latest = ?")?.execute([written.head.0 as i64, at.0])?;
    Ok(())
}
