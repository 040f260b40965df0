//! The caller of an operation, as rules see it.

use std::path::{Path, PathBuf};

/// A caller. If a property is unknown, the strictest of all rules that might match decides.
pub trait Caller {
    /// File-system user id.
    fn uid(&self) -> u32;

    /// File-system group id.
    fn gid(&self) -> u32;

    /// Supplementary groups; `None` if they cannot be determined.
    fn groups(&self) -> Option<Vec<u32>>;

    /// Reports whether the caller runs this program; `None` if that cannot be determined.
    fn runs(&self, program: &Path) -> Option<bool>;
}

/// A caller with given properties, for tests and explanations.
#[derive(Debug, Clone, Default)]
pub struct KnownCaller {
    uid: u32,
    gid: u32,
    groups: Option<Vec<u32>>,
    program: Option<PathBuf>,
}

impl KnownCaller {
    /// Creates a user with a group and no supplementary groups, and with an unknown program.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Some(Vec::new()), ..Self::default() }
    }

    /// Sets the supplementary groups; `None` means unknown.
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
