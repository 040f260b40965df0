//! Files with writable mappings.
//!
//! The kernel maps backing files itself. So a mapping outlives the open that it was made through, and nobody sees what is
//! written through it after the last close. Such a file counts as open for as long as its backing file has writers.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shunt_fuse::Passthrough;
use shunt_volume::lease::{Leases, Wait};
use shunt_volume::replica::Replica;

use crate::open_file::{Stamp, stamp_of};

/// First delay before a release is retried, since the kernel closes its backing file a moment after it reported the release.
/// Each further step doubles it.
const RELEASE_RETRY_STEP: Duration = Duration::from_millis(1);
const STEPS: u32 = 3;
/// Interval for checking files that stay mapped after that.
const LOOK: Duration = Duration::from_secs(1);
/// Short-lived mappings: up to this age, and checked at this interval.
const SHORT: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(100));

/// Reports whether a backing file has writers; false where the file system cannot tell.
fn has_writers(file: &File) -> bool {
    Passthrough::has_writers(file.as_fd()).unwrap_or(false)
}

/// A closed open whose file is still mapped.
struct DeferredRelease {
    num: u64,
    session: u64,
    maps: bool,
    since: Instant,
    /// State of the file when it was last made durable.
    seen: Option<Stamp>,
}

#[derive(Default)]
struct State {
    /// Number of opens that permit a writable mapping, by inode, including closed ones with a mapping.
    opens: HashMap<u64, u32>,
    still: Vec<DeferredRelease>,
    has_thread: bool,
}

/// Writable mappings of a volume.
pub(crate) struct WritableMappings {
    replica: Arc<Replica>,
    state: Mutex<State>,
}

impl WritableMappings {
    pub(crate) fn new(replica: Arc<Replica>) -> Arc<Self> {
        Arc::new(Self { replica, state: Mutex::default() })
    }

    /// Counts an open that permits a writable mapping.
    pub(crate) fn opened(&self, num: u64) {
        *self.state.lock().opens.entry(num).or_default() += 1;
    }

    pub(crate) fn is_mapped(&self, num: u64) -> bool {
        self.state.lock().opens.contains_key(&num)
    }

    fn ended(&self, num: u64) {
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
        for step in 0..=STEPS {
            if self.try_close(num, session, maps, leases.as_deref()) {
                return;
            }
            if step < STEPS {
                Wait::pause(RELEASE_RETRY_STEP * (1 << step)).await;
            }
        }
        let mut state = self.state.lock();
        state.still.push(DeferredRelease { num, session, maps, since: Instant::now(), seen: None });
        if !std::mem::replace(&mut state.has_thread, true) {
            let all = Arc::downgrade(self);
            let started = std::thread::Builder::new()
                .name("mapped".into())
                .spawn(move || look_after(&all, leases.as_deref()));
            if let Err(error) = started {
                tracing::error!("nobody looks after files that are mapped: {error}");
                state.has_thread = false;
            }
        }
    }

    fn try_close(&self, num: u64, session: u64, maps: bool, leases: Option<&Leases>) -> bool {
        let Some(changed) = self.replica.close_unless_mapped(num, session, has_writers) else { return false };
        if let Some(leases) = leases.filter(|leases| leases.has_company()) {
            leases.closed(num);
        }
        if maps {
            self.ended(num);
            if changed {
                // The kernel does not see writes through a mapping in its caches of the file.
                self.replica.changed_unseen(num);
            }
        }
        true
    }

    /// Releases opens whose mapping has ended, and makes writes through the others durable, so that they are pushed. Returns
    /// the time until the next check, or `None` if no mapping is left.
    fn look(&self, leases: Option<&Leases>) -> Option<Duration> {
        let mut still = std::mem::take(&mut self.state.lock().still);
        still.retain_mut(|one| {
            if self.try_close(one.num, one.session, one.maps, leases) {
                return false;
            }
            let now = self.replica.open_file_of(one.num, one.session).and_then(|file| stamp_of(&file).ok());
            if now.is_some() && now != one.seen && self.replica.sync_file(one.num).is_ok() {
                one.seen = now;
            }
            true
        });
        let is_short = still.iter().any(|one| one.since.elapsed() < SHORT.0);
        let mut state = self.state.lock();
        state.still.append(&mut still);
        state.has_thread = !state.still.is_empty();
        state.has_thread.then_some(if is_short { SHORT.1 } else { LOOK })
    }
}

fn look_after(all: &Weak<WritableMappings>, leases: Option<&Leases>) {
    let mut pause = Some(SHORT.1);
    while let Some(for_so_long) = pause {
        std::thread::sleep(for_so_long);
        pause = all.upgrade().and_then(|all| all.look(leases));
    }
}
