//! Whether one thread is enough: for a caller that waits for each reply before it asks for more.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Who asked since the watch looked last.
#[derive(Debug, Default)]
pub(super) struct Callers {
    last: AtomicU32,
    several: AtomicBool,
    /// A thread found its next request waiting already.
    pressed: AtomicBool,
}

impl Callers {
    /// A request of this thread, or of nobody in particular.
    pub(super) fn note_caller(&self, thread: u32) {
        if thread != 0 && self.last.load(Ordering::Relaxed) != thread {
            self.last.store(thread, Ordering::Relaxed);
            self.several.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the next request waited already when a thread had answered the one before.
    pub(super) fn note_pressure(&self, pressed: bool) {
        if self.pressed.load(Ordering::Relaxed) != pressed {
            self.pressed.store(pressed, Ordering::Relaxed);
        }
    }

    /// Whether one caller asked, each time after it was answered. From here on anew.
    pub(super) fn is_one(&self) -> bool {
        !self.several.swap(false, Ordering::Relaxed) && !self.pressed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_waits_is_one() {
        let callers = Callers::default();
        callers.note_caller(7);
        assert!(!callers.is_one(), "who asked before is not known");
        (0..3).for_each(|_| callers.note_caller(7));
        callers.note_caller(0);
        assert!(callers.is_one());
        callers.note_pressure(true);
        assert!(!callers.is_one(), "it asks ahead");
        callers.note_pressure(false);
        callers.note_caller(8);
        assert!(!callers.is_one());
    }
}
