//! Future that completes when a kernel notification was sent.
//!
//! A thread that handles a request cannot wait for a notification, so another thread waits for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use parking_lot::Mutex;
use shunt_fuse::Completion;

#[derive(Debug, Default)]
struct State {
    done: bool,
    waker: Option<Waker>,
}

/// Ready once the notification was sent. The result does not matter.
#[derive(Debug)]
pub(crate) struct NotificationSent(Arc<Mutex<State>>);

impl NotificationSent {
    pub(crate) fn wait_for(completion: Completion) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let of_thread = state.clone();
        let run = move || {
            // If the kernel refused the invalidation, it had nothing cached.
            let _ = completion.wait();
            let mut state = of_thread.lock();
            state.done = true;
            let waker = state.waker.take();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        };
        // If no thread can be started, the future is ready at once.
        let started = thread::Builder::new().name("settle".into()).spawn(run);
        if started.is_err() {
            state.lock().done = true;
        }
        Self(state)
    }
}

impl Future for NotificationSent {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.done {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
