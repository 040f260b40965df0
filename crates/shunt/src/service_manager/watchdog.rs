//! The watchdog: pings the service manager as long as requests are served.
//!
//! The proof is a round trip: a notification asks the kernel for nothing of the root's pages (FUSE_NOTIFY_RETRIEVE), and the kernel
//! sends its answer as a request, which a reader has to read and dispatch. No thread uses the mount itself, which it could never
//! leave in a process that hangs. A notification can wait for a program that holds the lock of a directory, so answered
//! requests count as well.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use shunt_fuse::{Handle, NodeId};

use super::notify;

/// Polling interval for the answer of the kernel. It comes within microseconds.
const ANSWER_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Starts the watchdog, if the service manager expects pings.
pub fn start(session: &Handle) {
    let Some(interval) = interval(env::var("WATCHDOG_USEC").ok().as_deref()).filter(|_| notify::is_present())
    else {
        return;
    };
    let session = session.clone();
    let watch = move || {
        let mut answered = 0;
        loop {
            let begin = Instant::now();
            if is_serving(&session, &mut answered, interval) {
                notify::send(&[NotifyState::Watchdog]);
            } else {
                tracing::warn!(
                    "no request was served for {} seconds: not pinging the watchdog of the service manager",
                    interval.as_secs()
                );
            }
            thread::sleep(interval.saturating_sub(begin.elapsed()));
        }
    };
    if let Err(error) = thread::Builder::new().name("watchdog".into()).spawn(watch) {
        tracing::warn!("cannot start the watchdog: {error}");
    }
}

/// Three pings within the time after which the service manager ends the service.
fn interval(microseconds: Option<&str>) -> Option<Duration> {
    let microseconds: u64 = microseconds?.parse().ok().filter(|time| *time > 0)?;
    Some(Duration::from_micros(microseconds) / 3)
}

/// Reports whether a round trip or a request completes within `patience`; `answered` is the count of requests so far.
fn is_serving(session: &Handle, answered: &mut u64, patience: Duration) -> bool {
    let trip = session.caches().retrieve(NodeId::ROOT, 0, 0);
    let end = Instant::now() + patience;
    loop {
        if trip.is_done() {
            return trip.wait().is_ok();
        }
        let total = session.statistics().total();
        if std::mem::replace(answered, total) != total {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(ANSWER_POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_time() {
        assert_eq!(interval(Some("30000000")), Some(Duration::from_secs(10)));
        for none in [None, Some(""), Some("0"), Some("-1"), Some("soon")] {
            assert_eq!(interval(none), None);
        }
    }
}
