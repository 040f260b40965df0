//! Opens of what a file was before it was replaced.
//!
//! The kernel serves one file of an inode at a time: as long as somebody has the older one open through it, those who open
//! the inode get that where it is passed through, and go past the kernel where it is not. The end of an open is told a moment
//! after the program closed it, so that moment is waited for. By the length, too, a kernel knows one: what it was told of the
//! files that are open, and when, is kept with them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shunt_volume::lease::Wait;

use crate::recent_invalidations::RecentInvalidations;

/// How long, in steps of the second. One who still has it open then has it open on purpose.
const MAX_WAIT_STEPS: u32 = 300;
/// Of those who do, each may have ended this moment as well.
const MAX_WAIT_STEPS_OF_READERS: u32 = 20;
const WAIT_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy)]
struct Opens {
    session: u64,
    count: u32,
    /// It was waited for in vain.
    timed_out: bool,
}

/// The opens of a file.
#[derive(Default)]
struct File {
    opens: Vec<Opens>,
    /// When the kernel was last to be told that it changed.
    invalidated_at: Option<Instant>,
    /// How often the kernel was told the length of another version than one that is open.
    size_replies: u64,
}

/// Opens by file.
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

    /// What is open of a file.
    fn open_sessions(&self, num: u64) -> Vec<u64> {
        let files = self.files.lock();
        files.get(&num).map(|file| file.opens.iter().map(|opens| opens.session).collect()).unwrap_or_default()
    }

    /// The kernel is to be told that a file changed.
    pub(crate) fn mark_invalidated(&self, num: u64) {
        self.invalidations.record(num);
        if let Some(file) = self.files.lock().get_mut(&num) {
            file.invalidated_at = Some(Instant::now());
        }
    }

    /// Whether it was to be told so a moment ago, whoever has the file open.
    pub(crate) fn was_recently_invalidated(&self, num: u64) -> bool {
        self.invalidations.is_recent(num)
    }

    /// The kernel is told the length of what a file holds now. Whether one is open that holds something else.
    pub(crate) fn mark_size_reply(&self, num: u64, is_latest: impl Fn(u64) -> bool) -> bool {
        // Not under the lock: who tells which is the latest may wait for who tells of news.
        let open = self.open_sessions(num);
        let has_older = !open.iter().all(|session| is_latest(*session));
        if has_older && let Some(file) = self.files.lock().get_mut(&num) {
            file.size_replies += 1;
        }
        has_older
    }

    /// How long ago the kernel was last told that a file changed, since it is open, and how often it was told another length.
    pub(crate) fn invalidation_state(&self, num: u64) -> (Option<Duration>, u64) {
        let files = self.files.lock();
        let Some(file) = files.get(&num) else { return (None, 0) };
        (file.invalidated_at.map(|at| at.elapsed()), file.size_replies)
    }

    /// Whether there is an older one, and whether one of these is waited for.
    fn older(&self, num: u64, session: u64) -> (bool, bool) {
        let files = self.files.lock();
        let all = files.get(&num).map_or(&[][..], |file| &file.opens);
        let older = all.iter().filter(|opens| opens.session < session);
        let mut stay = older.map(|opens| opens.timed_out).peekable();
        (stay.peek().is_some(), stay.any(|stays| !stays))
    }

    /// Waits for the end of the older ones; whether they ended.
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
