//! Waiting, in a handler that holds up no thread meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::runtime::runtime;

/// The end of a wait, which comes in any case: nobody waits for ever.
#[derive(Debug)]
pub struct Wait(JoinHandle<()>);

impl Wait {
    /// For something, which goes on by itself meanwhile, but not longer than this; `late` runs where it did not come.
    pub fn new(
        what: impl Future<Output = ()> + Send + 'static,
        at_most: Duration,
        late: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self(runtime().spawn(async move {
            if tokio::time::timeout(at_most, what).await.is_err() {
                late();
            }
        }))
    }

    /// For so long.
    pub fn pause(length: Duration) -> Self {
        Self(runtime().spawn(async move { tokio::time::sleep(length).await }))
    }

    /// For the end of all of them.
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

    /// Waits on this thread.
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
