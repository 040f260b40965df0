//! The PostgreSQL engine: many volumes in one database, each with many nodes. Each volume is a row, whose lock orders its
//! commits; keys of all tables begin with the volume.

mod admin;
mod commit;
mod connection;
mod gc_lock;
mod group;
mod history;
mod lease;
mod listen;
mod passfile;
mod rows;
mod schema;
mod tls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_volume_types::id::{NodeName, ObjectId, Seq, VolumeName};
use shunt_volume_types::object::{ChunkId, LinkName, Object, StoredLink, Time, VersionedObject};
use shunt_volume_types::runtime::runtime;
use tokio_postgres::Row as Found;

use crate::admin::{Chunk, StoreAdmin};
use crate::history::History;
use crate::{
    ChunkLocation, LeaseRequest, LeaseResponse, LogEntry, MetaStore, Page, Rejected, StoreError, Transaction,
    codec,
};

use connection::{Connection, Pool, fault, in_time};
use group::{Group, PendingBatch};
use listen::Listener;

pub use tls::has_password;

/// Polling interval of a wait, in case a notification is lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The metadata of one volume in a PostgreSQL database. Many volumes may share the database, and many nodes the volume.
pub struct PostgresStore {
    pool: Arc<Pool>,
    volume: i64,
    listener: Listener,
    leases: lease::Leases,
    group: Group,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the address, which may contain a password.
        f.debug_struct("PostgresStore").field("volume", &self.volume).finish_non_exhaustive()
    }
}

type CommitResults = Vec<Result<Seq, Rejected>>;

impl PostgresStore {
    /// Creates a volume in a database, and the tables if they do not exist. `descriptor` is stored unchanged.
    ///
    /// # Errors
    /// [`StoreError::Exists`]; [`StoreError::Unreachable`].
    pub fn create(
        address: &str,
        name: &VolumeName,
        root: &Object,
        descriptor: &[u8],
    ) -> Result<Self, StoreError> {
        let pool = Pool::new(address)?;
        runtime().block_on(async {
            let client = pool.connect().await?;
            create_tables(&client).await?;
            let volume = i64::from_be_bytes(rand::random()) & i64::MAX;
            let stored = VersionedObject { object: root.clone(), created: Seq(0), field_versions: Default::default(), links: 0 };
            let (body, root) = (codec::encode(&stored), ObjectId::ROOT.to_bytes().to_vec());
            let sql = "WITH made AS (
                     INSERT INTO shunt_volume (volume, name, format, head, forgotten, batches, description)
                     VALUES ($1, $2, $3, 0, 0, 0, $4) ON CONFLICT DO NOTHING RETURNING volume)
                 INSERT INTO shunt_object (volume, id, names, body) SELECT volume, $5, 0, $6 FROM made RETURNING volume";
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&volume, &name.as_str(), &schema::FORMAT, &descriptor, &root, &body];
            match in_time(client.query_opt(sql, &values)).await? {
                Some(_) => Ok(volume),
                None => Err(StoreError::Exists(name.clone())),
            }
        })
        .map(|volume| Self::over(pool, volume))
    }

    /// Opens an existing volume. One of format 1 is upgraded.
    ///
    /// # Errors
    /// [`StoreError::NoVolume`], [`StoreError::Format`], [`StoreError::Unreachable`].
    pub fn open(address: &str, name: &VolumeName) -> Result<Self, StoreError> {
        let pool = Pool::new(address)?;
        let volume = runtime().block_on(async {
            let client = pool.connect().await?;
            let tables =
                in_time(client.query_one("SELECT to_regclass('shunt_volume') IS NOT NULL", &[])).await?;
            if !tables.try_get::<_, bool>(0).map_err(fault)? {
                return Err(StoreError::NoVolume(name.clone()));
            }
            let sql = "SELECT volume, format FROM shunt_volume WHERE name = $1";
            let Some(found) = in_time(client.query_opt(sql, &[&name.as_str()])).await? else {
                return Err(StoreError::NoVolume(name.clone()));
            };
            let volume: i64 = found.try_get(0).map_err(fault)?;
            match found.try_get::<_, i32>(1).map_err(fault)? {
                schema::FORMAT => Ok(volume),
                1 => {
                    create_tables(&client).await?;
                    let sql =
                        "UPDATE shunt_volume SET format = $2, kept = head WHERE volume = $1 AND format = 1";
                    in_time(client.execute(sql, &[&volume, &schema::FORMAT])).await?;
                    Ok(volume)
                }
                other => Err(StoreError::Format {
                    found: other.to_string(),
                    known: schema::FORMAT as u32,
                    advice: "use the version of shunt that created it",
                }),
            }
        })?;
        Ok(Self::over(pool, volume))
    }

    /// Returns the descriptor that [`create`](Self::create) stored.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    pub fn descriptor(&self) -> Result<Vec<u8>, StoreError> {
        self.with(async |connection| {
            let sql = "SELECT description FROM shunt_volume WHERE volume = $1";
            connection.client.query_one(sql, &[&self.volume]).await?.try_get(0)
        })
    }

    fn over(pool: Pool, volume: i64) -> Self {
        let pool = Arc::new(pool);
        let listener = Listener::new(pool.clone(), volume);
        Self { pool, volume, listener, leases: lease::Leases::default(), group: Group::default() }
    }

    /// Runs a query. A connection on which it failed is not used again.
    fn with<T>(
        &self,
        what: impl AsyncFn(&Connection) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, StoreError> {
        runtime().block_on(async {
            let mut connection = self.pool.take().await?;
            let mut answer = in_time(what(&connection)).await;
            // A closed connection means that the server was restarted after its last use: retried once on a new connection.
            if answer.is_err() && connection.client.is_closed() {
                connection = self.pool.take().await?;
                answer = in_time(what(&connection)).await;
            }
            if answer.is_ok() {
                self.pool.put_back(connection);
            }
            answer
        })
    }
}

/// Creates the tables under an advisory lock: concurrent `IF NOT EXISTS` statements would fail.
async fn create_tables(client: &tokio_postgres::Client) -> Result<(), StoreError> {
    let tables = format!("BEGIN; SELECT pg_advisory_xact_lock(6134957); {} COMMIT", schema::TABLES);
    in_time(client.batch_execute(&tables)).await?;
    // Only when needed: it briefly locks out all volumes of the database.
    if in_time(client.query_one(schema::IS_FORMAT_1, &[])).await?.try_get(0).map_err(fault)? {
        in_time(client.batch_execute(schema::UPGRADE_TO_2)).await?;
    }
    Ok(())
}

fn chunk_of_row(row: &Found) -> Result<(ChunkId, Chunk), tokio_postgres::Error> {
    let mut id = [0; 32];
    let bytes: &[u8] = row.try_get(0)?;
    id[..bytes.len().min(32)].copy_from_slice(&bytes[..bytes.len().min(32)]);
    let location = ChunkLocation {
        key: row.try_get(1)?,
        offset: row.try_get::<_, i64>(2)? as u64,
        stored: row.try_get::<_, i64>(3)? as u32,
        length: row.try_get::<_, i64>(4)? as u32,
    };
    Ok((ChunkId(id), Chunk { location, marked_at: row.try_get::<_, Option<i64>>(5)?.map(Time) }))
}

impl PostgresStore {
    fn chunks(&self, requested: &[ChunkId]) -> Result<Vec<Option<Chunk>>, StoreError> {
        let ids: Vec<&[u8]> = requested.iter().map(|id| &id.0[..]).collect();
        let found = self.with(async |connection| {
            let rows =
                connection.client.query(&connection.ready.locate_chunks, &[&self.volume, &ids]).await?;
            rows.iter().map(chunk_of_row).collect::<Result<std::collections::HashMap<_, _>, _>>()
        })?;
        Ok(requested.iter().map(|id| found.get(id).cloned()).collect())
    }
}

impl MetaStore for PostgresStore {
    fn head(&self) -> Result<Seq, StoreError> {
        self.with(async |connection| {
            let row = connection.client.query_one(&connection.ready.head, &[&self.volume]).await?;
            Ok(Seq(row.try_get::<_, i64>(0)? as u64))
        })
    }

    fn commit(
        &self,
        node: &NodeName,
        token: u128,
        items: &[Transaction],
    ) -> Result<CommitResults, StoreError> {
        self.group.commit(PendingBatch { node, token, items }, |parts| self.commit_parts(parts))
    }

    fn get(&self, ids: &[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| id.to_bytes().to_vec()).collect();
        let found = self.with(async |connection| {
            connection.client.query(&connection.ready.objects, &[&self.volume, &keys]).await
        })?;
        let mut by_id = std::collections::HashMap::new();
        for row in &found {
            let stored = rows::object(row, 1)?.stored;
            by_id.insert(stored.object.id, stored);
        }
        Ok(ids.iter().map(|id| by_id.get(id).cloned()).collect())
    }

    fn scan(&self, from: ObjectId, limit: usize) -> Result<Page, StoreError> {
        let (records, next) = self.scan_records(from, limit)?;
        let objects: Vec<VersionedObject> = records.into_iter().map(|record| record.stored).collect();
        let (Some(first), Some(last)) = (objects.first(), objects.last()) else { return Ok(Page::default()) };
        let (first, last) = (first.object.id.to_bytes(), last.object.id.to_bytes());
        let found = self.with(async |connection| {
            let between: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&self.volume, &&first[..], &&last[..]];
            connection.client.query(&connection.ready.scan_links, &between).await
        })?;
        let link = |row: &Found| {
            let at = LinkName { parent: rows::id(row, 0)?, name: row.try_get(1).map_err(fault)? };
            let set = Seq(row.try_get::<_, i64>(3).map_err(fault)? as u64);
            Ok(StoredLink { at, child: rows::id(row, 2)?, set })
        };
        let links = found.iter().map(link).collect::<Result<_, StoreError>>()?;
        Ok(Page { objects, links, next })
    }

    fn log_since(&self, after: Seq, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        let (from, limit) = (after.0.min(i64::MAX as u64) as i64, limit.min(u32::MAX as usize) as i64);
        let (entries, forgotten) = self.with(async |connection| {
            let Connection { client, ready } = connection;
            // The log first: a truncation between the two queries is then noticed.
            let entries = async { client.query(&ready.log, &[&self.volume, &from, &limit]).await };
            let forgotten = async { client.query_one(&ready.forgotten, &[&self.volume]).await };
            let (entries, forgotten) = futures::try_join!(entries, forgotten)?;
            Ok((entries, forgotten.try_get::<_, i64>(0)?))
        })?;
        if from < forgotten {
            return Err(StoreError::Forgotten(after));
        }
        let entry = |row: &Found| {
            let node: String = row.try_get(1).map_err(fault)?;
            Ok(LogEntry {
                seq: Seq(row.try_get::<_, i64>(0).map_err(fault)? as u64),
                node: node
                    .parse()
                    .map_err(|_| StoreError::Damaged(format!("invalid node name {node:?} in the log")))?,
                at: Time(row.try_get(2).map_err(fault)?),
                change: codec::decode("an entry of the log", row.try_get(3).map_err(fault)?)?,
            })
        };
        entries.iter().map(entry).collect()
    }

    fn locate_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<Option<ChunkLocation>>, StoreError> {
        Ok(self.chunks(chunks)?.into_iter().map(|chunk| chunk.map(|chunk| chunk.location)).collect())
    }

    fn has_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<bool>, StoreError> {
        let lives = |chunk: Option<Chunk>| chunk.is_some_and(|chunk| chunk.marked_at.is_none());
        Ok(self.chunks(chunks)?.into_iter().map(lives).collect())
    }

    fn history(&self) -> Option<&dyn History> {
        Some(self)
    }

    fn wait(&self, after: Seq, at_most: Duration) -> Result<bool, StoreError> {
        let until = Instant::now() + at_most.min(Duration::from_secs(3600));
        loop {
            let seen_count = self.listener.notification_count();
            if self.head()? > after {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            runtime().block_on(self.listener.wait_for_change(seen_count, left.min(POLL_INTERVAL)));
        }
    }

    fn lease(&self, node: &NodeName, request: &LeaseRequest) -> Result<LeaseResponse, StoreError> {
        self.leases.exchange(&self.pool, self.volume, node, request)
    }

    fn wait_lease(&self, after: u64, acks: Option<u64>, at_most: Duration) -> Result<bool, StoreError> {
        let until = Instant::now() + at_most.min(Duration::from_secs(3600));
        let poll_interval = if acks.is_some() { lease::ACK_POLL_INTERVAL } else { POLL_INTERVAL };
        loop {
            let seen_count = self.listener.notification_count();
            let (at, seen) = runtime().block_on(self.leases.positions(&self.pool, self.volume))?;
            if at > after || acks.is_some_and(|acks| seen > acks) {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            runtime().block_on(self.listener.wait_for_change(seen_count, left.min(poll_interval)));
        }
    }
}
