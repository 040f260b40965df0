//! Leases in PostgreSQL: one row for each volume, locked during a request.
//!
//! The table is created on first use: databases of earlier versions have none.

use std::time::Duration;

use parking_lot::Mutex;
use shunt_volume_types::id::{NodeName, Seq};
use shunt_volume_types::object::Time;
use shunt_volume_types::runtime::runtime;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

use super::connection::{Pool, in_time};
use crate::lease_table::LeaseTable;
use crate::{LeaseRequest, LeaseResponse, StoreError};

/// Version of the row's encoding. Rows of other versions are not touched.
const FORMAT: i32 = 1;

// Unlogged: the leases need not survive a crash of the server, and this saves the WAL.
const TABLE: &str = "BEGIN; SELECT pg_advisory_xact_lock(6134957);
    CREATE UNLOGGED TABLE IF NOT EXISTS shunt_lease (volume BIGINT NOT NULL, format INT NOT NULL, at BIGINT NOT NULL,
        acks BIGINT NOT NULL, body BYTEA NOT NULL, PRIMARY KEY (volume, format)); COMMIT";

/// A dedicated connection with its prepared statements, which need the table.
struct LeaseConnection {
    client: Client,
    lock: Statement,
    head: Statement,
    put: Statement,
    look: Statement,
}

impl LeaseConnection {
    async fn new(pool: &Pool, volume: i64) -> Result<Self, StoreError> {
        let client = pool.connect().await?;
        // All other nodes wait for the row's lock: a short timeout releases it before they lose their sessions if this node is
        // cut off.
        in_time(client.batch_execute("SET idle_in_transaction_session_timeout = '2s'")).await?;
        let query = "SELECT to_regclass('shunt_lease') IS NOT NULL";
        let exists = in_time(client.query_one(query, &[])).await?;
        if !exists.try_get::<_, bool>(0).map_err(super::connection::fault)? {
            let made = in_time(client.batch_execute(TABLE)).await;
            made.map_err(|error| match error {
                StoreError::Damaged(why) => {
                    StoreError::Denied(format!("cannot create the lease table: {why}"))
                }
                error => error,
            })?;
        }
        let first = "INSERT INTO shunt_lease VALUES ($1, $2, 0, 0, '') ON CONFLICT DO NOTHING";
        in_time(client.execute(first, &[&volume, &FORMAT])).await?;
        let key = [Type::INT8, Type::INT4];
        let lock =
            "SELECT body, (extract(epoch FROM clock_timestamp()) * 1000000000)::BIGINT FROM shunt_lease
            WHERE volume = $1 AND format = $2 FOR UPDATE";
        let put = "UPDATE shunt_lease SET at = $3, acks = $4, body = $5 WHERE volume = $1 AND format = $2";
        let look = "SELECT at, acks FROM shunt_lease WHERE volume = $1 AND format = $2";
        let values = [Type::INT8, Type::INT4, Type::INT8, Type::INT8, Type::BYTEA];
        let (lock, head, put, look) = in_time(async {
            futures::try_join!(
                client.prepare_typed(lock, &key),
                client.prepare_typed("SELECT head FROM shunt_volume WHERE volume = $1", &[Type::INT8]),
                client.prepare_typed(put, &values),
                client.prepare_typed(look, &key),
            )
        })
        .await?;
        Ok(Self { client, lock, head, put, look })
    }

    async fn exchange(
        &self,
        volume: i64,
        node: &NodeName,
        request: &LeaseRequest,
    ) -> Result<Exchanged, Error> {
        let (_, row, head) = futures::try_join!(
            self.client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED"),
            async { self.client.query_opt(&self.lock, &[&volume, &FORMAT]).await },
            async { self.client.query_one(&self.head, &[&volume]).await },
        )?;
        let Some(row) = row else {
            self.client.batch_execute("ROLLBACK").await?;
            return Ok(Exchanged::Gone);
        };
        let mut board = LeaseTable::decode(row.try_get(0)?);
        let before = board.positions();
        let (now, head) = (Time(row.try_get(1)?), Seq(head.try_get::<_, i64>(0)? as u64));
        let Some(response) = board.exchange(node, request, now, head) else {
            self.client.batch_execute("ROLLBACK").await?;
            return Ok(Exchanged::Full);
        };
        let (at, acks) = board.positions();
        let (at, acks, body) = (at as i64, acks as i64, board.encode());
        // The notification is part of the transaction: a notified node sees the change.
        let notification = match board.positions() == before {
            true => "COMMIT".to_owned(),
            false => format!("SELECT pg_notify('shunt_{volume}', ''); COMMIT"),
        };
        let put: [&(dyn tokio_postgres::types::ToSql + Sync); 5] = [&volume, &FORMAT, &at, &acks, &body];
        futures::try_join!(
            async { self.client.execute(&self.put, &put).await },
            self.client.batch_execute(&notification)
        )?;
        Ok(Exchanged::Response(response))
    }
}

enum Exchanged {
    Response(LeaseResponse),
    Full,
    /// The row was lost in a crash of the server.
    Gone,
}

/// Idle connections with prepared lease statements.
#[derive(Default)]
pub(super) struct Leases(Mutex<Vec<LeaseConnection>>);

impl Leases {
    async fn with<T>(
        &self,
        pool: &Pool,
        volume: i64,
        what: impl AsyncFn(&LeaseConnection) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let idle = self.0.lock().pop();
        let line = match idle {
            Some(line) if !line.client.is_closed() => line,
            _ => LeaseConnection::new(pool, volume).await?,
        };
        let answer = in_time(what(&line)).await?;
        let mut idle = self.0.lock();
        if idle.len() < 4 {
            idle.push(line);
        }
        Ok(answer)
    }

    pub(super) fn exchange(
        &self,
        pool: &Pool,
        volume: i64,
        node: &NodeName,
        request: &LeaseRequest,
    ) -> Result<LeaseResponse, StoreError> {
        runtime().block_on(async {
            match self.with(pool, volume, async |line| line.exchange(volume, node, request).await).await? {
                Exchanged::Response(response) => Ok(response),
                Exchanged::Full => Err(StoreError::Denied(
                    "too many nodes hold leases, or this node is suspended because it delayed others"
                        .to_owned(),
                )),
                Exchanged::Gone => {
                    self.0.lock().clear();
                    Err(StoreError::Unreachable("the database server lost the lease table".to_owned()))
                }
            }
        })
    }

    /// Returns the positions of events and of acknowledgements.
    pub(super) async fn positions(&self, pool: &Pool, volume: i64) -> Result<(u64, u64), StoreError> {
        self.with(pool, volume, async |line| {
            let row = line.client.query_opt(&line.look, &[&volume, &FORMAT]).await?;
            let Some(row) = row else { return Ok((u64::MAX, 0)) };
            Ok((row.try_get::<_, i64>(0)? as u64, row.try_get::<_, i64>(1)? as u64))
        })
        .await
    }
}

/// Polling interval while waiting for acknowledgements, in case a notification is lost.
pub(super) const ACK_POLL_INTERVAL: Duration = Duration::from_millis(100);
