//! Health probes of an object store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::backoff::jittered;
use crate::chunks::ContentStore;
use crate::object::{ChunkId, Content, Layout, Segment};
use crate::runtime::runtime;
use crate::store::MetaStore;

/// Longest pause between probes while the store is unreachable.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of concurrent probes: a probe sent over a dead connection gets no answer for long.
const MAX_PROBES: usize = 8;
/// After a failed request, how much longer the requester waits for a probe, in case the store is reachable.
const PROMPT_REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the number of times the store became reachable, or `None` if it is known to be unreachable.
pub(crate) type Reachable = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// The value of [`Reachable`] at which the store was found to be unreachable. A successful probe clears it.
pub(crate) type Outage = Mutex<Option<u64>>;

/// A probe that takes the path of a read: locates a chunk, and reads a byte of it.
#[derive(Clone)]
pub(crate) struct Probe {
    meta: Arc<dyn MetaStore>,
    contents: ContentStore,
    chunk: ChunkId,
}

impl Probe {
    /// Creates a probe from a content; `None` if it has no chunks in the store.
    pub fn of(meta: &Arc<dyn MetaStore>, contents: &ContentStore, content: &Content) -> Option<Self> {
        let (Layout::Direct(segments) | Layout::Indirect(segments)) = &content.layout else { return None };
        let chunk = segments.iter().find_map(|segment| match segment {
            Segment::Chunk { id, .. } => Some(*id),
            Segment::Hole { .. } => None,
        })?;
        Some(Self { meta: meta.clone(), contents: contents.clone(), chunk })
    }

    /// Reports whether the store answers.
    async fn answers(self) -> bool {
        let Self { meta, contents, chunk } = self;
        let Ok(found) = tokio::task::spawn_blocking(move || meta.locate_chunks(&[chunk])).await else {
            return false;
        };
        match found {
            Ok(locations) => match locations.into_iter().next().flatten() {
                Some(location) => contents.is_reachable(&location).await,
                None => true,
            },
            Err(_) => false,
        }
    }

    /// Reports whether the store answers now.
    pub(crate) fn is_reachable_now(&self) -> bool {
        runtime()
            .block_on(async { timeout(PROMPT_REPLY_TIMEOUT, self.clone().answers()).await })
            .unwrap_or(false)
    }

    /// Probes until the store answers, then clears `outage`; clears it too if the store is known to have become
    /// reachable again.
    pub(crate) async fn wait_until_reachable(self, outage: Weak<Outage>, reachable: Reachable) {
        let mut probes = JoinSet::new();
        let mut due = Instant::now() + jittered(PROBE_INTERVAL);
        loop {
            let is_back = tokio::select! {
                () = sleep_until(due) => {
                    due = Instant::now() + jittered(PROBE_INTERVAL);
                    if probes.len() < MAX_PROBES {
                        probes.spawn(self.clone().answers());
                    }
                    false
                }
                Some(result) = probes.join_next() => result.unwrap_or(false),
            };
            let Some(outage) = outage.upgrade() else { return };
            let now = reachable();
            let mut outage = outage.lock();
            if is_back || *outage != now {
                *outage = None;
                return;
            }
        }
    }
}
