//! Open versions of each file, for files that were replaced while open.
//!
//! The kernel has one backing file for each inode. While an older version is open through it, later opens get that version
//! where they use passthrough, and bypass the page cache otherwise. The kernel reports the end of an open a moment after the
//! program closed it, so an open waits for that moment. The kernel also knows one length for each inode: the lengths and
//! invalidations sent to it for open files are recorded here.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shunt_volume::lease::Wait;

use crate::recent_invalidations::RecentInvalidations;

/// Maximum wait for older opens, in steps. A program that still has the file open then keeps it open on purpose.
const MAX_WAIT_STEPS: u32 = 300;
/// Maximum wait where only opens are left that were waited for before: each of those may just have ended, too.
const MAX_WAIT_STEPS_OF_READERS: u32 = 20;
const WAIT_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy)]
struct Opens {
    session: u64,
    count: u32,
    /// A wait for its end has timed out.
    timed_out: bool,
}

/// The opens of a file, by version, and the lengths and invalidations sent to the kernel.
#[derive(Default)]
struct File {
    opens: Vec<Opens>,
    /// Time of the last invalidation sent to the kernel.
    invalidated_at: Option<Instant>,
    /// Number of replies with the length of a version that is not open.
    size_replies: u64,
}

/// Table of open versions by inode number.
#[derive(Default)]
pub(crate) struct OpenVersions {
    files: Mutex<HashMap<u64, File>>,
    invalidations: RecentInvalidations,
}

impl OpenVersions {
    pub(crate) fn add(&self, num: u64, session: u64) {
        let mut files = self.files.lock();
        let all = &mut files.entry(num).or_default().opens;
        match all.iter_mut().find(|opens| opens.session == session) {
            Some(opens) => opens.count += 1,
            None => all.push(Opens { session, count: 1, timed_out: false }),
        }
    }

    pub(crate) fn remove(&self, num: u64, session: u64) {
        let mut files = self.files.lock();
        let Some(File { opens: all, .. }) = files.get_mut(&num) else { return };
        if let Some(opens) = all.iter_mut().find(|opens| opens.session == session) {
            opens.count -= 1;
        }
        all.retain(|opens| opens.count > 0);
        if all.is_empty() {
            files.remove(&num);
        }
    }

    /// Returns the open versions of a file.
    fn open_sessions(&self, num: u64) -> Vec<u64> {
        let files = self.files.lock();
        files.get(&num).map(|file| file.opens.iter().map(|opens| opens.session).collect()).unwrap_or_default()
    }

    /// Records that the kernel is about to get an invalidation for a file.
    pub(crate) fn mark_invalidated(&self, num: u64) {
        self.invalidations.record(num);
        if let Some(file) = self.files.lock().get_mut(&num) {
            file.invalidated_at = Some(Instant::now());
        }
    }

    /// Reports whether an invalidation was sent a moment ago, even if the file is not open.
    pub(crate) fn was_recently_invalidated(&self, num: u64) -> bool {
        self.invalidations.is_recent(num)
    }

    /// Records that the kernel is about to get the length of the latest version. Returns whether an older one is open.
    pub(crate) fn mark_size_reply(&self, num: u64, is_latest: impl Fn(u64) -> bool) -> bool {
        // Not under the lock: `is_latest` may wait for a thread that sends invalidations.
        let open = self.open_sessions(num);
        let has_older = !open.iter().all(|session| is_latest(*session));
        if has_older && let Some(file) = self.files.lock().get_mut(&num) {
            file.size_replies += 1;
        }
        has_older
    }

    /// Returns the time since the last invalidation of an open file, and the number of foreign lengths sent.
    pub(crate) fn invalidation_state(&self, num: u64) -> (Option<Duration>, u64) {
        let files = self.files.lock();
        let Some(file) = files.get(&num) else { return (None, 0) };
        (file.invalidated_at.map(|at| at.elapsed()), file.size_replies)
    }

    /// Returns whether an older version is open, and whether it is worth waiting for one of them.
    fn older(&self, num: u64, session: u64) -> (bool, bool) {
        let files = self.files.lock();
        let all = files.get(&num).map_or(&[][..], |file| &file.opens);
        let older = all.iter().filter(|opens| opens.session < session);
        let mut stay = older.map(|opens| opens.timed_out).peekable();
        (stay.peek().is_some(), stay.any(|stays| !stays))
    }

    /// Waits for the end of all opens of older versions. Returns whether they ended.
    pub(crate) async fn wait_for_older(&self, num: u64, session: u64) -> bool {
        for step in 0..MAX_WAIT_STEPS {
            match self.older(num, session) {
                (false, _) => return true,
                (true, false) if step >= MAX_WAIT_STEPS_OF_READERS => return false,
                (true, _) => Wait::pause(WAIT_INTERVAL).await,
            }
        }
        if let Some(file) = self.files.lock().get_mut(&num) {
            file.opens
                .iter_mut()
                .filter(|opens| opens.session < session)
                .for_each(|opens| opens.timed_out = true);
        }
        false
    }
}
