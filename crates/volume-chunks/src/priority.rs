//! Gives foreground transfers precedence over background ones: uploads and background downloads pause while a user waits for a
//! download. The scope is the process, whose transfers share one link. A pause is limited to one second, so background transfers
//! always make progress.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Maximum time that a background transfer yields at once: it always makes progress.
const YIELD_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of foreground transfers in this process, which share its link.
static WAITING: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());

/// A running foreground transfer; ends when dropped.
#[derive(Debug)]
pub struct ForegroundGuard(());

/// Registers a foreground transfer.
pub fn begin() -> ForegroundGuard {
    *WAITING.0.lock() += 1;
    ForegroundGuard(())
}

impl Drop for ForegroundGuard {
    fn drop(&mut self) {
        let mut waiting = WAITING.0.lock();
        *waiting -= 1;
        if *waiting == 0 {
            WAITING.1.notify_all();
        }
    }
}

/// Waits while there are foreground transfers, for a limited time. Called before each background transfer.
pub fn yield_to_foreground() {
    let mut waiting = WAITING.0.lock();
    if *waiting > 0 {
        WAITING.1.wait_for(&mut waiting, YIELD_TIMEOUT);
    }
}
