//! How many gateways are before the stores, as each learns it of the next.
//!
//! A gateway passes nothing on before it knows that. Two that lead to each other never learn it, so no request goes
//! round between them; where they come to lead to each other later, the number that they tell each other grows until it
//! is too large.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::server::blocking;
use crate::store::{MetaStore, StoreError};

/// Gateways one behind the other.
const MOST: u32 = 8;
/// Between two looks: not known, and known.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(30);

/// What a gateway knows of the way to the stores.
pub(super) struct Distance(Mutex<Option<u32>>);

impl Distance {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Gateways that a request goes through from here on.
    pub(super) fn beyond(&self) -> Option<u32> {
        *self.0.lock()
    }

    /// The same for who asks this one.
    pub(super) fn told(&self) -> Option<u32> {
        self.beyond().map(|beyond| beyond + 1)
    }

    /// Looks once.
    pub(super) fn look(&self, meta: &dyn MetaStore) {
        let found = match meta.distance() {
            Ok(Some(beyond)) if beyond >= MOST => {
                tracing::error!(
                    "this gateway leads back to itself, or more than {MOST} are behind each other"
                );
                None
            }
            Ok(found) => found,
            // It is as far away as it was.
            Err(StoreError::Unreachable(_)) => return,
            Err(error) => {
                tracing::warn!("the way to the stores is not known: {error}");
                None
            }
        };
        *self.0.lock() = found;
    }

    /// Looks again and again.
    pub(super) async fn follow(self: Arc<Self>, meta: Arc<dyn MetaStore>) {
        loop {
            tokio::time::sleep(if self.beyond().is_some() { LATER } else { SOON }).await;
            let (distance, meta) = (self.clone(), meta.clone());
            let looked = blocking(move || distance.look(&*meta)).await;
            if looked.is_err() {
                return;
            }
        }
    }
}
