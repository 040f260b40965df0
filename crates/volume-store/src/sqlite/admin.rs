//! The administrative half of the SQLite engine. Each call that writes is one transaction.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use shunt_volume_types::id::{ObjectId, Seq};
use shunt_volume_types::object::{ChunkId, Time, VersionedObject};

use super::rows::{Table, put_object};
use super::{SqliteStore, fault, forgotten, head};
use crate::admin::{Chunk, ObjectRecord, StoreAdmin};
use crate::transaction::Rows;
use crate::{ChunkLocation, StoreError, codec};

impl SqliteStore {
    /// Executes a statement for each chunk, in one transaction.
    fn each(&self, chunks: &[ChunkId], sql: &str, at: Option<Time>) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let all = writer.transaction().map_err(fault)?;
        {
            let mut statement = all.prepare_cached(sql).map_err(fault)?;
            for id in chunks {
                statement.execute(params![id.0, at.map(|at| at.0)]).map_err(fault)?;
            }
        }
        all.commit().map_err(fault)
    }
}

pub(super) fn setting(db: &Connection, key: &str) -> Result<Option<String>, StoreError> {
    let found = db.query_row("SELECT value FROM setting WHERE key = ?", [key], |row| row.get(0));
    found.optional().map_err(fault)
}

pub(super) fn set(db: &Connection, key: &str, value: &str) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)";
    db.prepare_cached(sql).and_then(|mut set| set.execute([key, value])).map(drop).map_err(fault)
}

/// Increments a counter stored as a setting.
pub(super) fn count(db: &Connection, key: &str) -> Result<u64, StoreError> {
    let so_far = setting(db, key)?.map_or(Ok(0), |value| {
        value
            .parse::<u64>()
            .map_err(|_| StoreError::Damaged(format!("setting {key} has the invalid value {value:?}")))
    })?;
    let next = so_far.saturating_add(1);
    set(db, key, &next.to_string())?;
    Ok(next)
}

fn ids(db: &Connection, from: ObjectId, limit: usize) -> rusqlite::Result<Vec<ObjectId>> {
    let mut query = db.prepare_cached("SELECT id FROM object WHERE id >= ? ORDER BY id LIMIT ?")?;
    query
        .query_map(params![from.to_bytes(), limit as i64], |row| row.get(0).map(ObjectId::from_bytes))?
        .collect()
}

impl StoreAdmin for SqliteStore {
    fn scan_records(
        &self,
        from: ObjectId,
        limit: usize,
    ) -> Result<(Vec<ObjectRecord>, Option<ObjectId>), StoreError> {
        let limit = limit.clamp(1, u32::MAX as usize);
        self.read(|db| {
            let mut ids = ids(db, from, limit + 1).map_err(fault)?;
            let next = (ids.len() > limit).then(|| ids.pop()).flatten();
            let mut kept = Vec::with_capacity(ids.len());
            for id in ids {
                // Objects deleted since then are skipped.
                kept.extend(Table(db).object(id)?.map(ObjectRecord::from));
            }
            Ok((kept, next))
        })
    }

    fn scan_chunks(&self, after: ChunkId, limit: usize) -> Result<Vec<(ChunkId, Chunk)>, StoreError> {
        self.read(|db| {
            let sql =
                "SELECT id, key, place, stored, length, gone FROM chunk WHERE id > ? ORDER BY id LIMIT ?";
            let mut query = db.prepare_cached(sql).map_err(fault)?;
            let found = query.query_map(params![after.0, limit.min(u32::MAX as usize) as i64], |row| {
                let offset = row.get::<_, i64>(2)? as u64;
                let location =
                    ChunkLocation { key: row.get(1)?, offset, stored: row.get(3)?, length: row.get(4)? };
                Ok((
                    ChunkId(row.get(0)?),
                    Chunk { location, marked_at: row.get::<_, Option<i64>>(5)?.map(Time) },
                ))
            });
            found.and_then(|found| found.collect()).map_err(fault)
        })
    }

    fn mark_for_deletion(&self, chunks: &[ChunkId], at: Time) -> Result<(), StoreError> {
        self.each(chunks, "UPDATE chunk SET gone = ?2 WHERE id = ?1 AND gone IS NULL", Some(at))
    }

    fn unmark(&self, chunks: &[ChunkId]) -> Result<(), StoreError> {
        self.each(chunks, "UPDATE chunk SET gone = ?2 WHERE id = ?1", None)
    }

    fn drop_chunks(&self, chunks: &[ChunkId], marked_before: Time) -> Result<(), StoreError> {
        self.each(chunks, "DELETE FROM chunk WHERE id = ?1 AND gone <= ?2", Some(marked_before))
    }

    fn settings(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.read(|db| {
            let sql = "SELECT key, value FROM setting WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key";
            let mut query = db.prepare_cached(sql).map_err(fault)?;
            let found = query.query_map([prefix], |row| Ok((row.get(0)?, row.get(1)?)));
            found.and_then(|found| found.collect()).map_err(fault)
        })
    }

    fn truncated_up_to(&self) -> Result<Seq, StoreError> {
        self.read(forgotten)
    }

    fn truncate_log(&self, before: Time, min_entries: u64) -> Result<Seq, StoreError> {
        let mut writer = self.writer.lock();
        let all = writer.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        let last = head(&all)?.0.saturating_sub(min_entries);
        // The clock may have been set back: the log is truncated before the first entry that is young enough.
        let young = "SELECT min(seq) FROM log WHERE at >= ?";
        let young = all.query_row(young, [before.0], |row| row.get::<_, Option<i64>>(0)).map_err(fault)?;
        let up_to = young.map_or(last, |young| last.min(young as u64 - 1));
        let old = forgotten(&all)?;
        if up_to <= old.0 {
            return Ok(old);
        }
        all.execute("UPDATE about SET forgotten = ?", [up_to as i64]).map_err(fault)?;
        all.execute("DELETE FROM log WHERE seq <= ?", [up_to as i64]).map_err(fault)?;
        all.commit().map_err(fault)?;
        Ok(Seq(up_to))
    }

    fn scan_past(
        &self,
        after: (ObjectId, Seq),
        limit: usize,
    ) -> Result<Vec<(VersionedObject, Seq)>, StoreError> {
        self.read(|db| {
            let sql =
                "SELECT until, body FROM past_object WHERE (id, until) > (?, ?) ORDER BY id, until LIMIT ?";
            let mut query = db.prepare_cached(sql).map_err(fault)?;
            let limit = limit.min(u32::MAX as usize) as i64;
            let mut found =
                query.query(params![after.0.to_bytes(), after.1.0 as i64, limit]).map_err(fault)?;
            let mut past = Vec::new();
            while let Some(row) = found.next().map_err(fault)? {
                let body: Vec<u8> = row.get(1).map_err(fault)?;
                let until = Seq(row.get::<_, i64>(0).map_err(fault)? as u64);
                past.push((codec::decode("a version of an object", &body)?, until));
            }
            Ok(past)
        })
    }

    fn delete_history(&self, up_to: Seq, versions: Option<u32>) -> Result<u64, StoreError> {
        let mut writer = self.writer.lock();
        let all = writer.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        let up_to = up_to.0.min(i64::MAX as u64) as i64;
        let run = |sql: &str, value: i64| all.execute(sql, [value]).map_err(fault);
        let mut deleted = run("DELETE FROM past_object WHERE until <= ?", up_to)?;
        deleted += run("DELETE FROM past_link WHERE until <= ?", up_to)?;
        run("UPDATE about SET kept = max(kept, ?)", up_to)?;
        if let Some(versions) = versions {
            let sql = "DELETE FROM past_object WHERE n IN (SELECT n FROM (
                     SELECT n, row_number() OVER (PARTITION BY id ORDER BY until DESC) AS place FROM past_object)
                 WHERE place > ?)";
            deleted += run(sql, versions.into())?;
        }
        all.commit().map_err(fault)?;
        Ok(deleted as u64)
    }

    fn setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.read(|db| setting(db, key))
    }

    fn set_setting(&self, key: &str, value: &str) -> Result<(), StoreError> {
        set(&self.writer.lock(), key, value)
    }

    fn repair_counts(&self, at: Seq, counts: &HashMap<ObjectId, (u32, u64)>) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock();
        let all = writer.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        if head(&all)? != at {
            return Ok(false);
        }
        for (id, (links, names)) in counts {
            if let Some(mut row) = Table(&all).object(*id)? {
                (row.stored.links, row.names) = (*links, *names);
                put_object(&all, &row, true).map_err(fault)?;
            }
        }
        all.commit().map_err(fault)?;
        Ok(true)
    }

    fn replace_descriptor(&self, at: Seq, descriptor: &[u8]) -> Result<bool, StoreError> {
        let sql = "UPDATE about SET description = ? WHERE head = ?";
        let changed = self.writer.lock().execute(sql, params![descriptor, at.0 as i64]).map_err(fault)?;
        Ok(changed > 0)
    }
}
