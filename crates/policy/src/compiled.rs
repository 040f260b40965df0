//! A compiled policy: the rules and tables of a policy file after all checks. Match states and rule sets share it and refer
//! to its rules by index.

use crate::ids::Table;
use crate::pattern::Segment;
use crate::rule::Rule;

/// The rules of a policy, in order, and the tables of ids that their patterns refer to.
pub(crate) struct CompiledPolicy {
    pub(crate) rules: Vec<Rule>,
    pub(crate) tables: Vec<Table>,
    /// The file contains `default = "allow"`.
    pub(crate) has_explicit_default: bool,
}

impl CompiledPolicy {
    /// Returns a segment of a pattern; `None` at its end.
    pub(crate) fn segment(&self, rule: usize, pattern: usize, at: usize) -> Option<&Segment> {
        self.rules[rule].patterns[pattern].segments.get(at)
    }
}
