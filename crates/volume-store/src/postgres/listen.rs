//! `LISTEN`/`NOTIFY`: wakes nodes that wait for commits. A hint, sent after the commit: inside its transaction it would
//! serialise the commits of all volumes of a database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use shunt_volume_types::id::Seq;
use shunt_volume_types::runtime::runtime;
use tokio::sync::watch;
use tokio_postgres::AsyncMessage;

use super::connection::{Connection, Pool, in_time};

pub(super) struct Listener {
    pool: Arc<Pool>,
    volume: i64,
    /// Counts notifications.
    notifications: Arc<watch::Sender<u64>>,
    is_listening: Arc<AtomicBool>,
}

impl Listener {
    pub fn new(pool: Arc<Pool>, volume: i64) -> Self {
        Self { pool, volume, notifications: Arc::new(watch::channel(0).0), is_listening: Arc::default() }
    }

    /// Returns the count of notifications, to be read before the check of the head that decides whether to wait.
    pub(crate) fn notification_count(&self) -> u64 {
        *self.notifications.borrow()
    }

    /// Waits until the count differs from `seen_count`, for at most `timeout`.
    pub(crate) async fn wait_for_change(&self, seen_count: u64, timeout: Duration) {
        self.listen();
        let mut changes = self.notifications.subscribe();
        // A timeout needs no distinction: the caller checks the head.
        let _ = tokio::time::timeout(timeout, changes.wait_for(|count| *count != seen_count)).await;
    }

    /// Notifies other nodes in the background, and then returns the connection to the pool.
    pub fn notify(&self, connection: Connection, head: Seq) {
        let (pool, volume) = (self.pool.clone(), self.volume);
        // Only a hint would be lost in a crash: it need not be durable.
        let statement = format!(
            "BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_notify('shunt_{volume}', '{head}'); COMMIT"
        );
        runtime().spawn(async move {
            if in_time(connection.client.batch_execute(&statement)).await.is_ok() {
                pool.put_back(connection);
            }
        });
    }

    /// Starts listening on a dedicated connection, which is opened again as long as there are waiters.
    fn listen(&self) {
        if self.is_listening.swap(true, Ordering::AcqRel) {
            return;
        }
        let (pool, notifications, listens) =
            (self.pool.clone(), Arc::downgrade(&self.notifications), self.is_listening.clone());
        let statement = format!("LISTEN shunt_{}", self.volume);
        runtime().spawn(async move {
            if let Ok((client, mut connection)) = pool.open_connection().await {
                let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
                let first = client.batch_execute(&statement);
                let closed = async {
                    while let Some(Ok(message)) = messages.next().await {
                        let Some(notifications) = notifications.upgrade() else { break };
                        if let AsyncMessage::Notification(_) = message {
                            notifications.send_modify(|count| *count += 1);
                        }
                    }
                };
                // The message stream also carries the reply to LISTEN: both are polled together.
                let began = async {
                    if first.await.is_ok()
                        && let Some(notifications) = notifications.upgrade()
                    {
                        // Earlier notifications were missed: every waiter checks once more.
                        notifications.send_modify(|count| *count += 1);
                    }
                    // The connection lives as long as its client.
                    std::future::pending::<()>().await;
                };
                futures::future::select(std::pin::pin!(closed), std::pin::pin!(began)).await;
            }
            listens.store(false, Ordering::Release);
        });
    }
}
