//! Per-user limits on open files.
//!
//! A user may have half of what the other users leave open: a single user half of all, two users a third each. One
//! sixteenth is reserved for root and for the user of the daemon, who are bound by the total limit only.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

/// Divisor of the limit that gives the share reserved for root.
const ROOT_SHARE_DIVISOR: usize = 16;

/// Counts of open files and directories by user.
#[derive(Debug, Default)]
pub(crate) struct Shares(Arc<Mutex<HashMap<u32, usize>>>);

/// An open file, counted for its user until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    users: Arc<Mutex<HashMap<u32, usize>>>,
    uid: u32,
}

impl Shares {
    /// Counts one more open file of a user. `open` is the total of all users, `limit` its maximum.
    ///
    /// # Errors
    /// ENFILE if the user or the total is at the limit.
    pub(crate) fn take(&self, uid: u32, open: usize, limit: usize) -> Result<Share, Errno> {
        let is_privileged = uid == 0 || uid == rustix::process::geteuid().as_raw();
        let mut users = self.0.lock();
        let own = users.get(&uid).copied().unwrap_or(0);
        let limit = if is_privileged { limit } else { limit - limit / ROOT_SHARE_DIVISOR };
        let others = open.saturating_sub(own);
        let has_room = open < limit && (is_privileged || own < limit.saturating_sub(others).div_ceil(2));
        if !has_room {
            return Err(Errno::NFILE);
        }
        *users.entry(uid).or_default() += 1;
        Ok(Share { users: self.0.clone(), uid })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut users = self.users.lock();
        if let Some(own) = users.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                users.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(shares: &Shares, uid: u32, held: &mut Vec<Share>) -> usize {
        let before = held.len();
        while let Ok(share) = shares.take(uid, held.len(), 160) {
            held.push(share);
        }
        held.len() - before
    }

    #[test]
    fn a_single_user_cannot_exhaust_the_limit() {
        let (shares, mut held) = (Shares::default(), Vec::new());
        assert_eq!(fill(&shares, 1000, &mut held), 75);
        assert!(fill(&shares, 1001, &mut held) >= 37);
        for uid in 2000..2100 {
            fill(&shares, uid, &mut held);
        }
        assert_eq!(held.len(), 150);
        assert_eq!(fill(&shares, 0, &mut held), 10);
        held.clear();
        assert!(shares.0.lock().is_empty());
        assert_eq!(fill(&shares, 1000, &mut held), 75);
    }
}
