//! How far the rules have come at directories that were asked for lately.

use std::collections::HashMap;

use parking_lot::RwLock;
use shunt_policy::{MatchState, Policy};

/// Directories noted; then all are found anew.
const MAX_CACHED_PATHS: usize = 4096;

/// By path below the root, of one policy.
#[derive(Default)]
pub(super) struct Places(RwLock<HashMap<Box<[u8]>, MatchState>>);

impl Places {
    /// The place of a path by the policy that these are of.
    pub(super) fn get(&self, policy: &Policy, path: &[u8]) -> MatchState {
        if let Some(place) = self.0.read().get(path) {
            return place.clone();
        }
        let place = policy.match_path(path);
        let mut known = self.0.write();
        if known.len() >= MAX_CACHED_PATHS {
            known.clear();
        }
        known.insert(path.into(), place.clone());
        place
    }
}
