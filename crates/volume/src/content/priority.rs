//! What a user waits for goes before what nobody does.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Whoever gives way does so for at most so long at once: everything gets on.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many wait, in this process: they share its way to the network.
static WAITING: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());

/// Somebody waits, as long as this is.
#[derive(Debug)]
pub struct ForegroundGuard(());

/// Somebody waits from now on.
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

/// To be called before something for which nobody waits is sent or fetched.
pub fn yield_to_foreground() {
    let mut waiting = WAITING.0.lock();
    if *waiting > 0 {
        WAITING.1.wait_for(&mut waiting, PATIENCE);
    }
}
