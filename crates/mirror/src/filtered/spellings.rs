//! Directories that find one name by several spellings: other case, other forms in Unicode, short names.
//!
//! Rules go by one spelling, so a name that was asked for tells nothing there. What rules would decide in such a
//! directory is refused: EACCES whether there is such a name or not.

use std::collections::HashSet;

use parking_lot::Mutex;
use shunt_fuse::{Errno, NodeId};
use shunt_policy::MatchState;

use super::PolicyFs;

/// Directories that are warned of.
const MAX_WARNINGS: usize = 16;

/// Directories in which names were refused; each is told once.
#[derive(Debug, Default)]
pub(super) struct Undecided(Mutex<HashSet<NodeId>>);

impl PolicyFs {
    /// Whether the root of the source finds names by several spellings, so that the rules in force decide nothing.
    pub fn is_undecided(&self) -> bool {
        !self.rules().policy.root().is_free() && self.mirror.lower.may_ignore_case(NodeId::ROOT)
    }

    /// Refuses a name in a directory where rules may speak of other names than are asked for.
    ///
    /// # Errors
    /// EACCES.
    pub(super) fn check_spelling(
        &self,
        place: &MatchState,
        dir: NodeId,
        path: &[u8],
        name: &[u8],
    ) -> Result<(), Errno> {
        // Digits and signs have one case; directories full of such names are not searched for one that has letters.
        let has_letters = name.iter().any(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii());
        let is_told = || !has_letters && self.mirror.lower.letters_are_untold(dir);
        if place.is_free() || is_told() || self.is_spelled_once(place, dir) {
            return Ok(());
        }
        let mut warned = self.undecided.0.lock();
        if warned.len() < MAX_WARNINGS && warned.insert(dir) {
            tracing::warn!(
                "{}: this directory ignores case, and rules that speak of names in it cannot be decided: all \
                 of them are refused (EACCES)",
                String::from_utf8_lossy(path).escape_debug()
            );
        }
        Err(Errno::ACCESS)
    }

    /// Whether a name says which file is meant, or no rule asks.
    pub(super) fn is_spelled_once(&self, place: &MatchState, dir: NodeId) -> bool {
        place.is_free() || !self.mirror.lower.may_ignore_case(dir)
    }
}
