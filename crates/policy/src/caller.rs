//! Who asks.

use std::path::{Path, PathBuf};

/// Who asks. What is not known of a caller makes the strictest of all rules hold that might be meant.
pub trait Caller {
    /// File-system user id.
    fn uid(&self) -> u32;

    /// File-system group id.
    fn gid(&self) -> u32;

    /// Supplementary groups; `None` where they cannot be known.
    fn groups(&self) -> Option<Vec<u32>>;

    /// Whether the caller runs this program; `None` where that cannot be known.
    fn runs(&self, program: &Path) -> Option<bool>;
}

/// A caller of whom everything is known: for tests and explanations.
#[derive(Debug, Clone, Default)]
pub struct KnownCaller {
    uid: u32,
    gid: u32,
    groups: Option<Vec<u32>>,
    program: Option<PathBuf>,
}

impl KnownCaller {
    /// A user with a group and no supplementary ones. Which program it runs is not known.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Some(Vec::new()), ..Self::default() }
    }

    /// Sets the supplementary groups; `None`: not known.
    pub fn with_groups(self, groups: Option<Vec<u32>>) -> Self {
        Self { groups, ..self }
    }

    /// Sets the program.
    pub fn with_program(self, program: impl Into<PathBuf>) -> Self {
        Self { program: Some(program.into()), ..self }
    }
}

impl Caller for KnownCaller {
    fn uid(&self) -> u32 {
        self.uid
    }

    fn gid(&self) -> u32 {
        self.gid
    }

    fn groups(&self) -> Option<Vec<u32>> {
        self.groups.clone()
    }

    fn runs(&self, program: &Path) -> Option<bool> {
        self.program.as_ref().map(|running| running == program)
    }
}
