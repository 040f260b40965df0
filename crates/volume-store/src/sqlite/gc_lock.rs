//! The garbage collector's lock in SQLite: its fencing token is a counter that each acquisition increments, compared in the
//! transaction of each fenced change.

use rusqlite::{Connection, TransactionBehavior, params};

use super::admin::{count, set, setting};
use super::{SqliteStore, fault};
use crate::StoreError;
use crate::gc_lock::{GC_LOCK_SETTING, GcLock, MOVES_SETTING, MovedChunk};

fn is_current_token(db: &Connection, token: u64) -> Result<bool, StoreError> {
    Ok(setting(db, GC_LOCK_SETTING)? == Some(token.to_string()))
}

impl GcLock for SqliteStore {
    fn acquire_gc_lock(&self) -> Result<u64, StoreError> {
        let mut writer = self.writer.lock();
        let all = writer.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        let token = count(&all, GC_LOCK_SETTING)?;
        all.commit().map_err(fault)?;
        Ok(token)
    }

    fn move_chunks(&self, token: u64, moved: &[MovedChunk]) -> Result<Option<u64>, StoreError> {
        let mut writer = self.writer.lock();
        let all = writer.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        if !is_current_token(&all, token)? {
            return Ok(None);
        }
        let mut done = 0;
        {
            let sql = "UPDATE chunk SET key = ?2, place = ?3, stored = ?4, length = ?5
                 WHERE id = ?1 AND key = ?6 AND place = ?7 AND stored = ?8 AND length = ?9";
            let mut statement = all.prepare_cached(sql).map_err(fault)?;
            for MovedChunk { id, from, to } in moved {
                let (was, is) = (from.offset as i64, to.offset as i64);
                let values =
                    params![id.0, to.key, is, to.stored, to.length, from.key, was, from.stored, from.length];
                done += statement.execute(values).map_err(fault)? as u64;
            }
        }
        count(&all, MOVES_SETTING)?;
        all.commit().map_err(fault)?;
        Ok(Some(done))
    }

    fn set_fenced(&self, token: u64, settings: &[(String, Option<String>)]) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock();
        let all = writer.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        if !is_current_token(&all, token)? {
            return Ok(false);
        }
        for (key, value) in settings {
            match value {
                Some(value) => set(&all, key, value)?,
                None => drop(all.execute("DELETE FROM setting WHERE key = ?", [key]).map_err(fault)?),
            }
        }
        all.commit().map_err(fault)?;
        Ok(true)
    }
}
