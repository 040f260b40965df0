//! The administrative half of the PostgreSQL engine: each call is one statement, except trimming and repair.

use std::collections::HashMap;

use shunt_volume_types::id::{ObjectId, Seq};
use shunt_volume_types::object::{ChunkId, Time, VersionedObject};
use shunt_volume_types::runtime::runtime;

use super::connection::{Connection, fault, in_time};
use super::{PostgresStore, chunk_of_row, rows};
use crate::admin::{Chunk, ObjectRecord, StoreAdmin};
use crate::{StoreError, codec};

impl StoreAdmin for PostgresStore {
    fn scan_records(
        &self,
        from: ObjectId,
        max_rows: usize,
    ) -> Result<(Vec<ObjectRecord>, Option<ObjectId>), StoreError> {
        let max_rows = max_rows.clamp(1, u32::MAX as usize);
        let (from, limit) = (from.to_bytes(), max_rows as i64 + 1);
        let found = self.with(async |connection| {
            connection.client.query(&connection.ready.scan, &[&self.volume, &&from[..], &limit]).await
        })?;
        let next = found.get(max_rows).map(|row| rows::id(row, 0)).transpose()?;
        let records = found.iter().take(max_rows).map(|row| rows::object(row, 1).map(ObjectRecord::from));
        Ok((records.collect::<Result<_, _>>()?, next))
    }

    fn scan_chunks(&self, after: ChunkId, max_rows: usize) -> Result<Vec<(ChunkId, Chunk)>, StoreError> {
        let max_rows = max_rows.min(u32::MAX as usize) as i64;
        self.with(async |connection| {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&self.volume, &&after.0[..], &max_rows];
            let rows = connection.client.query(&connection.ready.scan_chunks, &values).await?;
            rows.iter().map(chunk_of_row).collect()
        })
    }

    fn mark_for_deletion(&self, chunks: &[ChunkId], at: Time) -> Result<(), StoreError> {
        let ids: Vec<&[u8]> = chunks.iter().map(|id| &id.0[..]).collect();
        self.with(async |connection| {
            connection
                .client
                .execute(&connection.ready.mark_chunks, &[&self.volume, &ids, &at.0])
                .await
                .map(drop)
        })
    }

    fn unmark(&self, chunks: &[ChunkId]) -> Result<(), StoreError> {
        let ids: Vec<&[u8]> = chunks.iter().map(|id| &id.0[..]).collect();
        self.with(async |connection| {
            connection.client.execute(&connection.ready.unmark_chunks, &[&self.volume, &ids]).await.map(drop)
        })
    }

    fn drop_chunks(&self, chunks: &[ChunkId], marked_before: Time) -> Result<(), StoreError> {
        let ids: Vec<&[u8]> = chunks.iter().map(|id| &id.0[..]).collect();
        self.with(async |connection| {
            let Connection { client, ready } = connection;
            client.execute(&ready.drop_chunks, &[&self.volume, &ids, &marked_before.0]).await.map(drop)
        })
    }

    fn settings(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.with(async |connection| {
            let found = connection.client.query(&connection.ready.settings, &[&self.volume, &prefix]).await?;
            found.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
        })
    }

    fn truncated_up_to(&self) -> Result<Seq, StoreError> {
        let row = self.with(async |connection| {
            connection.client.query_one(&connection.ready.forgotten, &[&self.volume]).await
        })?;
        Ok(Seq(row.try_get::<_, i64>(0).map_err(fault)? as u64))
    }

    fn truncate_log(&self, before: Time, min_entries: u64) -> Result<Seq, StoreError> {
        let min_entries = min_entries.min(i64::MAX as u64) as i64;
        let row = self.with(async |connection| {
            let Connection { client, ready } = connection;
            client.query_one(&ready.forget, &[&self.volume, &before.0, &min_entries]).await
        })?;
        Ok(Seq(row.try_get::<_, i64>(0).map_err(fault)? as u64))
    }

    fn scan_past(
        &self,
        after: (ObjectId, Seq),
        max_rows: usize,
    ) -> Result<Vec<(VersionedObject, Seq)>, StoreError> {
        let (id, until, max_rows) =
            (after.0.to_bytes(), after.1.0 as i64, max_rows.min(u32::MAX as usize) as i64);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&self.volume, &&id[..], &until, &max_rows];
        let found = self
            .with(async |connection| connection.client.query(&connection.ready.scan_past, &values).await)?;
        let past = found.iter().map(|row| {
            let body: &[u8] = row.try_get(2).map_err(fault)?;
            let until = Seq(row.try_get::<_, i64>(1).map_err(fault)? as u64);
            Ok((codec::decode("a version of an object", body)?, until))
        });
        past.collect()
    }

    fn delete_history(&self, up_to: Seq, versions: Option<u32>) -> Result<u64, StoreError> {
        let up_to = up_to.0.min(i64::MAX as u64) as i64;
        self.with(async |connection| {
            let Connection { client, ready } = connection;
            // Published before the deletion: a concurrent query for this period returns nothing instead of something wrong.
            client.execute(&ready.set_kept, &[&self.volume, &up_to]).await?;
            let mut deleted = client.execute(&ready.trim_objects, &[&self.volume, &up_to]).await?;
            deleted += client.execute(&ready.trim_links, &[&self.volume, &up_to]).await?;
            if let Some(versions) = versions {
                deleted +=
                    client.execute(&ready.trim_versions, &[&self.volume, &i64::from(versions)]).await?;
            }
            Ok(deleted)
        })
    }

    fn setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.with(async |connection| {
            let found = connection.client.query_opt(&connection.ready.setting, &[&self.volume, &key]).await?;
            found.map(|row| row.try_get(0)).transpose()
        })
    }

    fn set_setting(&self, key: &str, value: &str) -> Result<(), StoreError> {
        self.with(async |connection| {
            let Connection { client, ready } = connection;
            client.execute(&ready.set_setting, &[&self.volume, &key, &value]).await.map(drop)
        })
    }

    fn now(&self) -> Result<Option<Time>, StoreError> {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000000)::BIGINT";
        self.with(async |connection| {
            connection.client.query_one(sql, &[]).await?.try_get(0).map(Time).map(Some)
        })
    }

    fn repair_counts(&self, at: Seq, counts: &HashMap<ObjectId, (u32, u64)>) -> Result<bool, StoreError> {
        let ids: Vec<ObjectId> = counts.keys().copied().collect();
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| id.to_bytes().to_vec()).collect();
        runtime().block_on(async {
            let connection = self.pool.take().await?;
            let Connection { client, ready } = &connection;
            in_time(client.batch_execute("BEGIN")).await?;
            let locked = in_time(async { client.query_one(&ready.lock, &[&self.volume]).await }).await?;
            // Dropping the connection without returning it to the pool aborts the transaction.
            if locked.try_get::<_, i64>(0).map_err(fault)? as u64 != at.0 {
                return Ok(false);
            }
            let found = in_time(async { client.query(&ready.objects, &[&self.volume, &keys]).await }).await?;
            let (mut ids, mut above, mut names, mut bodies) = (vec![], vec![], vec![], vec![]);
            for row in &found {
                let mut row = rows::object(row, 1)?;
                let id = row.stored.object.id;
                let (links, held) = counts[&id];
                row.stored.links = links;
                ids.push(id.to_bytes().to_vec());
                above.push(row.parent.map(|id| id.to_bytes().to_vec()));
                names.push(held as i64);
                bodies.push(codec::encode(&row.stored));
            }
            let put = async {
                client.execute(&ready.put_objects, &[&self.volume, &ids, &above, &names, &bodies]).await
            };
            in_time(put).await?;
            in_time(client.batch_execute("COMMIT")).await?;
            self.pool.put_back(connection);
            Ok(true)
        })
    }

    fn replace_descriptor(&self, at: Seq, descriptor: &[u8]) -> Result<bool, StoreError> {
        let at = at.0 as i64;
        self.with(async |connection| {
            let Connection { client, ready } = connection;
            let changed = client.execute(&ready.redescribe, &[&self.volume, &at, &descriptor]).await?;
            Ok(changed > 0)
        })
    }
}
