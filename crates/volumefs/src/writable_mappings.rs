//! Files with writable mappings.
//!
//! The kernel maps backing files itself. A mapping can outlive the open through which it was created, and the daemon receives
//! no request for data written through it after the last close. Such a file counts as open for as long as its backing file
//! has writers.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shunt_fuse::Passthrough;
use shunt_volume::lease::{Leases, Wait};
use shunt_volume::replica::Replica;

use crate::marks::{Mark, Marks};
use crate::open_file::{FileStamp, stamp_of};

/// First delay before a release is retried, since the kernel closes its backing file a moment after it reported the release.
/// Each further step doubles it.
const RELEASE_RETRY_STEP: Duration = Duration::from_millis(1);
const MAX_RELEASE_RETRIES: u32 = 3;
/// Interval for checking files that stay mapped after that.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Short-lived mappings: up to this age, and checked at this interval.
const RECENT_POLL_INTERVAL: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(100));

/// Reports whether a backing file has writers; false where the file system cannot tell.
fn has_writers(file: &File) -> bool {
    Passthrough::has_writers(file.as_fd()).unwrap_or(false)
}

/// A closed open.
pub(crate) struct Closed {
    pub(crate) num: u64,
    pub(crate) session: u64,
    /// The open was counted by [`WritableMappings::opened`].
    pub(crate) maps_writable: bool,
    pub(crate) leases: Option<Arc<Leases>>,
}

/// A closed open whose file is still mapped.
struct DeferredRelease {
    num: u64,
    session: u64,
    maps_writable: bool,
    since: Instant,
    /// State of the file when it was last made durable.
    synced_stamp: Option<FileStamp>,
}

#[derive(Default)]
struct State {
    /// Number of opens that permit a writable mapping, by inode, including closed ones with a mapping.
    opens: HashMap<u64, u32>,
    deferred: Vec<DeferredRelease>,
    has_thread: bool,
}

/// Writable mappings of a volume.
pub(crate) struct WritableMappings {
    replica: Arc<Replica>,
    state: Mutex<State>,
    /// The next daemon must wait for the mappings, too.
    marks: Arc<Marks>,
}

impl WritableMappings {
    pub(crate) fn new(replica: Arc<Replica>, marks: Arc<Marks>) -> Arc<Self> {
        Arc::new(Self { replica, state: Mutex::default(), marks })
    }

    /// Counts an open that permits a writable mapping.
    pub(crate) fn opened(&self, num: u64) {
        *self.state.lock().opens.entry(num).or_default() += 1;
    }

    pub(crate) fn is_mapped(&self, num: u64) -> bool {
        self.state.lock().opens.contains_key(&num)
    }

    fn remove_open(&self, num: u64) {
        let mut state = self.state.lock();
        if let Some(opens) = state.opens.get_mut(&num) {
            *opens -= 1;
            if *opens == 0 {
                state.opens.remove(&num);
            }
        }
    }

    /// Releases a writable open, at once or when its mapping ends. `maps`: the open was counted by [`opened`](Self::opened).
    pub(crate) async fn close(
        self: &Arc<Self>,
        num: u64,
        session: u64,
        maps: bool,
        leases: Option<Arc<Leases>>,
    ) {
        for step in 0..=MAX_RELEASE_RETRIES {
            if self.try_close(num, session, maps, leases.as_deref()) {
                return;
            }
            if step < MAX_RELEASE_RETRIES {
                Wait::pause(RELEASE_RETRY_STEP * (1 << step)).await;
            }
        }
        self.defer(Closed { num, session, maps_writable: maps, leases });
    }

    /// Releases an open once its mapping ends.
    pub(crate) fn defer(self: &Arc<Self>, closed: Closed) {
        let Closed { num, session, maps_writable, leases } = closed;
        self.marks.add(Mark::Mapped(num));
        let mut state = self.state.lock();
        state.deferred.push(DeferredRelease {
            num,
            session,
            maps_writable,
            since: Instant::now(),
            synced_stamp: None,
        });
        if !std::mem::replace(&mut state.has_thread, true) {
            let all = Arc::downgrade(self);
            let started = std::thread::Builder::new()
                .name("mapped".into())
                .spawn(move || poll_until_done(&all, leases.as_deref()));
            if let Err(error) = started {
                tracing::error!("cannot start the thread that watches mapped files: {error}");
                state.has_thread = false;
            }
        }
    }

    fn try_close(&self, num: u64, session: u64, maps: bool, leases: Option<&Leases>) -> bool {
        let Some(changed) = self.replica.close_unless_mapped(num, session, has_writers) else { return false };
        if let Some(leases) = leases.filter(|leases| leases.has_peers()) {
            leases.closed(num);
        }
        if maps {
            self.remove_open(num);
            if changed {
                // The kernel does not see writes through a mapping in its caches of the file.
                self.replica.invalidate_attributes(num);
            }
        }
        true
    }

    /// Releases opens whose mapping has ended, and makes writes through the others durable, so that they are pushed. Returns
    /// the time until the next check, or `None` if no mapping is left.
    fn poll(&self, leases: Option<&Leases>) -> Option<Duration> {
        let mut deferred = std::mem::take(&mut self.state.lock().deferred);
        deferred.retain_mut(|one| {
            if self.try_close(one.num, one.session, one.maps_writable, leases) {
                self.marks.remove(Mark::Mapped(one.num));
                return false;
            }
            let now = self.replica.open_file_of(one.num, one.session).and_then(|file| stamp_of(&file).ok());
            if now.is_some() && now != one.synced_stamp && self.replica.sync_file(one.num).is_ok() {
                one.synced_stamp = now;
            }
            true
        });
        let is_short = deferred.iter().any(|one| one.since.elapsed() < RECENT_POLL_INTERVAL.0);
        let mut state = self.state.lock();
        state.deferred.append(&mut deferred);
        state.has_thread = !state.deferred.is_empty();
        state.has_thread.then_some(if is_short { RECENT_POLL_INTERVAL.1 } else { POLL_INTERVAL })
    }
}

fn poll_until_done(all: &Weak<WritableMappings>, leases: Option<&Leases>) {
    let mut pause = Some(RECENT_POLL_INTERVAL.1);
    while let Some(for_so_long) = pause {
        std::thread::sleep(for_so_long);
        pause = all.upgrade().and_then(|all| all.poll(leases));
    }
}
