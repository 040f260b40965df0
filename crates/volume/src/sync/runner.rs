//! Synchronisation by itself, on a thread.

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

/// Between attempts to reach a store, at most.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// After a round in which nothing went well: what was refused is refused for the same reason at once.
const FAILED_ROUND_DELAY: Duration = Duration::from_millis(500);

/// Who misses the store has it tried so often.
const RETRY_ON_DEMAND_INTERVAL: Duration = Duration::from_secs(1);

/// How long a wait for the store's hint is.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether a node is in touch with its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// It is, or nothing is known to the contrary.
    Online,
    /// Somebody wants it not to be.
    Offline,
    /// It cannot be, and tries again by itself.
    Unreachable(String),
    /// Changes of others come in, and those of this node are not taken. It tries again by itself.
    Denied(String),
    /// It cannot go on, and tries again by itself.
    Stopped(String),
}

/// How synchronisation goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// In touch with the store?
    pub link: LinkState,
    /// The place of the log up to which it was read.
    pub cursor: Seq,
    /// Commits of others that came in since the start.
    pub received: u64,
    /// Commits that were accepted since the start.
    pub sent: u64,
    /// Changes that wait for a conflict to be resolved, or for a file to be closed.
    pub blocked: usize,
    /// All that was known the last time is done.
    pub idle: bool,
}

struct State {
    progress: Progress,
    woken: bool,
    last_retry: Option<Instant>,
    /// How often the store came into reach.
    reconnects: u64,
    ended: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    rounds: OnceLock<Arc<dyn RoundObserver>>,
    push_paused: Arc<AtomicBool>,
}

/// Who hears of each round.
pub trait RoundObserver: Send + Sync {
    /// One begins. What this answers is given to its [`end`](Self::end).
    fn begin(&self) -> u64;

    /// It went well, and read the log up to `cursor`. After an idle one nothing is left of what was changed before it began,
    /// but for what cannot go now.
    fn end(&self, began: u64, idle: bool, cursor: Seq);
}

impl Shared {
    fn wake(&self) {
        self.state.lock().woken = true;
        self.wake.notify_all();
    }

    /// Until something happens, or for so long. `false`: it ends.
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
    /// Whether the store is in reach, as far as is known, and for which time that is. Where it is not for another reason than
    /// somebody's wish, it is tried soon.
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

    /// There may be something to do.
    pub fn wake(&self) {
        self.0.wake();
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

/// Synchronises as long as it lives.
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
    /// Starts, offline if that is wanted.
    ///
    /// # Errors
    /// Those of starting threads.
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

    /// To be called when something was changed here.
    pub fn waker(&self) -> Waker {
        Waker(self.shared.clone())
    }

    /// Goes on, or leaves the store alone until told otherwise. What is changed after this returned is not sent, though a round
    /// may be under way.
    pub fn set_online(&self, online: bool) {
        self.shared.push_paused.store(!online, Ordering::SeqCst);
        {
            let mut state = self.shared.state.lock();
            state.reconnects += u64::from(online);
            state.progress.link = if online { LinkState::Online } else { LinkState::Offline };
        }
        self.shared.wake();
    }

    /// Who hears of each round. The first counts.
    pub fn set_rounds(&self, rounds: Arc<dyn RoundObserver>) {
        self.shared.rounds.set(rounds).ok();
    }

    /// How it goes.
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
                        tracing::warn!("what is changed here is not taken: {reason}");
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
                    again.begin();
                }
                match (step.more || step.sent > 0, step.refused > 0 && step.sent + step.received == 0) {
                    (_, true) => Some(FAILED_ROUND_DELAY),
                    (true, _) => Some(Duration::ZERO),
                    _ if !is_taken => Some(again.next()),
                    // A file that was being written is looked at again.
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
                Some(again.next())
            }
        };
    }
}

/// Hears of what others commit.
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
            // What it stopped at is there still.
            Ok(true) if matches!(touch, LinkState::Stopped(_)) => {
                shared.wake();
                std::thread::sleep(again.next());
            }
            Ok(true) => {
                shared.wake();
                again.begin();
                // It takes a moment until the cursor has moved.
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(false) => again.begin(),
            Err(_) => {
                // A connection that ended is no news. But who reads is told at once that the store is not there, though there be
                // nothing to send, or a round be in the middle of that.
                if let LinkState::Online | LinkState::Denied(_) = touch
                    && let Err(StoreError::Unreachable(reason)) = store.head()
                {
                    shared.set_link(LinkState::Unreachable(reason));
                    shared.wake();
                }
                std::thread::sleep(again.next());
            }
        }
    }
}
