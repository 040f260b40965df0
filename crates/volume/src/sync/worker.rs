//! Runs synchronisation on a thread: rounds follow each other while there is work, and pause with exponential backoff after
//! errors. A second thread waits for commits of peers by long polling.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::backoff::Backoff;
use crate::id::Seq;
use crate::store::{MetaStore, StoreError};
use crate::sync::{SyncError, SyncReplica, Synchroniser};

/// Maximum interval between attempts to reach a store.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Pause after a round in which every commit was rejected: an immediate retry would be rejected for the same reason.
const FAILED_ROUND_DELAY: Duration = Duration::from_millis(500);

/// Minimum interval between retries on demand, while the store is unreachable.
const RETRY_ON_DEMAND_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of a long poll for commits in the store.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of the connection between a node and its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// Connected, or nothing is known to the contrary.
    Online,
    /// Disconnected on request.
    Offline,
    /// The store is unreachable; retried automatically.
    Unreachable(String),
    /// Changes of other nodes are received, and those of this node are rejected; retried automatically.
    Denied(String),
    /// Synchronisation failed; retried automatically.
    Stopped(String),
}

/// The progress of synchronisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The state of the connection.
    pub link: LinkState,
    /// The position in the log up to which it was read.
    pub cursor: Seq,
    /// Commits of other nodes received since the start.
    pub received: u64,
    /// Commits accepted since the start.
    pub sent: u64,
    /// Changes blocked by an unresolved conflict or a file open for writing.
    pub blocked: usize,
    /// The last round found nothing to do.
    pub idle: bool,
}

struct State {
    progress: Progress,
    woken: bool,
    last_retry: Option<Instant>,
    /// Counts how often the store became reachable.
    reconnects: u64,
    ended: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    rounds: OnceLock<Arc<dyn RoundObserver>>,
    push_paused: Arc<AtomicBool>,
}

/// Receives notifications of each round.
pub trait RoundObserver: Send + Sync {
    /// Called when a round begins. The result is passed to its [`end`](Self::end).
    fn begin(&self) -> u64;

    /// Called when a round succeeded and read the log up to `cursor`. After an idle round, no change made before it began is
    /// left to push, except blocked ones.
    fn end(&self, began: u64, idle: bool, cursor: Seq);
}

impl Shared {
    fn wake(&self) {
        self.state.lock().woken = true;
        self.wake.notify_all();
    }

    /// Waits until woken or for a time. Returns `false` at the end.
    fn rest(&self, at_most: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        if !state.woken && !state.ended {
            match at_most {
                Some(at_most) => drop(self.wake.wait_for(&mut state, at_most)),
                None => self.wake.wait(&mut state),
            }
        }
        state.woken = false;
        !state.ended
    }

    fn is_offline(&self) -> bool {
        self.state.lock().progress.link == LinkState::Offline
    }

    /// Somebody's wish to be offline stays.
    fn set_link(&self, touch: LinkState) {
        let mut state = self.state.lock();
        if state.progress.link != LinkState::Offline {
            state.progress.link = touch;
        }
    }
}

/// Wakes a [`Runner`].
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Returns the count of reconnections if the store is believed to be reachable. If it is not, and the node is not set
    /// offline, a retry follows soon.
    pub fn online(&self) -> Option<u64> {
        let mut state = self.0.state.lock();
        match state.progress.link {
            LinkState::Online | LinkState::Denied(_) => return Some(state.reconnects),
            LinkState::Offline => return None,
            LinkState::Unreachable(_) | LinkState::Stopped(_) => {}
        }
        if state.last_retry.is_none_or(|nudged| nudged.elapsed() >= RETRY_ON_DEMAND_INTERVAL) {
            state.last_retry = Some(Instant::now());
            state.woken = true;
            self.0.wake.notify_all();
        }
        None
    }

    /// Wakes the runner, because there may be work.
    pub fn wake(&self) {
        self.0.wake();
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

/// Synchronises in the background until it is dropped.
pub struct Runner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Runner {
    /// Starts the threads; offline at first unless `online` is set.
    ///
    /// # Errors
    /// The errors of starting threads.
    pub fn start<S: SyncReplica + Send + 'static>(
        synchroniser: Synchroniser<S>,
        store: Arc<dyn MetaStore>,
        online: bool,
    ) -> io::Result<Self> {
        let progress = Progress {
            link: if online { LinkState::Online } else { LinkState::Offline },
            cursor: synchroniser.replica().cursor().unwrap_or_default(),
            received: 0,
            sent: 0,
            blocked: 0,
            idle: false,
        };
        let state =
            Mutex::new(State { progress, woken: true, last_retry: None, reconnects: 0, ended: false });
        let keeps = synchroniser.push_paused();
        keeps.store(!online, Ordering::SeqCst);
        let shared =
            Arc::new(Shared { state, wake: Condvar::new(), rounds: OnceLock::new(), push_paused: keeps });
        let (one, other) = (shared.clone(), shared.clone());
        let mut runner = Self { shared, threads: Vec::new() };
        let name = |name: &str| std::thread::Builder::new().name(name.into());
        runner.threads.push(name("sync").spawn(move || run(&one, synchroniser))?);
        runner.threads.push(name("sync-hints").spawn(move || listen(&other, &*store))?);
        Ok(runner)
    }

    /// Returns a handle to wake the runner after local changes.
    pub fn waker(&self) -> Waker {
        Waker(self.shared.clone())
    }

    /// Goes online, or offline until set online again. Changes made after this returns are not pushed, even if a round is in
    /// progress.
    pub fn set_online(&self, online: bool) {
        self.shared.push_paused.store(!online, Ordering::SeqCst);
        {
            let mut state = self.shared.state.lock();
            state.reconnects += u64::from(online);
            state.progress.link = if online { LinkState::Online } else { LinkState::Offline };
        }
        self.shared.wake();
    }

    /// Sets the observer of rounds. Only the first call has an effect.
    pub fn set_rounds(&self, rounds: Arc<dyn RoundObserver>) {
        self.shared.rounds.set(rounds).ok();
    }

    /// Returns the progress.
    pub fn progress(&self) -> Progress {
        self.shared.state.lock().progress.clone()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.state.lock().ended = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

fn run<S: SyncReplica>(shared: &Shared, mut synchroniser: Synchroniser<S>) {
    let mut again = Backoff::new(MAX_BACKOFF);
    let mut rest = Some(Duration::ZERO);
    while shared.rest(rest) {
        if shared.is_offline() {
            rest = None;
            continue;
        }
        let rounds = shared.rounds.get().map(|rounds| (rounds, rounds.begin()));
        let outcome = synchroniser.step();
        rest = match outcome {
            Ok(step) => {
                let is_taken = step.denied.is_none();
                let mut state = shared.state.lock();
                let progress = &mut state.progress;
                progress.received += step.received as u64;
                progress.sent += step.sent as u64;
                progress.blocked = step.blocked;
                progress.idle = !step.more && step.sent == 0 && step.received == 0 && is_taken;
                progress.cursor = synchroniser.replica().cursor().unwrap_or(progress.cursor);
                let touch = step.denied.map_or(LinkState::Online, LinkState::Denied);
                if progress.link != LinkState::Offline && progress.link != touch {
                    if let LinkState::Denied(reason) = &touch {
                        tracing::warn!("the store rejects this node's changes: {reason}");
                    }
                    let was_there = matches!(progress.link, LinkState::Online | LinkState::Denied(_));
                    progress.link = touch;
                    state.reconnects += u64::from(!was_there);
                }
                let progress = &state.progress;
                let cursor = progress.cursor;
                drop(state);
                if let Some((rounds, began)) = rounds {
                    rounds.end(began, !step.more && step.sent + step.refused == 0 && is_taken, cursor);
                }
                if is_taken {
                    again.reset();
                }
                match (step.more || step.sent > 0, step.refused > 0 && step.sent + step.received == 0) {
                    (_, true) => Some(FAILED_ROUND_DELAY),
                    (true, _) => Some(Duration::ZERO),
                    _ if !is_taken => Some(again.next_pause()),
                    // Checks again for files that were open for writing.
                    _ if step.blocked > 0 => Some(Duration::from_secs(1)),
                    _ => None,
                }
            }
            Err(error) => {
                let reason = error.to_string();
                match error {
                    SyncError::Store(StoreError::Unreachable(_)) => {
                        shared.set_link(LinkState::Unreachable(reason))
                    }
                    _ => {
                        let touch = LinkState::Stopped(reason.clone());
                        // Tried again and again, it is told once.
                        if shared.state.lock().progress.link != touch {
                            tracing::error!("synchronisation stopped: {reason}");
                        }
                        shared.set_link(touch);
                    }
                }
                Some(again.next_pause())
            }
        };
    }
}

/// Wakes the runner when the store has new commits.
fn listen(shared: &Shared, store: &dyn MetaStore) {
    let mut again = Backoff::new(LONG_POLL_TIMEOUT);
    loop {
        let (cursor, ended, touch) = {
            let state = shared.state.lock();
            (state.progress.cursor, state.ended, state.progress.link.clone())
        };
        if ended {
            return;
        }
        let heard = match touch {
            LinkState::Offline => Err(StoreError::Unreachable(String::new())),
            _ => store.wait(cursor, LONG_POLL_TIMEOUT),
        };
        match heard {
            // The entry at which synchronisation stopped is still there.
            Ok(true) if matches!(touch, LinkState::Stopped(_)) => {
                shared.wake();
                std::thread::sleep(again.next_pause());
            }
            Ok(true) => {
                shared.wake();
                again.reset();
                // The cursor moves only after a moment.
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(false) => again.reset(),
            Err(_) => {
                // A failed poll alone proves nothing. An unreachable store is reported at once, though, so that readers learn
                // of it even if there is nothing to push, or a round is in the middle of a push.
                if let LinkState::Online | LinkState::Denied(_) = touch
                    && let Err(StoreError::Unreachable(reason)) = store.head()
                {
                    shared.set_link(LinkState::Unreachable(reason));
                    shared.wake();
                }
                std::thread::sleep(again.next_pause());
            }
        }
    }
}
