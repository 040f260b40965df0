//! Past versions in SQLite, from the tables of superseded objects and links, and from the current ones.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use shunt_volume_types::id::{ObjectId, Seq};
use shunt_volume_types::object::{LinkName, StoredLink, Time, VersionedObject};

use super::rows::Table;
use super::{SqliteStore, fault};
use crate::history::{History, MAX_VERSIONS, PastLink, Version};
use crate::transaction::Rows as _;
use crate::{StoreError, codec};

fn link(row: &Row<'_>) -> rusqlite::Result<StoredLink> {
    let at = LinkName { parent: ObjectId::from_bytes(row.get(0)?), name: row.get(1)? };
    Ok(StoredLink { at, child: ObjectId::from_bytes(row.get(2)?), set: Seq(row.get::<_, i64>(3)? as u64) })
}

fn past(row: &Row<'_>) -> rusqlite::Result<PastLink> {
    Ok(PastLink { link: link(row)?, until: Seq(row.get::<_, i64>(4)? as u64) })
}

fn commit_info(
    db: &Connection,
    since: Seq,
) -> Result<Option<(Time, shunt_volume_types::id::NodeName)>, StoreError> {
    let mut query = db.prepare_cached("SELECT at, node FROM log WHERE seq = ?").map_err(fault)?;
    let found = query.query_row([since.0 as i64], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)));
    let found = found.optional().map_err(fault)?;
    Ok(found.and_then(|(at, node)| Some((Time(at), node.parse().ok()?))))
}

fn seq(at: Seq) -> i64 {
    at.0.min(i64::MAX as u64) as i64
}

impl History for SqliteStore {
    fn complete_since(&self) -> Result<Seq, StoreError> {
        self.read(|db| {
            let kept = db.query_row("SELECT kept FROM about", [], |row| row.get::<_, i64>(0));
            kept.map(|kept| Seq(kept as u64)).map_err(fault)
        })
    }

    fn object_at(&self, id: ObjectId, at: Seq) -> Result<Option<VersionedObject>, StoreError> {
        self.read(|db| {
            let sql = "SELECT body FROM past_object WHERE id = ? AND until > ? ORDER BY until LIMIT 1";
            let mut query = db.prepare_cached(sql).map_err(fault)?;
            let body: Option<Vec<u8>> = query
                .query_row(params![id.to_bytes(), seq(at)], |row| row.get(0))
                .optional()
                .map_err(fault)?;
            let stored = match body {
                Some(body) => Some(codec::decode("a version of an object", &body)?),
                None => Table(db).object(id)?.map(|row| row.stored),
            };
            Ok(stored.filter(|stored: &VersionedObject| stored.since() <= at))
        })
    }

    fn link_at(&self, name: &LinkName, at: Seq) -> Result<Option<StoredLink>, StoreError> {
        self.read(|db| {
            let sql = "SELECT parent, name, child, since FROM past_link
                 WHERE parent = ?1 AND name = ?2 AND until > ?3 AND since <= ?3
                 UNION ALL SELECT parent, name, child, seq FROM link WHERE parent = ?1 AND name = ?2 AND seq <= ?3
                 LIMIT 1";
            let mut query = db.prepare_cached(sql).map_err(fault)?;
            query
                .query_row(params![name.parent.to_bytes(), name.name, seq(at)], link)
                .optional()
                .map_err(fault)
        })
    }

    fn links_at(
        &self,
        parent: ObjectId,
        at: Seq,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<StoredLink>, StoreError> {
        self.read(|db| {
            let sql = "SELECT parent, name, child, since FROM past_link
                 WHERE parent = ?1 AND name > ?2 AND until > ?3 AND since <= ?3
                 UNION ALL SELECT parent, name, child, seq FROM link WHERE parent = ?1 AND name > ?2 AND seq <= ?3
                 ORDER BY 2 LIMIT ?4";
            let mut query = db.prepare_cached(sql).map_err(fault)?;
            let limit = limit.min(u32::MAX as usize) as i64;
            let found = query.query_map(params![parent.to_bytes(), after, seq(at), limit], link);
            found.and_then(|found| found.collect()).map_err(fault)
        })
    }

    fn versions(&self, id: ObjectId) -> Result<Vec<Version>, StoreError> {
        self.read(|db| {
            let mut versions = Vec::new();
            let mut add = |stored: VersionedObject, until| -> Result<(), StoreError> {
                let since = stored.since();
                versions.push(Version { by: commit_info(db, since)?, stored, since, until });
                Ok(())
            };
            if let Some(row) = Table(db).object(id)? {
                add(row.stored, None)?;
            }
            let sql = "SELECT until, body FROM past_object WHERE id = ? ORDER BY until DESC LIMIT ?";
            let mut query = db.prepare_cached(sql).map_err(fault)?;
            let mut found = query.query(params![id.to_bytes(), MAX_VERSIONS as i64]).map_err(fault)?;
            while let Some(row) = found.next().map_err(fault)? {
                let until = Seq(row.get::<_, i64>(0).map_err(fault)? as u64);
                let body: Vec<u8> = row.get(1).map_err(fault)?;
                add(codec::decode("a version of an object", &body)?, Some(until))?;
            }
            Ok(versions)
        })
    }

    fn past_of_name(&self, name: &LinkName) -> Result<Vec<PastLink>, StoreError> {
        self.read(|db| {
            let sql = "SELECT parent, name, child, since, until FROM past_link WHERE parent = ? AND name = ?
                 ORDER BY until DESC LIMIT ?";
            let mut query = db.prepare_cached(sql).map_err(fault)?;
            let found =
                query.query_map(params![name.parent.to_bytes(), name.name, MAX_VERSIONS as i64], past);
            found.and_then(|found| found.collect()).map_err(fault)
        })
    }

    fn past_names(&self, ids: &[ObjectId]) -> Result<Vec<PastLink>, StoreError> {
        self.read(|db| {
            let sql = "SELECT parent, name, child, since, until FROM past_link WHERE child = ? LIMIT ?";
            let mut query = db.prepare_cached(sql).map_err(fault)?;
            let mut all = Vec::new();
            for id in ids {
                let found =
                    query.query_map(params![id.to_bytes(), MAX_VERSIONS as i64], past).map_err(fault)?;
                for one in found {
                    all.push(one.map_err(fault)?);
                }
            }
            Ok(all)
        })
    }
}
