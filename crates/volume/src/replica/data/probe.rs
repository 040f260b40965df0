//! Asking a store of contents whether it is there.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::content::ContentStore;
use crate::object::{ChunkId, Content, Layout, Segment};
use crate::runtime::runtime;
use crate::store::MetaStore;

/// What is out of reach is asked so often whether it is back,
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// by so many questions at once: one that went into a line that is silent is without an answer for long.
const MAX_PROBES: usize = 8;
/// Who found that it is not there waits so much longer, in case that it is.
const PROMPT_REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the store is in reach, as far as somebody else knows, and how often it has come into it.
pub(crate) type Reachable = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// In which time of reach it was found not to be there. Who asks whether it is back ends that.
pub(crate) type Outage = Mutex<Option<u64>>;

/// A question that takes what reading takes: where a piece is, and a byte of it.
#[derive(Clone)]
pub(crate) struct Probe {
    meta: Arc<dyn MetaStore>,
    contents: ContentStore,
    chunk: ChunkId,
}

impl Probe {
    /// By what was wanted; `None` of what no store is asked for.
    pub fn of(meta: &Arc<dyn MetaStore>, contents: &ContentStore, wanted: &Content) -> Option<Self> {
        let (Layout::Pieces(pieces) | Layout::Indirect(pieces)) = &wanted.layout else { return None };
        let chunk = pieces.iter().find_map(|piece| match piece {
            Segment::Chunk { id, .. } => Some(*id),
            Segment::Hole { .. } => None,
        })?;
        Some(Self { meta: meta.clone(), contents: contents.clone(), chunk })
    }

    /// Whether there is an answer, whatever it is.
    async fn is_answered(self) -> bool {
        let Self { meta, contents, chunk } = self;
        let Ok(found) = tokio::task::spawn_blocking(move || meta.locate_chunks(&[chunk])).await else {
            return false;
        };
        match found {
            Ok(places) => match places.into_iter().next().flatten() {
                Some(place) => contents.is_reachable(&place).await,
                None => true,
            },
            Err(_) => false,
        }
    }

    /// Whether it is there now after all.
    pub fn is_reachable_now(&self) -> bool {
        runtime()
            .block_on(async { timeout(PROMPT_REPLY_TIMEOUT, self.clone().is_answered()).await })
            .unwrap_or(false)
    }

    /// Asks until there is an answer, then ends that it is `gone`; so where it is known otherwise that it was away and is
    /// back.
    pub async fn wait_until_reachable(self, gone: Weak<Outage>, reachable: Reachable) {
        let mut asked = JoinSet::new();
        let mut ticks = interval_at(Instant::now() + PROBE_INTERVAL, PROBE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_back = tokio::select! {
                _ = ticks.tick() => {
                    if asked.len() < MAX_PROBES {
                        asked.spawn(self.clone().is_answered());
                    }
                    false
                }
                Some(answered) = asked.join_next() => answered.unwrap_or(false),
            };
            let Some(gone) = gone.upgrade() else { return };
            let now = reachable();
            let mut gone = gone.lock();
            if is_back || *gone != now {
                *gone = None;
                return;
            }
        }
    }
}
