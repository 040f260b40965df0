//! The garbage collector's lock in PostgreSQL: its fencing token is a counter that each acquisition increments, compared in the
//! transaction of each fenced change.

use super::PostgresStore;
use super::connection::fault;
use crate::gc_lock::{GC_LOCK_SETTING, GcLock, MOVES_SETTING, MovedChunk};
use crate::{ChunkLocation, StoreError};

type Columns<'a> = (Vec<&'a str>, Vec<i64>, Vec<i64>, Vec<i64>);

fn columns<'a>(locations: impl Iterator<Item = &'a ChunkLocation>) -> Columns<'a> {
    let mut columns = Columns::default();
    for ChunkLocation { key, offset, stored, length } in locations {
        columns.0.push(key);
        columns.1.push(*offset as i64);
        columns.2.push((*stored).into());
        columns.3.push((*length).into());
    }
    columns
}

impl GcLock for PostgresStore {
    fn acquire_gc_lock(&self) -> Result<u64, StoreError> {
        // May run twice if the answer was lost: a skipped token does no harm.
        let row = self.with(async |connection| {
            connection.client.query_one(&connection.ready.take_turn, &[&self.volume, &GC_LOCK_SETTING]).await
        })?;
        Ok(row.try_get::<_, i64>(0).map_err(fault)? as u64)
    }

    fn move_chunks(&self, token: u64, moved: &[MovedChunk]) -> Result<Option<u64>, StoreError> {
        let ids: Vec<&[u8]> = moved.iter().map(|moved| &moved.id.0[..]).collect();
        let (from, to) = (moved.iter().map(|moved| &moved.from), moved.iter().map(|moved| &moved.to));
        let ((keys, offsets, stored, lengths), to) = (columns(from), columns(to));
        let token = token.to_string();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 13] = [
            &self.volume,
            &GC_LOCK_SETTING,
            &token,
            &MOVES_SETTING,
            &ids,
            &keys,
            &offsets,
            &stored,
            &lengths,
            &to.0,
            &to.1,
            &to.2,
            &to.3,
        ];
        // Ordered like commits, which lock the same rows: prevents deadlocks.
        let row = self.with(async |connection| {
            connection.client.query_one(&connection.ready.move_chunks, &values).await
        })?;
        let is_done = row.try_get(0).map_err(fault)?;
        let done = row.try_get::<_, i64>(1).map_err(fault)? as u64;
        Ok(Some(done).filter(|_| is_done))
    }

    fn set_fenced(&self, token: u64, settings: &[(String, Option<String>)]) -> Result<bool, StoreError> {
        let (mut keys, mut values, mut removed) = (vec![], vec![], vec![]);
        for (key, value) in settings {
            match value {
                Some(value) => {
                    keys.push(key);
                    values.push(value);
                }
                None => removed.push(key),
            }
        }
        let token = token.to_string();
        self.with(async |connection| {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&self.volume, &GC_LOCK_SETTING, &token, &keys, &values, &removed];
            connection.client.query_one(&connection.ready.set_in_turn, &values).await?.try_get(0)
        })
    }
}
