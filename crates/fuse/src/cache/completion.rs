//! The completion of a notification: a one-shot result that a future or a blocked thread waits for. A wait within a handler fails
//! with EDEADLK, because the notification is sent only after the handler's reply.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

thread_local! {
    static IS_HANDLING: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one that runs a handler, or as one that does not; returns what it was before. A handler must not
/// wait for a notification, which the kernel may deliver only after the handler's reply.
pub(crate) fn set_handling(now: bool) -> bool {
    IS_HANDLING.replace(now)
}

fn is_handling() -> bool {
    IS_HANDLING.get()
}

#[derive(Debug)]
struct State<T> {
    result: Option<Result<T, Errno>>,
    wakers: Vec<Waker>,
}

#[derive(Debug)]
struct Inner<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

/// The receiving side: a future, or a blocking wait, for threads that handle no request.
///
/// It may be dropped: the notification is sent all the same.
#[derive(Debug, Clone)]
pub struct Completion<T = ()>(Arc<Inner<T>>);

/// The sending side, held by the notifier.
#[derive(Debug, Clone)]
pub(crate) struct Completer<T = ()>(Arc<Inner<T>>);

pub(crate) fn completion<T>() -> (Completer<T>, Completion<T>) {
    let state = Mutex::new(State { result: None, wakers: Vec::new() });
    let inner = Arc::new(Inner { state, done: Condvar::new() });
    (Completer(inner.clone()), Completion(inner))
}

impl<T> Completer<T> {
    /// Reports whether a receiver still exists.
    pub(crate) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    pub(crate) fn complete(&self, result: Result<T, Errno>) {
        let mut state = self.0.state.lock();
        if state.result.is_none() {
            state.result = Some(result);
            self.0.done.notify_all();
            let wakers = std::mem::take(&mut state.wakers);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T: Clone> Completion<T> {
    /// Blocks this thread until the notification is sent.
    ///
    /// # Errors
    /// EDEADLK within a handler, which must reply first; otherwise the error of the notification.
    pub fn wait(&self) -> Result<T, Errno> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(result) = &state.result {
                return result.clone();
            }
            if is_handling() {
                return Err(Errno::DEADLK);
            }
            self.0.done.wait(&mut state);
        }
    }

    /// Reports whether the notification has completed.
    pub fn is_done(&self) -> bool {
        self.0.state.lock().result.is_some()
    }
}

impl<T: Clone> Future for Completion<T> {
    type Output = Result<T, Errno>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state.lock();
        if let Some(result) = &state.result {
            return Poll::Ready(result.clone());
        }
        if is_handling() {
            return Poll::Ready(Err(Errno::DEADLK));
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}
