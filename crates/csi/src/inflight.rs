//! At most one call per volume runs at a time: a second one is answered with ABORTED, and the orchestrator repeats it.
//!
//! The guard belongs to the work, not to the call: work continues after its caller has hung up.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::Code;

use crate::status::{self, Result};

/// The volumes on which calls are running.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashSet<String>>>);

impl InFlight {
    /// Begins a call on a volume.
    ///
    /// # Errors
    /// ABORTED if another one is running.
    pub(crate) fn begin(&self, volume_id: &str) -> Result<Operation> {
        let is_first = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(volume_id.to_owned());
        if !is_first {
            return Err(status::new(
                Code::Aborted,
                format_args!("another call on the volume {volume_id} is running: try again"),
            ));
        }
        Ok(Operation { set: self.clone(), volume_id: volume_id.to_owned() })
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
        self.set.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.volume_id);
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
        drop(first);
        calls.begin("a").unwrap();
    }
}
