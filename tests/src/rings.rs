//! FUSE over io_uring, which the kernel has a switch for.

use crate::turn::{self, Turn};

/// The switch: `Y` or `N`. It counts at the moment of a mount.
pub const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

const TURNS: &str = "uring";

/// The switch stays as it is. To be held while a mount is made that is to be over rings.
pub fn keep() -> Turn {
    turn::share(TURNS)
}

/// The switch is off, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct SwitchedOff(#[expect(dead_code, reason = "dropping it ends the turn")] Turn);

impl SwitchedOff {
    /// Turns it off; it was on.
    ///
    /// # Panics
    /// When the caller is not root.
    pub fn now() -> Self {
        let turn = turn::alone(TURNS);
        std::fs::write(SWITCH, "N").expect("the switch: needs root");
        Self(turn)
    }
}

impl Drop for SwitchedOff {
    fn drop(&mut self) {
        // The turn ends after this.
        std::fs::write(SWITCH, "Y").expect("the switch");
    }
}
