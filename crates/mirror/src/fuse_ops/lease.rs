//! Waiting for a lease (`F_SETLEASE`) that somebody holds on a file of the source.
//!
//! An open tells its holder to let go, who has 45 seconds for it (`/proc/sys/fs/lease-break-time`). The kernel wakes
//! nobody who did not block, so it is asked again a few times each second. No thread waits meanwhile but one, which
//! wakes all who do.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_fuse::{Errno, Request};

const PAUSE: Duration = Duration::from_millis(100);

/// Those to be woken. `Some` while the thread that does it lives.
static WAITING: Mutex<Option<Vec<Waker>>> = Mutex::new(None);

/// Does `work` until it no longer meets a lease, or the caller gives up.
///
/// # Errors
/// Those of `work`; EINTR once the caller gave up.
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
    let mut asked = false;
    poll_fn(|context| {
        if interrupted.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(Errno::INTR));
        }
        // Who is woken for another reason asks again a little earlier.
        if std::mem::replace(&mut asked, true) {
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
        std::thread::sleep(PAUSE);
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
