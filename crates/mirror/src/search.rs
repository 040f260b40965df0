//! Searches of the source for inodes of which only a handle is known: one search at a time, on a thread of its own.
//!
//! Requests that arrive during a search are batched into the next one. An inode that a complete search did not find is
//! not searched for again for one minute: it was moved out of the source, and its handle may be used arbitrarily often.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shunt_fuse::{Errno, NodeId, Request};

use crate::lower::Lower;

/// Lifetime of a negative result, during which the inode is not searched for again.
const NEGATIVE_TTL: Duration = Duration::from_secs(60);

/// Limit on remembered negative results.
const MAX_NEGATIVE_ENTRIES: usize = 1024;

/// Limit on inodes waiting for a search; requests beyond it fail with EAGAIN.
const MAX_SEARCHED_HANDLES: usize = 4096;

/// A request that waits for a search.
#[derive(Debug, Default)]
struct Waiter(Mutex<(bool, Option<Waker>)>);

impl Waiter {
    fn done(&self) {
        let mut state = self.0.lock();
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// The search thread is running.
    running: bool,
    waiting: Vec<(NodeId, Arc<Waiter>)>,
    absent: Vec<(NodeId, Instant)>,
}

/// State of the searches of one mirror.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    state: Mutex<State>,
    ended: AtomicBool,
    /// A search has walked the complete source.
    walked: AtomicBool,
}

impl Searches {
    /// Stops all searches when the mount ends.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Searches the source for an inode that exists and whose path is not known.
    ///
    /// # Errors
    /// ESTALE if it was not found a short while ago; EINTR if the caller gave up; EAGAIN if no thread can be
    /// started or too many inodes are waiting.
    pub(crate) async fn find(
        self: &Arc<Self>,
        request: &Request<'_>,
        lower: &Arc<Lower>,
        id: NodeId,
    ) -> Result<(), Errno> {
        let waiter = self.enqueue(lower, id)?;
        let mut interrupted = pin!(request.interrupted());
        poll_fn(|context| {
            if interrupted.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Errno::INTR));
            }
            let mut state = waiter.0.lock();
            if state.0 {
                return Poll::Ready(Ok(()));
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn enqueue(self: &Arc<Self>, lower: &Arc<Lower>, id: NodeId) -> Result<Arc<Waiter>, Errno> {
        let mut state = self.state.lock();
        state.absent.retain(|(_, since)| since.elapsed() < NEGATIVE_TTL);
        let is_absent = state.absent.iter().any(|(absent, _)| *absent == id);
        if is_absent || self.ended.load(Ordering::Acquire) {
            return Err(Errno::STALE);
        }
        if state.waiting.len() >= MAX_SEARCHED_HANDLES {
            return Err(Errno::AGAIN);
        }
        let waiter = Arc::new(Waiter::default());
        state.waiting.push((id, waiter.clone()));
        if !state.running {
            let (searches, lower) = (self.clone(), lower.clone());
            let work = move || searches.work(&lower);
            let started = std::thread::Builder::new().name("search".to_owned()).spawn(work);
            if started.is_err() {
                state.waiting.clear();
                return Err(Errno::AGAIN);
            }
            state.running = true;
        }
        Ok(waiter)
    }

    fn work(&self, lower: &Lower) {
        loop {
            let waiting = {
                let mut state = self.state.lock();
                if state.waiting.is_empty() {
                    state.running = false;
                    return;
                }
                std::mem::take(&mut state.waiting)
            };
            let ids: Vec<_> = waiting.iter().map(|(id, _)| *id).collect();
            // The first walk covers the whole source, because more inodes are likely to be requested.
            let first = !self.walked.swap(true, Ordering::AcqRel);
            let goes_on = |left| !self.ended.load(Ordering::Acquire) && (first || left > 0);
            let started = Instant::now();
            lower.search(&ids, goes_on);
            let absent: Vec<_> = ids.into_iter().filter(|id| !lower.is_where_noted(*id)).collect();
            tracing::debug!(
                requested = waiting.len(), absent = absent.len(), took = ?started.elapsed(), "searched the source for inodes"
            );
            let mut state = self.state.lock();
            state.absent.extend(absent.into_iter().map(|id| (id, Instant::now())));
            let excess = state.absent.len().saturating_sub(MAX_NEGATIVE_ENTRIES);
            state.absent.drain(..excess);
            drop(state);
            waiting.iter().for_each(|(_, waiter)| waiter.done());
        }
    }
}
