//! Opens of what a file was before it was replaced.
//!
//! The kernel serves one file of an inode at a time: as long as somebody has the older one open through it, those who open
//! the inode get that. The end of an open is told a moment after the program closed it, so that moment is waited for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shunt_volume::lease::Wait;

/// How long, in steps of the second. One who still has it open then has it open on purpose.
const MOST: u32 = 300;
/// Of those who do, each may have ended this moment as well.
const FEW: u32 = 20;
const STEP: Duration = Duration::from_millis(1);

/// Within it the kernel has taken in what it was told, and a read is answered for whose sake it asked for the length.
const MOMENT: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
struct Opens {
    session: u64,
    count: u32,
    /// It was waited for in vain.
    stays: bool,
}

/// The opens of a file.
#[derive(Default)]
struct File {
    opens: Vec<Opens>,
    /// When the kernel was last to be told that it changed.
    told: Option<Instant>,
}

/// Opens by file.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<u64, File>>);

impl Sessions {
    pub(crate) fn add(&self, num: u64, session: u64) {
        let mut files = self.0.lock();
        let all = &mut files.entry(num).or_default().opens;
        match all.iter_mut().find(|opens| opens.session == session) {
            Some(opens) => opens.count += 1,
            None => all.push(Opens { session, count: 1, stays: false }),
        }
    }

    pub(crate) fn remove(&self, num: u64, session: u64) {
        let mut files = self.0.lock();
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
    pub(crate) fn of(&self, num: u64) -> Vec<u64> {
        let files = self.0.lock();
        files.get(&num).map(|file| file.opens.iter().map(|opens| opens.session).collect()).unwrap_or_default()
    }

    /// The kernel is to be told that a file changed.
    pub(crate) fn telling(&self, num: u64) {
        if let Some(file) = self.0.lock().get_mut(&num) {
            file.told = Some(Instant::now());
        }
    }

    /// Whether that was a moment ago.
    pub(crate) fn was_told(&self, num: u64) -> bool {
        let files = self.0.lock();
        files.get(&num).and_then(|file| file.told).is_some_and(|told| told.elapsed() < MOMENT)
    }

    /// Whether there is an older one, and whether one of these is waited for.
    fn older(&self, num: u64, session: u64) -> (bool, bool) {
        let files = self.0.lock();
        let all = files.get(&num).map_or(&[][..], |file| &file.opens);
        let older = all.iter().filter(|opens| opens.session < session);
        let mut stay = older.map(|opens| opens.stays).peekable();
        (stay.peek().is_some(), stay.any(|stays| !stays))
    }

    /// Waits for the end of the older ones; whether they ended.
    pub(crate) async fn outlast(&self, num: u64, session: u64) -> bool {
        for step in 0..MOST {
            match self.older(num, session) {
                (false, _) => return true,
                (true, false) if step >= FEW => return false,
                (true, _) => Wait::pause(STEP).await,
            }
        }
        if let Some(file) = self.0.lock().get_mut(&num) {
            file.opens
                .iter_mut()
                .filter(|opens| opens.session < session)
                .for_each(|opens| opens.stays = true);
        }
        false
    }
}
