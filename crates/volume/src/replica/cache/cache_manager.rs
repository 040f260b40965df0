//! Enforces the cache policy: downloads the files that are to be cached, and evicts the least recently opened ones above the
//! size limit.
//!
//! A thread reacts to changes of the cache and of the tree, and retries failed downloads with exponential backoff.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;

use crate::backoff::Backoff;
use crate::chunks::priority;
use crate::replica::Replica;

/// How much of a volume a node caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// Everything: contents are downloaded in the background.
    Full,
    /// Files that were opened, and pinned ones; with a limit, at most that many bytes of evictable data.
    #[default]
    Cached,
    /// Only files that are open, pinned or not yet in the store.
    OnDemand,
}

/// The cache policy of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CachePolicy {
    /// The cache mode.
    pub mode: CacheMode,
    /// The limit in mode [`CacheMode::Cached`], in bytes; `None`: limited only by the disk.
    pub limit: Option<u64>,
}

impl CachePolicy {
    fn limit(&self) -> Option<u64> {
        match self.mode {
            CacheMode::Full => None,
            CacheMode::Cached => self.limit,
            CacheMode::OnDemand => Some(0),
        }
    }
}

/// Delay after a notification, so that many changes are handled together.
const DEBOUNCE_INTERVAL: Duration = Duration::from_millis(50);
/// The delay while nothing is evictable: a search for candidates reads the whole tree.
const UNEVICTABLE_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of scans without a notification.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);
/// Bounds of the pause after a failed download: of the first one, doubled up to that of all.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Files queried together.
const SCAN_BATCH_FILES: u32 = 1024;
/// Files downloaded together, before yielding to foreground downloads again.
const FETCH_BATCH_FILES: usize = 64;

#[derive(Default)]
struct State {
    ended: AtomicBool,
    /// Bytes above the limit that are not evictable.
    unevictable_bytes: AtomicU64,
    /// Files that are to be cached and were missing in the last scan.
    missing_files: AtomicU64,
}

/// Manages the cache of a replica until it is dropped.
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
    /// Starts the thread.
    ///
    /// # Errors
    /// The error of starting the thread.
    pub fn start(replica: Arc<Replica>, policy: CachePolicy) -> io::Result<Self> {
        let state = Arc::new(State::default());
        replica.set_prefetch(policy.mode != CacheMode::OnDemand);
        if policy.limit().is_some() {
            replica.enable_recent_opens();
        }
        let (one, other) = (replica.clone(), state.clone());
        let thread = std::thread::Builder::new()
            .name("cache-manager".into())
            .spawn(move || run(&one, policy, &other))?;
        Ok(Self { replica, state, policy, thread: Some(thread) })
    }

    /// Returns the cache policy.
    pub fn policy(&self) -> CachePolicy {
        self.policy
    }

    /// Returns the bytes above the limit that are not evictable: open, pinned, or not in the store.
    pub fn unevictable_bytes(&self) -> u64 {
        self.state.unevictable_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of files that are to be cached and were missing in the last scan; a part of them, if there are
    /// many.
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

fn run(replica: &Replica, policy: CachePolicy, state: &State) {
    let mut backoff = Backoff::between(RETRY_BACKOFF.0, RETRY_BACKOFF.1);
    let (mut delay, mut debounce) = (Duration::ZERO, DEBOUNCE_INTERVAL);
    loop {
        if replica.wait_for_cache_change(delay) && !state.ended.load(Ordering::Relaxed) {
            std::thread::sleep(debounce);
        }
        if state.ended.load(Ordering::Relaxed) {
            return;
        }
        if let Some(limit) = policy.limit() {
            evict_above_limit(replica, limit, state);
        }
        debounce = if state.unevictable_bytes.load(Ordering::Relaxed) > 0 {
            UNEVICTABLE_RETRY_INTERVAL
        } else {
            DEBOUNCE_INTERVAL
        };
        let outcome = fetch_missing(replica, policy, state);
        replica.shrink_basis_cache(policy.limit());
        delay = match outcome {
            Ok(()) => {
                backoff.reset();
                SCAN_INTERVAL
            }
            Err(errno) => {
                tracing::debug!("cannot download the files that the cache policy requires: {errno}; retried");
                backoff.next_pause()
            }
        };
    }
}

fn evict_above_limit(replica: &Replica, limit: u64, state: &State) {
    let cached = replica.cached_bytes();
    if cached <= limit {
        state.unevictable_bytes.store(0, Ordering::Relaxed);
        return;
    }
    // Frees some more space for the next files: the tree is not searched for each of them.
    match replica.evict(cached - limit + limit / 10) {
        Ok(_) => {}
        Err(errno) => tracing::warn!(
            "cannot evict files from the cache: {errno}; the cache \
            stays above its limit, retried with the next change"
        ),
    }
    state.unevictable_bytes.store(replica.cached_bytes().saturating_sub(limit), Ordering::Relaxed);
}

/// Downloads the files that are to be cached.
fn fetch_missing(replica: &Replica, policy: CachePolicy, state: &State) -> Result<(), Errno> {
    let mut after = 0;
    let mut failed = None;
    while !state.ended.load(Ordering::Relaxed) {
        // Over a slow link only pinned files are downloaded.
        let all = policy.mode == CacheMode::Full && replica.is_link_fast();
        let missing = replica.missing_files(all, after, SCAN_BATCH_FILES)?;
        let Some(&last) = missing.last() else { break };
        fetch_files(replica, &missing, state, &mut failed)?;
        after = last;
    }
    if policy.mode == CacheMode::Cached {
        refetch_replaced(replica, policy.limit, state, &mut failed)?;
    }
    if failed.is_none() {
        state.missing_files.store(0, Ordering::Relaxed);
    }
    failed.map_or(Ok(()), Err)
}

/// Downloads new versions of files that were cached when they were replaced, as far as that needs no eviction.
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
        let mut available = limit.map_or(u64::MAX, |limit| limit.saturating_sub(replica.cached_bytes()));
        let fits = |&(num, bytes): &(u64, u64)| {
            available = available.checked_sub(bytes)?;
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
            // Damaged files do not prevent downloading the others.
            Err(errno @ Errno::IO) => *failed = Some(errno),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
