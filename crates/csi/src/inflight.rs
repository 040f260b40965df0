//! At most one call per volume runs at a time: a second one is answered with ABORTED, and the orchestrator repeats it.
//!
//! The guard belongs to the work, not to the call: work continues after its caller has hung up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tonic::Code;

use crate::status::{self, Result};

/// The volumes on which calls are running, with the times at which these began.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashMap<String, Instant>>>);

impl InFlight {
    /// Begins a call on a volume.
    ///
    /// # Errors
    /// ABORTED if another one is running.
    pub(crate) fn begin(&self, volume_id: &str) -> Result<Operation> {
        match self.running().entry(volume_id.to_owned()) {
            Entry::Occupied(_) => {
                return Err(status::new(
                    Code::Aborted,
                    format_args!("another call on the volume {volume_id} is running: try again"),
                ));
            }
            Entry::Vacant(none) => drop(none.insert(Instant::now())),
        }
        Ok(Operation { set: self.clone(), volume_id: volume_id.to_owned() })
    }

    /// How long a call on a volume has been running; `None` if there is none.
    pub(crate) fn running_for(&self, volume_id: &str) -> Option<Duration> {
        self.running().get(volume_id).map(Instant::elapsed)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running call. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Operation {
    set: InFlight,
    volume_id: String,
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.set.running().remove(&self.volume_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_per_volume() {
        let calls = InFlight::default();
        let first = calls.begin("a").unwrap();
        assert_eq!(calls.begin("a").unwrap_err().code(), Code::Aborted);
        let _other = calls.begin("b").unwrap();
        assert!(calls.running_for("a").is_some() && calls.running_for("c").is_none());
        drop(first);
        calls.begin("a").unwrap();
    }
}
