//! Who waits is told of commits by the server. A hint, sent after the commit: in it, it would put the commits of all volumes
//! of a database in one queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::sync::watch;
use tokio_postgres::AsyncMessage;

use super::connection::{Connection, Pool, in_time};
use crate::id::Seq;
use crate::runtime::runtime;

pub(super) struct Listener {
    pool: Arc<Pool>,
    volume: i64,
    /// Counts what was heard.
    heard: Arc<watch::Sender<u64>>,
    listens: Arc<AtomicBool>,
}

impl Listener {
    pub fn new(pool: Arc<Pool>, volume: i64) -> Self {
        Self { pool, volume, heard: Arc::new(watch::channel(0).0), listens: Arc::default() }
    }

    /// To remember before the look at the head that decides whether to wait.
    pub fn heard(&self) -> u64 {
        *self.heard.borrow()
    }

    /// Waits for more, for so long.
    pub async fn more_than(&self, heard: u64, at_most: Duration) {
        self.listen();
        let mut news = self.heard.subscribe();
        // Too late is answered as well as in time: the caller looks.
        let _ = tokio::time::timeout(at_most, news.wait_for(|count| *count != heard)).await;
    }

    /// Tells the others, while the caller goes on, and gives the connection back then.
    pub fn tell(&self, connection: Connection, head: Seq) {
        let (pool, volume) = (self.pool.clone(), self.volume);
        // What is lost in a crash is a hint: it need not be on the disk.
        let say = format!(
            "BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_notify('shunt_{volume}', '{head}'); COMMIT"
        );
        runtime().spawn(async move {
            if in_time(connection.client.batch_execute(&say)).await.is_ok() {
                pool.give_back(connection);
            }
        });
    }

    /// Has a connection of its own, which is made again as long as somebody waits.
    fn listen(&self) {
        if self.listens.swap(true, Ordering::AcqRel) {
            return;
        }
        let (pool, heard, listens) = (self.pool.clone(), Arc::downgrade(&self.heard), self.listens.clone());
        let say = format!("LISTEN shunt_{}", self.volume);
        runtime().spawn(async move {
            if let Ok((client, mut connection)) = pool.dial().await {
                let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
                let first = client.batch_execute(&say);
                let gone = async {
                    while let Some(Ok(message)) = messages.next().await {
                        let Some(heard) = heard.upgrade() else { break };
                        if let AsyncMessage::Notification(_) = message {
                            heard.send_modify(|count| *count += 1);
                        }
                    }
                };
                // The messages carry the answer to LISTEN as well: both go on together.
                let began = async {
                    if first.await.is_ok()
                        && let Some(heard) = heard.upgrade()
                    {
                        // Whatever came before was not heard: everybody looks once more.
                        heard.send_modify(|count| *count += 1);
                    }
                    // The connection lasts as long as its client.
                    std::future::pending::<()>().await;
                };
                futures::future::select(std::pin::pin!(gone), std::pin::pin!(began)).await;
            }
            listens.store(false, Ordering::Release);
        });
    }
}
