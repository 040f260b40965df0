//! The handling of one request: a future, polled first on the thread that read the request, and later, if it waits, on the
//! session's executor.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::Shared;
use super::interrupt::Interrupt;
use crate::cache::{Notification, NotificationKind, set_handling};
use crate::id::NodeId;
use crate::transport::Channel;

pub(crate) type Handling = Pin<Box<dyn Future<Output = ()> + Send>>;

const IDLE: u8 = 0;
const POLLING: u8 = 1;
const NOTIFIED: u8 = 2;
const SCHEDULED: u8 = 3;

/// A request between its arrival and its reply.
pub(crate) struct Task {
    /// `None` once the reply is sent. A request is cancelled by dropping it without a reply.
    handling: Mutex<Option<Handling>>,
    state: AtomicU8,
    /// The task is listed among the waiting requests.
    listed: AtomicBool,
    pub(crate) unique: u64,
    /// An interrupt may cancel the request without the handler's help.
    cancellable: bool,
    pub(crate) interrupt: Arc<Interrupt>,
    channel: Arc<dyn Channel>,
    session: Arc<Shared>,
    /// Notifications that this request caused: they are sent after its reply, never before.
    after_reply: Mutex<Vec<Notification>>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("unique", &self.unique).finish_non_exhaustive()
    }
}

thread_local! {
    /// The request whose handler runs on this thread.
    static CURRENT: RefCell<Option<Arc<Task>>> = const { RefCell::new(None) };
}

impl Task {
    /// Makes a task. `handling` shares the task's interrupt, and replies before it completes.
    pub(crate) fn new(
        unique: u64,
        cancellable: bool,
        channel: Arc<dyn Channel>,
        session: Arc<Shared>,
        interrupt: Arc<Interrupt>,
        handling: Handling,
    ) -> Arc<Self> {
        Arc::new(Self {
            handling: Mutex::new(Some(handling)),
            state: AtomicU8::new(IDLE),
            listed: AtomicBool::new(false),
            unique,
            cancellable,
            interrupt,
            channel,
            session,
            after_reply: Mutex::new(Vec::new()),
        })
    }

    /// Returns the request whose handler runs on this thread, if any.
    pub(crate) fn current() -> Option<Arc<Task>> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(crate) fn belongs_to(&self, session: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.session, session)
    }

    /// Defers a notification until the reply is sent.
    pub(crate) fn defer(&self, note: Notification) {
        self.after_reply.lock().push(note);
    }

    /// Takes the deferred invalidations of a file.
    pub(crate) fn invalidations_of(&self, node: NodeId) -> Vec<Notification> {
        let is_such = |note: &Notification| matches!(note.kind, NotificationKind::InvalidateNode { node: of, .. } if of == node);
        let mut deferred = self.after_reply.lock();
        let (taken, rest) = std::mem::take(&mut *deferred).into_iter().partition(is_such);
        *deferred = rest;
        taken
    }

    /// Polls until the request is answered or waits. Returns whether it is answered.
    pub(crate) fn run(self: &Arc<Self>) -> bool {
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            self.state.store(POLLING, Ordering::Release);
            let done = {
                let mut slot = self.handling.lock();
                let Some(handling) = slot.as_mut() else { return true };
                let outer = CURRENT.replace(Some(self.clone()));
                let was_handling = set_handling(true);
                // A panic in one handler must not kill the thread of the others, nor leave its caller waiting forever.
                let polled = catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(&mut context)));
                set_handling(was_handling);
                CURRENT.set(outer);
                let polled = polled.unwrap_or_else(|_| {
                    tracing::error!(request = self.unique, "handler panicked: replying EIO");
                    self.channel.reply(self.unique, Err(Errno::IO), &[]).ok();
                    Poll::Ready(())
                });
                if polled.is_ready() {
                    *slot = None;
                }
                polled == Poll::Ready(())
            };
            if done {
                // Pairs with the fence in `is_answered`: either this side sees the listing, or that side sees the reply.
                fence(Ordering::SeqCst);
                self.unlist();
                self.release_notes();
                return true;
            }
            if self.state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                // Pairs with the fence in `cancel`.
                fence(Ordering::SeqCst);
                if self.interrupt.is_set() {
                    // The interrupt arrived while the handler ran, so `cancel` found it busy.
                    self.cancel();
                }
                return self.is_answered();
            }
        }
    }

    /// Marks the task as listed among the waiting requests; called under the lock of the list.
    pub(crate) fn list(&self) {
        self.listed.store(true, Ordering::SeqCst);
    }

    /// Removes the task from the list of waiting requests.
    pub(crate) fn unlist(&self) {
        if self.listed.swap(false, Ordering::SeqCst) {
            self.session.waiting.remove(self.unique);
        }
    }

    /// Reports whether the reply was sent. A task that is being polled counts as unanswered: it removes itself from the list.
    pub(crate) fn is_answered(&self) -> bool {
        fence(Ordering::SeqCst);
        self.handling.try_lock().is_some_and(|handling| handling.is_none())
    }

    /// Drops the handler without a reply: the connection has ended.
    pub(crate) fn abandon(&self) {
        let handling = self.handling.lock().take();
        drop(handling);
    }

    /// Queues the deferred notifications after the reply was sent.
    fn release_notes(&self) {
        let notes = std::mem::take(&mut *self.after_reply.lock());
        if notes.is_empty() {
            return;
        }
        let session = self.session.clone();
        let enqueue = move || notes.into_iter().for_each(|note| session.notifier.enqueue(note));
        self.channel.after_reply(self.unique, Box::new(enqueue));
    }

    /// Handles an interrupt of the caller: cancels the request where that is safe, otherwise only informs the handler.
    pub(crate) fn interrupted(&self) {
        self.interrupt.set();
        self.cancel();
    }

    /// Drops a waiting handler that changes nothing, and replies EINTR. A running handler is not touched: it may block, and `run`
    /// checks again once it waits.
    fn cancel(&self) {
        if !self.cancellable {
            return;
        }
        fence(Ordering::SeqCst);
        let handling = self.handling.try_lock().and_then(|mut handling| handling.take());
        if handling.is_some() {
            drop(handling);
            self.unlist();
            // Counted first: a caller that has received the reply finds it in the statistics.
            self.session.statistics.cancelled();
            self.channel.reply(self.unique, Err(Errno::INTR), &[]).ok();
            self.release_notes();
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        loop {
            match self.state.load(Ordering::Acquire) {
                IDLE => {
                    let idle =
                        self.state.compare_exchange(IDLE, SCHEDULED, Ordering::AcqRel, Ordering::Acquire);
                    if idle.is_ok() {
                        let session = self.session.clone();
                        session.executor.schedule(self);
                        return;
                    }
                }
                POLLING => {
                    let polling =
                        self.state.compare_exchange(POLLING, NOTIFIED, Ordering::AcqRel, Ordering::Acquire);
                    if polling.is_ok() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}
