//! FUSE over io_uring: whether the test run uses it, and the kernel's switch for it.

use crate::turn::{self, Turn};

/// Path of the switch: `Y` or `N`. The kernel reads it at mount time.
pub const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

const RINGS_LOCK: &str = "uring";

/// Reports whether this test run uses io_uring: `SHUNT_TRANSPORT=uring`, which every `shunt mirror` follows.
pub fn over_rings() -> bool {
    std::env::var("SHUNT_TRANSPORT").as_deref() == Ok("uring")
}

/// Reports whether the kernel supports FUSE over io_uring, and it is switched on.
pub fn are_on() -> bool {
    std::fs::read_to_string(SWITCH).is_ok_and(|switch| switch.trim() == "Y")
}

/// Takes a shared lock under which the switch keeps its value, for creating a mount over rings.
pub fn keep() -> Turn {
    turn::share(RINGS_LOCK)
}

/// Keeps the switch off until dropped.
#[derive(Debug)]
#[must_use]
pub struct SwitchedOff(#[expect(dead_code, reason = "dropping it ends the turn")] Turn);

impl SwitchedOff {
    /// Turns the switch off, from the on state.
    ///
    /// # Panics
    /// If the caller is not root.
    pub fn now() -> Self {
        let turn = turn::lock_exclusive(RINGS_LOCK);
        std::fs::write(SWITCH, "N").expect("the switch: needs root");
        Self(turn)
    }
}

impl Drop for SwitchedOff {
    fn drop(&mut self) {
        // The lock is released after this.
        std::fs::write(SWITCH, "Y").expect("the switch");
    }
}
