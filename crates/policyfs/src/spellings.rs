//! Directories that find a file by several spellings of its name: other case, other Unicode normal forms, short names.
//!
//! Rules match one spelling, so the requested name does not decide there. Names in such a directory that rules could
//! match are refused with EACCES, whether they exist or not.

use std::collections::HashSet;

use parking_lot::Mutex;
use shunt_fuse::{Errno, NodeId};
use shunt_policy::MatchState;

use crate::PolicyFs;

/// Limit on directories that are logged.
const MAX_WARNINGS: usize = 16;

/// Directories in which names were refused; each is logged once.
#[derive(Debug, Default)]
pub(crate) struct AmbiguousDirs(Mutex<HashSet<NodeId>>);

impl PolicyFs {
    /// Reports whether the root of the source finds names by several spellings, so that the rules cannot be decided.
    pub fn has_ambiguous_names(&self) -> bool {
        !self.rules().policy.root().is_free() && self.mirror.engine().may_ignore_case(NodeId::ROOT)
    }

    /// Refuses a name in a directory where rules may match another spelling of it.
    ///
    /// # Errors
    /// EACCES if the rules cannot be decided.
    pub(crate) fn check_spelling(
        &self,
        state: &MatchState,
        dir: NodeId,
        path: &[u8],
        name: &[u8],
    ) -> Result<(), Errno> {
        // Digits and punctuation have one case, so such names are exempt in directories that do not report case
        // folding.
        let has_letters = name.iter().any(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii());
        let has_one_case = || !has_letters && self.mirror.engine().is_case_folding_unreported(dir);
        if state.is_free() || has_one_case() || self.is_spelled_once(state, dir) {
            return Ok(());
        }
        let mut warned = self.ambiguous_dirs.0.lock();
        if warned.len() < MAX_WARNINGS && warned.insert(dir) {
            tracing::warn!(
                "cannot apply rules for names in {}: the directory is case-insensitive; such names are refused (EACCES)",
                String::from_utf8_lossy(path).escape_debug()
            );
        }
        Err(Errno::ACCESS)
    }

    /// Reports whether a name identifies one file, or no rule applies.
    pub(crate) fn is_spelled_once(&self, state: &MatchState, dir: NodeId) -> bool {
        state.is_free() || !self.mirror.engine().may_ignore_case(dir)
    }
}
