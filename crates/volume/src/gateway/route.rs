//! By way of which gateways requests get to the stores, as each learns it of the next.
//!
//! A gateway passes nothing on before it knows that. One that finds itself on the way of the next passes nothing on either,
//! so no request goes round.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::blocking::blocking;
use crate::store::{GatewayId, MetaStore, StoreError};

/// Gateways one behind the other.
const MAX_HOPS: usize = 8;
/// Between two looks: not known, and known.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(30);

/// What a gateway knows of it.
pub(super) struct GatewayPath {
    own: GatewayId,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// From here on, without this one.
    beyond: Option<Vec<GatewayId>>,
    /// Why it is not known, as it was said last.
    why: Option<String>,
}

impl GatewayPath {
    pub(super) fn new(own: GatewayId) -> Self {
        Self { own, known: Mutex::default() }
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.lock().beyond.is_some()
    }

    /// For who asks this one.
    pub(super) fn told(&self) -> Option<Vec<GatewayId>> {
        let known = self.known.lock();
        let beyond = known.beyond.as_ref()?;
        Some([&[self.own][..], beyond].concat())
    }

    /// Looks once.
    pub(super) fn look(&self, meta: &dyn MetaStore) {
        let found = match meta.way() {
            Ok(Some(beyond)) if beyond.contains(&self.own) => Err("it leads back to this one".to_owned()),
            Ok(Some(beyond)) if beyond.len() >= MAX_HOPS => {
                Err(format!("more than {MAX_HOPS} gateways would be one behind the other"))
            }
            Ok(Some(beyond)) => Ok(beyond),
            Ok(None) => Err("it does not know yet how it gets to the stores".to_owned()),
            // It is as it was.
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

    /// Looks again and again.
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
