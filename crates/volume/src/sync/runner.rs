//! Synchronisation by itself, on a thread.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::id::Seq;
use crate::pauses::Pauses;
use crate::store::{MetaStore, StoreError};
use crate::sync::{Site, SyncError, Synchroniser};

/// Between attempts to reach a store, at most.
const SELDOM: Duration = Duration::from_secs(30);

/// After a round in which nothing went well: what was refused is refused for the same reason at once.
const REFUSED: Duration = Duration::from_millis(500);

/// Who misses the store has it tried so often.
const NUDGE: Duration = Duration::from_secs(1);

/// How long a wait for the store's hint is.
const HINT: Duration = Duration::from_secs(1);

/// Whether a node is in touch with its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touch {
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
    pub touch: Touch,
    /// The place of the log up to which it was read.
    pub cursor: Seq,
    /// Commits of others that came in since the start.
    pub received: u64,
    /// Commits that were accepted since the start.
    pub sent: u64,
    /// Changes that wait for a conflict to be resolved, or for a file to be closed.
    pub held: usize,
    /// All that was known the last time is done.
    pub idle: bool,
}

struct State {
    progress: Progress,
    woken: bool,
    nudged: Option<Instant>,
    /// How often the store came into reach.
    comings: u64,
    ended: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    rounds: OnceLock<Arc<dyn Rounds>>,
    keeps: Arc<AtomicBool>,
}

/// Who hears of each round.
pub trait Rounds: Send + Sync {
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
        self.state.lock().progress.touch == Touch::Offline
    }

    /// Somebody's wish to be offline stays.
    fn touch(&self, touch: Touch) {
        let mut state = self.state.lock();
        if state.progress.touch != Touch::Offline {
            state.progress.touch = touch;
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
        match state.progress.touch {
            Touch::Online | Touch::Denied(_) => return Some(state.comings),
            Touch::Offline => return None,
            Touch::Unreachable(_) | Touch::Stopped(_) => {}
        }
        if state.nudged.is_none_or(|nudged| nudged.elapsed() >= NUDGE) {
            state.nudged = Some(Instant::now());
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
    pub fn start<S: Site + Send + 'static>(
        synchroniser: Synchroniser<S>,
        store: Arc<dyn MetaStore>,
        online: bool,
    ) -> io::Result<Self> {
        let progress = Progress {
            touch: if online { Touch::Online } else { Touch::Offline },
            cursor: synchroniser.site().cursor().unwrap_or_default(),
            received: 0,
            sent: 0,
            held: 0,
            idle: false,
        };
        let state = Mutex::new(State { progress, woken: true, nudged: None, comings: 0, ended: false });
        let keeps = synchroniser.keeps();
        keeps.store(!online, Ordering::SeqCst);
        let shared = Arc::new(Shared { state, wake: Condvar::new(), rounds: OnceLock::new(), keeps });
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
        self.shared.keeps.store(!online, Ordering::SeqCst);
        {
            let mut state = self.shared.state.lock();
            state.comings += u64::from(online);
            state.progress.touch = if online { Touch::Online } else { Touch::Offline };
        }
        self.shared.wake();
    }

    /// Who hears of each round. The first counts.
    pub fn set_rounds(&self, rounds: Arc<dyn Rounds>) {
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

fn run<S: Site>(shared: &Shared, mut synchroniser: Synchroniser<S>) {
    let mut again = Pauses::new(SELDOM);
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
                progress.held = step.held;
                progress.idle = !step.more && step.sent == 0 && step.received == 0 && is_taken;
                progress.cursor = synchroniser.site().cursor().unwrap_or(progress.cursor);
                let touch = step.denied.map_or(Touch::Online, Touch::Denied);
                if progress.touch != Touch::Offline && progress.touch != touch {
                    if let Touch::Denied(reason) = &touch {
                        tracing::warn!("what is changed here is not taken: {reason}");
                    }
                    let was_there = matches!(progress.touch, Touch::Online | Touch::Denied(_));
                    progress.touch = touch;
                    state.comings += u64::from(!was_there);
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
                    (_, true) => Some(REFUSED),
                    (true, _) => Some(Duration::ZERO),
                    _ if !is_taken => Some(again.next()),
                    // A file that was being written is looked at again.
                    _ if step.held > 0 => Some(Duration::from_secs(1)),
                    _ => None,
                }
            }
            Err(error) => {
                let reason = error.to_string();
                match error {
                    SyncError::Store(StoreError::Unreachable(_)) => shared.touch(Touch::Unreachable(reason)),
                    _ => {
                        let touch = Touch::Stopped(reason.clone());
                        // Tried again and again, it is told once.
                        if shared.state.lock().progress.touch != touch {
                            tracing::error!("synchronisation stopped: {reason}");
                        }
                        shared.touch(touch);
                    }
                }
                Some(again.next())
            }
        };
    }
}

/// Hears of what others commit.
fn listen(shared: &Shared, store: &dyn MetaStore) {
    let mut again = Pauses::new(HINT);
    loop {
        let (cursor, ended, touch) = {
            let state = shared.state.lock();
            (state.progress.cursor, state.ended, state.progress.touch.clone())
        };
        if ended {
            return;
        }
        let heard = match touch {
            Touch::Offline => Err(StoreError::Unreachable(String::new())),
            _ => store.wait(cursor, HINT),
        };
        match heard {
            // What it stopped at is there still.
            Ok(true) if matches!(touch, Touch::Stopped(_)) => {
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
                if let Touch::Online | Touch::Denied(_) = touch
                    && let Err(StoreError::Unreachable(reason)) = store.head()
                {
                    shared.touch(Touch::Unreachable(reason));
                    shared.wake();
                }
                std::thread::sleep(again.next());
            }
        }
    }
}
