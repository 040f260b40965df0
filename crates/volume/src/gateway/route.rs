//! The path of requests through chained gateways to the stores, which each gateway learns from the next (as in HTTP `Via`).
//!
//! A gateway forwards no request before it knows the path, and none if the path contains itself: so no request loops.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::blocking::blocking;
use crate::store::{GatewayId, MetaStore, StoreError};

/// Maximum number of chained gateways.
const MAX_HOPS: usize = 8;
/// Polling intervals while the path is unknown, and known.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(30);

/// The path of a gateway.
pub(super) struct GatewayPath {
    own: GatewayId,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The path from the next gateway on, without this one.
    beyond: Option<Vec<GatewayId>>,
    /// The reason why it is unknown, as logged last.
    why: Option<String>,
}

impl GatewayPath {
    pub(super) fn new(own: GatewayId) -> Self {
        Self { own, known: Mutex::default() }
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.lock().beyond.is_some()
    }

    /// Returns the path including this gateway, for its clients.
    pub(super) fn told(&self) -> Option<Vec<GatewayId>> {
        let known = self.known.lock();
        let beyond = known.beyond.as_ref()?;
        Some([&[self.own][..], beyond].concat())
    }

    /// Queries the next gateway once.
    pub(super) fn look(&self, meta: &dyn MetaStore) {
        let found = match meta.way() {
            Ok(Some(beyond)) if beyond.contains(&self.own) => Err("it leads back to this one".to_owned()),
            Ok(Some(beyond)) if beyond.len() >= MAX_HOPS => {
                Err(format!("more than {MAX_HOPS} gateways would be one behind the other"))
            }
            Ok(Some(beyond)) => Ok(beyond),
            Ok(None) => Err("it does not know yet how it gets to the stores".to_owned()),
            // The path stays as it was.
            Err(StoreError::Unreachable(_)) => return,
            Err(error) => Err(error.to_string()),
        };
        let mut known = self.known.lock();
        let (beyond, why) = match found {
            Ok(beyond) => (Some(beyond), None),
            Err(why) => (None, Some(why)),
        };
        if let Some(why) = why.as_ref().filter(|why| known.why.as_ref() != Some(*why)) {
            tracing::warn!("nothing is passed on to the gateway behind this one: {why}");
        }
        *known = Known { beyond, why };
    }

    /// Queries the next gateway periodically.
    pub(super) async fn follow(self: Arc<Self>, meta: Arc<dyn MetaStore>) {
        loop {
            tokio::time::sleep(if self.is_known() { LATER } else { SOON }).await;
            let (way, meta) = (self.clone(), meta.clone());
            if blocking(move || way.look(&*meta)).await.is_err() {
                return;
            }
        }
    }
}
