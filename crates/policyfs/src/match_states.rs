//! Cache of the policy's match states for recently used directories.

use std::collections::HashMap;

use parking_lot::RwLock;
use shunt_policy::{MatchState, Policy};

/// Limit on cached directories; beyond it the cache is cleared.
const MAX_CACHED_PATHS: usize = 4096;

/// Match states of one policy by path below the root.
#[derive(Default)]
pub(crate) struct MatchStates(RwLock<HashMap<Box<[u8]>, MatchState>>);

impl MatchStates {
    /// Returns the match state of a path. `policy` must be the one that this cache belongs to.
    pub(crate) fn get(&self, policy: &Policy, path: &[u8]) -> MatchState {
        if let Some(state) = self.0.read().get(path) {
            return state.clone();
        }
        let state = policy.match_path(path);
        let mut states = self.0.write();
        if states.len() >= MAX_CACHED_PATHS {
            states.clear();
        }
        states.insert(path.into(), state.clone());
        state
    }
}
