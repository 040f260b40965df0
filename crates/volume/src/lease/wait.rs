//! Futures with a deadline, for handlers that must not block a thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::runtime::runtime;

/// A future that completes in any case, at its deadline at the latest.
#[derive(Debug)]
pub struct Wait(JoinHandle<()>);

impl Wait {
    /// Waits for a future for at most a given time; runs `late` on timeout. The future runs without being polled by the
    /// waiter.
    pub fn new(
        future: impl Future<Output = ()> + Send + 'static,
        at_most: Duration,
        late: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self(runtime().spawn(async move {
            if tokio::time::timeout(at_most, future).await.is_err() {
                late();
            }
        }))
    }

    /// Waits for a given time.
    pub fn pause(length: Duration) -> Self {
        Self(runtime().spawn(async move { tokio::time::sleep(length).await }))
    }

    /// Waits for all of them; `None` if there are none.
    pub(super) fn all(mut waits: Vec<Self>) -> Option<Self> {
        match waits.len() {
            0 | 1 => waits.pop(),
            _ => Some(Self(runtime().spawn(async move {
                for wait in waits {
                    wait.await;
                }
            }))),
        }
    }

    /// Blocks this thread until completion.
    pub fn block(self) {
        runtime().block_on(self);
    }
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}
