//! Sees to it that what is here is what is wanted here: brings what is to be kept, and has leave what is too much.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;

use crate::content::priority;
use crate::replica::Replica;

/// How much of a volume a node keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// All of it: contents come by themselves.
    Complete,
    /// What was used, and what is pinned; with a limit, at most so many bytes of what can be had again.
    #[default]
    Cached,
    /// What is open, pinned or not yet in the store, and nothing else.
    Remote,
}

/// How much of a volume is to be here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CachePolicy {
    /// The node's role.
    pub mode: CacheMode,
    /// Of a cached one: in bytes; `None`: as the disk has room.
    pub limit: Option<u64>,
}

impl CachePolicy {
    fn limit(&self) -> Option<u64> {
        match self.mode {
            CacheMode::Complete => None,
            CacheMode::Cached => self.limit,
            CacheMode::Remote => Some(0),
        }
    }
}

/// Changes are waited for so long, that many come together.
const DEBOUNCE_INTERVAL: Duration = Duration::from_millis(50);
/// The same while nothing can leave: looking for what could means to read the whole tree.
const UNEVICTABLE_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Looked at without being told.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);
/// After what was wanted could not be had: from the first, each twice as long, to the second.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Files that are asked for together.
const SCAN_BATCH_FILES: u32 = 1024;
/// Files that are brought together, before who waits for others comes first again.
const FETCH_BATCH_FILES: usize = 64;

#[derive(Default)]
struct State {
    ended: AtomicBool,
    /// Bytes beyond the limit that cannot leave.
    unevictable_bytes: AtomicU64,
    /// Files that are to be here and were not when last looked.
    missing_files: AtomicU64,
}

/// Tends a replica as long as it lives.
pub struct CacheManager {
    replica: Arc<Replica>,
    state: Arc<State>,
    policy: CachePolicy,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for CacheManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheManager").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl CacheManager {
    /// Begins.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(replica: Arc<Replica>, keep: CachePolicy) -> io::Result<Self> {
        let state = Arc::new(State::default());
        replica.read_ahead(keep.mode != CacheMode::Remote);
        if keep.limit().is_some() {
            replica.enable_recent_opens();
        }
        let (one, other) = (replica.clone(), state.clone());
        let thread =
            std::thread::Builder::new().name("tend".into()).spawn(move || run(&one, keep, &other))?;
        Ok(Self { replica, state, policy: keep, thread: Some(thread) })
    }

    /// What is wanted.
    pub fn policy(&self) -> CachePolicy {
        self.policy
    }

    /// Bytes beyond the limit that could not leave: open, pinned, or not in the store.
    pub fn unevictable_bytes(&self) -> u64 {
        self.state.unevictable_bytes.load(Ordering::Relaxed)
    }

    /// Files that are to be here and were not when last looked; of many, some.
    pub fn missing_files(&self) -> u64 {
        self.state.missing_files.load(Ordering::Relaxed)
    }
}

impl Drop for CacheManager {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        self.replica.notify_cache_change();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn run(replica: &Replica, keep: CachePolicy, state: &State) {
    let mut again = RETRY_BACKOFF.0;
    let (mut rest, mut together) = (Duration::ZERO, DEBOUNCE_INTERVAL);
    loop {
        if replica.wait_for_cache_change(rest) && !state.ended.load(Ordering::Relaxed) {
            std::thread::sleep(together);
        }
        if state.ended.load(Ordering::Relaxed) {
            return;
        }
        if let Some(limit) = keep.limit() {
            shrink(replica, limit, state);
        }
        together = if state.unevictable_bytes.load(Ordering::Relaxed) > 0 {
            UNEVICTABLE_RETRY_INTERVAL
        } else {
            DEBOUNCE_INTERVAL
        };
        let brought = fetch_missing(replica, keep, state);
        replica.shrink_basis_cache(keep.limit());
        rest = match brought {
            Ok(()) => {
                again = RETRY_BACKOFF.0;
                SCAN_INTERVAL
            }
            Err(errno) => {
                tracing::debug!("what is to be here is not: {errno}");
                let rest = again;
                again = (again * 2).min(RETRY_BACKOFF.1);
                rest
            }
        };
    }
}

fn shrink(replica: &Replica, limit: u64, state: &State) {
    let here = replica.cached_bytes();
    if here <= limit {
        state.unevictable_bytes.store(0, Ordering::Relaxed);
        return;
    }
    // Some room for what comes next: the tree is not looked through for each file.
    match replica.evict(here - limit + limit / 10) {
        Ok(_) => {}
        Err(errno) => tracing::warn!("files cannot leave the cache: {errno}"),
    }
    state.unevictable_bytes.store(replica.cached_bytes().saturating_sub(limit), Ordering::Relaxed);
}

/// Brings what is to be here.
fn fetch_missing(replica: &Replica, keep: CachePolicy, state: &State) -> Result<(), Errno> {
    let mut after = 0;
    let mut failed = None;
    while !state.ended.load(Ordering::Relaxed) {
        // Over a slow way comes what was asked for by name, and nothing else.
        let all = keep.mode == CacheMode::Complete && replica.is_link_fast();
        let away = replica.missing_files(all, after, SCAN_BATCH_FILES)?;
        let Some(&last) = away.last() else { break };
        fetch_files(replica, &away, state, &mut failed)?;
        after = last;
    }
    if keep.mode == CacheMode::Cached {
        refetch_replaced(replica, keep.limit, state, &mut failed)?;
    }
    if failed.is_none() {
        state.missing_files.store(0, Ordering::Relaxed);
    }
    failed.map_or(Ok(()), Err)
}

/// Brings files that were here when another version took their place, as far as nothing has to leave for them.
fn refetch_replaced(
    replica: &Replica,
    limit: Option<u64>,
    state: &State,
    failed: &mut Option<Errno>,
) -> Result<(), Errno> {
    let mut after = 0;
    while !state.ended.load(Ordering::Relaxed) && replica.is_link_fast() {
        let replaced = replica.refetches(after, SCAN_BATCH_FILES)?;
        let Some(&(last, _)) = replaced.last() else { break };
        let mut room = limit.map_or(u64::MAX, |limit| limit.saturating_sub(replica.cached_bytes()));
        let fits = |&(num, takes): &(u64, u64)| {
            let rest = room.checked_sub(takes)?;
            room = rest;
            Some(num)
        };
        let fitting: Vec<u64> = replaced.iter().filter_map(fits).collect();
        if fitting.is_empty() {
            break;
        }
        fetch_files(replica, &fitting, state, failed)?;
        after = last;
    }
    Ok(())
}

fn fetch_files(
    replica: &Replica,
    nums: &[u64],
    state: &State,
    failed: &mut Option<Errno>,
) -> Result<(), Errno> {
    state.missing_files.store(nums.len() as u64, Ordering::Relaxed);
    for some in nums.chunks(FETCH_BATCH_FILES) {
        if state.ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        priority::yield_to_foreground();
        match replica.fetch_in_background(some) {
            Ok(()) => {}
            // Damaged ones do not keep the others from coming.
            Err(errno @ Errno::IO) => *failed = Some(errno),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
