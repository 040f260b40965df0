//! The watchdog: pings the service manager as long as requests are served.
//!
//! The proof is a round trip: a thread asks for the attributes of the mount's root, past the kernel's cache, and the reply must come
//! in time. Requests of others that were answered count as well, because a slow source may delay a single one.
//!
//! A thread that waits for a reply of its own process keeps that process from exiting. So [`stop`] ends the round trips before the
//! mount is left to another process. In a process that hangs the thread is released by the next one, which the service manager
//! starts when its time to stop the old one is over.

use std::env;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use sd_notify::NotifyState;
use shunt_fuse::Handle;
use shunt_fuse::guardian::run_on_own_mount;
use shunt_fuse::mount::MountPoint;

use super::notify;

/// Polling interval for answered requests and for the end of a round trip.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Timeout for the round trip that is under way when the watchdog stops.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// No further round trip begins.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// A round trip is under way.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// Starts the watchdog, if the service manager expects pings.
pub fn start(session: &Handle, mount: &MountPoint) {
    let Some(interval) = expected() else { return };
    let (session, path) = (session.clone(), mount.path().to_owned());
    let watch = move || {
        let mut trip = None;
        let mut answered = 0;
        while !STOPPED.load(Ordering::SeqCst) {
            let begin = Instant::now();
            if is_serving(&session, &path, &mut trip, &mut answered, interval) {
                notify::send(&[NotifyState::Watchdog]);
            } else {
                tracing::warn!(
                    "no request was served for {:.1} seconds: not pinging the watchdog of the service manager",
                    begin.elapsed().as_secs_f32()
                );
            }
            thread::sleep(interval.saturating_sub(begin.elapsed()));
        }
    };
    if let Err(error) = thread::Builder::new().name("watchdog".into()).spawn(watch) {
        tracing::warn!("cannot start the watchdog: {error}");
    }
}

/// Switches the watchdog of the service manager off, for a sandboxed daemon that cannot reach its own mount.
pub fn disable() {
    if expected().is_some() {
        tracing::warn!(
            "no watchdog: the sandboxed daemon cannot access its own mount; remove WatchdogSec= from the unit"
        );
        notify::send(&[NotifyState::WatchdogUsec(0)]);
    }
}

/// Begins no further round trip, and waits for the one that is under way.
pub fn stop() {
    STOPPED.store(true, Ordering::SeqCst);
    let end = Instant::now() + STOP_TIMEOUT;
    while UNDER_WAY.load(Ordering::SeqCst) && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
}

fn expected() -> Option<Duration> {
    interval(env::var("WATCHDOG_USEC").ok().as_deref()).filter(|_| notify::is_present())
}

/// Three pings within the time after which the service manager ends the service.
fn interval(microseconds: Option<&str>) -> Option<Duration> {
    let microseconds: u64 = microseconds?.parse().ok().filter(|time| *time > 0)?;
    Some(Duration::from_micros(microseconds) / 3)
}

/// Begins a round trip. Its outcome is whether there was a reply.
fn begin_trip(path: PathBuf) -> Receiver<bool> {
    let (sender, outcome) = mpsc::channel();
    let trip = move || {
        UNDER_WAY.store(true, Ordering::SeqCst);
        let stopped = STOPPED.load(Ordering::SeqCst);
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        let ask = || statx(CWD, &path, flags, StatxFlags::BASIC_STATS).is_ok();
        let replied = !stopped && run_on_own_mount(ask).unwrap_or(false);
        UNDER_WAY.store(false, Ordering::SeqCst);
        let _ = sender.send(replied);
    };
    // Without a thread the sender is dropped, which counts as no reply.
    let _ = thread::Builder::new().name("watchdog-trip".into()).spawn(trip);
    outcome
}

/// Reports whether a round trip or another request completes within `patience`. `trip` is the one under way, and `answered` the count
/// of requests since the start.
fn is_serving(
    session: &Handle,
    path: &std::path::Path,
    trip: &mut Option<Receiver<bool>>,
    answered: &mut u64,
    patience: Duration,
) -> bool {
    let outcome = trip.get_or_insert_with(|| begin_trip(path.to_owned()));
    let end = Instant::now() + patience;
    loop {
        match outcome.recv_timeout(POLL_INTERVAL) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            replied => {
                *trip = None;
                return replied == Ok(true);
            }
        }
        let total = session.statistics().total();
        if std::mem::replace(answered, total) != total {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
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
