//! Commits in PostgreSQL: the rules of all engines, over rows that are read in one round trip and written in another.
//!
//! A commit locks the row of its volume, which orders all commits. Transactions that the server aborts are retried; after the
//! loss of a connection the caller retries with its token.

use std::time::Duration;

use shunt_volume_types::id::Seq;
use shunt_volume_types::runtime::runtime;

use super::connection::{Connection, ROUND_TRIP_TIMEOUT, fault, in_time, is_retryable};
use super::group::PendingBatch;
use super::rows::{self, Failed};
use super::{CommitResults, PostgresStore};
use crate::transaction::Batch;
use crate::validate::{UNSEALED, are_sealed};
use crate::{StoreError, codec};

/// Maximum number of attempts of a transaction that the server aborted in favour of another one.
const MAX_ATTEMPTS: u32 = 20;

impl PostgresStore {
    /// Commits batches in one database transaction, in this order.
    pub(super) fn commit_parts(&self, parts: &[PendingBatch<'_>]) -> Result<Vec<CommitResults>, StoreError> {
        let mut error = StoreError::Unreachable("the database is too busy".into());
        for attempt in 0..MAX_ATTEMPTS {
            let connection = runtime().block_on(self.pool.take())?;
            // If the connection is lost, the outcome is unknown and not retried here: the caller retries with the token.
            match self.try_commit(&connection, parts) {
                Ok((answers, head)) => {
                    self.listener.notify(connection, head);
                    return Ok(answers);
                }
                Err(Failed::Store(store)) => return Err(store),
                Err(Failed::Statement(statement)) => {
                    let is_retried = is_retryable(&statement)
                        // The connection appears to have been dead before the transaction began.
                        || (attempt == 0 && connection.client.is_closed());
                    error = fault(statement);
                    if !is_retried {
                        return Err(error);
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(u64::from(attempt) * rand::random_range(1..5)));
        }
        Err(error)
    }

    fn try_commit(
        &self,
        connection: &Connection,
        parts: &[PendingBatch<'_>],
    ) -> Result<(Vec<CommitResults>, Seq), Failed> {
        let late = || Failed::Store(StoreError::Unreachable("no response from the database".into()));
        let locked = runtime().block_on(async {
            let locked = rows::lock(connection, self.volume, parts);
            tokio::time::timeout(ROUND_TRIP_TIMEOUT, locked).await.map_err(|_| late())?
        })?;
        let Some(mut locked) = locked else {
            return Err(Failed::Store(StoreError::Damaged("the volume was removed".into())));
        };
        let before: Vec<Option<CommitResults>> = std::mem::take(&mut locked.answers)
            .iter()
            .map(|answer| answer.as_ref().map(|bytes| codec::decode("a commit result", bytes)).transpose())
            .collect::<Result<_, _>>()?;
        if before.iter().all(Option::is_some) {
            let head = locked.head;
            runtime().block_on(in_time(connection.client.batch_execute("ROLLBACK")))?;
            return Ok((before.into_iter().flatten().collect(), head));
        }
        // The caller then tries the batches of a group one by one.
        if locked.is_sealed && parts.iter().any(|part| !are_sealed(part.items)) {
            return Err(Failed::Store(StoreError::Denied(UNSEALED.to_owned())));
        }
        // Commit times never go back, even if the clock is set back. The server's clock: one node's wrong clock would affect
        // all of them, for good.
        let at = locked.now.max(locked.latest);
        let (head, batches) = (locked.head, locked.batches);
        let mut work = Batch::new(&mut locked, head);
        let (mut answers, mut by) = (Vec::with_capacity(parts.len()), Vec::new());
        for (part, before) in parts.iter().zip(before) {
            if let Some(before) = before {
                answers.push(before);
                continue;
            }
            let own = part.items.iter().map(|item| work.item(item)).collect::<Result<CommitResults, _>>()?;
            let accepted = own.iter().filter(|answer| answer.is_ok()).count();
            by.push(rows::AcceptedBatch {
                node: part.node,
                token: part.token,
                accepted,
                answer: codec::encode(&own),
            });
            answers.push(own);
        }
        let written = work.finish();
        runtime().block_on(async {
            let write = rows::write(connection, self.volume, batches, at, &by, &written);
            tokio::time::timeout(ROUND_TRIP_TIMEOUT, write)
                .await
                .map_err(|_| late())?
                .map_err(Failed::Statement)
        })?;
        Ok((answers, written.head))
    }
}
