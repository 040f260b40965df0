//! The path of requests through chained gateways to the stores, which each gateway learns from the next (as in HTTP `Via`).
//!
//! A gateway forwards no request before it knows the path, and none if the path contains itself: so no request loops.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shunt_volume_store::{GatewayId, MetaStore, StoreError};
use shunt_volume_types::backoff::jittered;

use super::blocking::blocking;

/// Maximum number of chained gateways.
const MAX_HOPS: usize = 8;
/// Polling intervals while the path is unknown, and known.
const UNKNOWN_PATH_POLL_INTERVAL: Duration = Duration::from_secs(1);
const KNOWN_PATH_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The path of a gateway.
pub(super) struct GatewayPath {
    own: GatewayId,
    state: Mutex<RouteState>,
}

#[derive(Default)]
struct RouteState {
    /// The path from the next gateway on, without this one.
    path: Option<Vec<GatewayId>>,
    /// The reason why it is unknown, as logged last.
    failure: Option<String>,
}

impl GatewayPath {
    pub(super) fn new(own: GatewayId) -> Self {
        Self { own, state: Mutex::default() }
    }

    pub(super) fn is_known(&self) -> bool {
        self.state.lock().path.is_some()
    }

    /// Returns the path including this gateway, for its clients.
    pub(super) fn full_path(&self) -> Option<Vec<GatewayId>> {
        let state = self.state.lock();
        let beyond = state.path.as_ref()?;
        Some([&[self.own][..], beyond].concat())
    }

    /// Queries the next gateway once.
    pub(super) fn refresh(&self, meta: &dyn MetaStore) {
        let found = match meta.gateway_path() {
            Ok(Some(beyond)) if beyond.contains(&self.own) => {
                Err("it forwards to this gateway again".to_owned())
            }
            Ok(Some(beyond)) if beyond.len() >= MAX_HOPS => {
                Err(format!("the chain would have more than {MAX_HOPS} gateways"))
            }
            Ok(Some(beyond)) => Ok(beyond),
            Ok(None) => Err("it does not know its path to the stores yet".to_owned()),
            // The path stays as it was.
            Err(StoreError::Unreachable(_)) => return,
            Err(error) => Err(error.to_string()),
        };
        let mut state = self.state.lock();
        let (beyond, why) = match found {
            Ok(beyond) => (Some(beyond), None),
            Err(why) => (None, Some(why)),
        };
        if let Some(why) = why.as_ref().filter(|why| state.failure.as_ref() != Some(*why)) {
            tracing::warn!("cannot forward requests to the next gateway: {why}");
        }
        *state = RouteState { path: beyond, failure: why };
    }

    /// Queries the next gateway periodically.
    pub(super) async fn refresh_periodically(self: Arc<Self>, meta: Arc<dyn MetaStore>) {
        loop {
            let interval =
                if self.is_known() { KNOWN_PATH_POLL_INTERVAL } else { UNKNOWN_PATH_POLL_INTERVAL };
            tokio::time::sleep(jittered(interval)).await;
            let (way, meta) = (self.clone(), meta.clone());
            if blocking(move || way.refresh(&*meta)).await.is_err() {
                return;
            }
        }
    }
}
