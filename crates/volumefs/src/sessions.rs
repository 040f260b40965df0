//! Opens of what a file was before it was replaced.
//!
//! The kernel serves one file of an inode at a time: as long as somebody has the older one open through it, those who open
//! the inode get that. The end of an open is told a moment after the program closed it, so that moment is waited for.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use shunt_volume::lease::Wait;

/// How long, in steps of the second. One who still has it open then has it open on purpose.
const MOST: u32 = 300;
/// Of those who do, each may have ended this moment as well.
const FEW: u32 = 20;
const STEP: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy)]
struct Opens {
    session: u64,
    count: u32,
    /// It was waited for in vain.
    stays: bool,
}

/// Opens by file.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<u64, Vec<Opens>>>);

impl Sessions {
    pub(crate) fn add(&self, num: u64, session: u64) {
        let mut files = self.0.lock();
        let all = files.entry(num).or_default();
        match all.iter_mut().find(|opens| opens.session == session) {
            Some(opens) => opens.count += 1,
            None => all.push(Opens { session, count: 1, stays: false }),
        }
    }

    pub(crate) fn remove(&self, num: u64, session: u64) {
        let mut files = self.0.lock();
        let Some(all) = files.get_mut(&num) else { return };
        if let Some(opens) = all.iter_mut().find(|opens| opens.session == session) {
            opens.count -= 1;
        }
        all.retain(|opens| opens.count > 0);
        if all.is_empty() {
            files.remove(&num);
        }
    }

    /// Whether there is an older one, and whether one of these is waited for.
    fn older(&self, num: u64, session: u64) -> (bool, bool) {
        let files = self.0.lock();
        let older = files.get(&num).into_iter().flatten().filter(|opens| opens.session < session);
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
        if let Some(all) = self.0.lock().get_mut(&num) {
            all.iter_mut().filter(|opens| opens.session < session).for_each(|opens| opens.stays = true);
        }
        false
    }
}
