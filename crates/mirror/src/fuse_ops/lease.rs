//! Waiting for another process to give up its lease (`F_SETLEASE`) on a file of the source.
//!
//! An open sends the lease holder a signal, and the holder has 45 seconds to release the lease
//! (`/proc/sys/fs/lease-break-time`). The kernel does not wake a caller that used a non-blocking open, so the open is
//! retried ten times per second. One thread wakes all waiting tasks; no other thread blocks.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_fuse::{Errno, Request};

/// Interval at which a conflicting lease is checked again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Tasks to wake; `Some` while the waker thread runs.
static WAITING: Mutex<Option<Vec<Waker>>> = Mutex::new(None);

/// Repeats `work` until it no longer meets a lease, or the caller gives up.
///
/// # Errors
/// The error of `work`, or EINTR if the caller gave up.
pub(super) async fn past_leases<T>(
    request: &Request<'_>,
    mut work: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        match work() {
            Err(Errno::WOULDBLOCK) => pause(request).await?,
            result => return result,
        }
    }
}

async fn pause(request: &Request<'_>) -> Result<(), Errno> {
    let mut interrupted = pin!(request.interrupted());
    let mut has_waited = false;
    poll_fn(|context| {
        if interrupted.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(Errno::INTR));
        }
        // A task that is woken for another reason retries a little earlier.
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(Ok(()));
        }
        match wake_later(context.waker().clone()) {
            Ok(()) => Poll::Pending,
            Err(errno) => Poll::Ready(Err(errno)),
        }
    })
    .await
}

fn wake_later(waker: Waker) -> Result<(), Errno> {
    let mut waiting = WAITING.lock();
    if let Some(waiting) = &mut *waiting {
        waiting.push(waker);
        return Ok(());
    }
    std::thread::Builder::new().name("leases".to_owned()).spawn(wake_all).map_err(|_| Errno::AGAIN)?;
    *waiting = Some(vec![waker]);
    Ok(())
}

fn wake_all() {
    loop {
        std::thread::sleep(RETRY_INTERVAL);
        let woken = {
            let mut waiting = WAITING.lock();
            match &mut *waiting {
                Some(some) if !some.is_empty() => std::mem::take(some),
                _ => {
                    *waiting = None;
                    return;
                }
            }
        };
        woken.into_iter().for_each(Waker::wake);
    }
}
