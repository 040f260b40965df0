//! A policy as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::PolicyError;
use crate::file;
use crate::ids::{Names, Table};
use crate::match_state::MatchState;
use crate::pattern::Segment;
use crate::rule::{Action, Rule};

/// What places and classes share.
pub(crate) struct Inner {
    pub(crate) rules: Vec<Rule>,
    pub(crate) tables: Vec<Table>,
    /// The file says `default = "allow"`.
    pub(crate) has_explicit_default: bool,
}

impl Inner {
    /// A step of a pattern; `None` at its end.
    pub(crate) fn segment(&self, rule: usize, pattern: usize, at: usize) -> Option<&Segment> {
        self.rules[rule].patterns[pattern].segments.get(at)
    }
}

/// A policy, ready to decide. Clones share it.
#[derive(Clone)]
pub struct Policy(pub(crate) Arc<Inner>);

impl Policy {
    /// Reads a policy. `names` are the users and groups that it may name.
    ///
    /// # Errors
    /// What is wrong first, with its place: one line.
    pub fn parse(text: &str, names: &Names) -> Result<Self, PolicyError> {
        file::read(text, names).map(Self)
    }

    /// One that says nothing.
    pub fn empty() -> Self {
        Self(Arc::new(Inner { rules: Vec::new(), tables: Vec::new(), has_explicit_default: true }))
    }

    /// Whether there is no rule, and `default = "allow"` does not say that this is meant: an empty file, or one whose end
    /// is missing.
    pub fn is_unfinished(&self) -> bool {
        self.0.rules.is_empty() && !self.0.has_explicit_default
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.0.rules
    }

    /// The root of the directory that it speaks of.
    pub fn root(&self) -> MatchState {
        MatchState::root(self.0.clone())
    }

    /// A path from there. Empty components do not count.
    pub fn match_path(&self, path: &[u8]) -> MatchState {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.fold(self.root(), |place, name| place.enter(name))
    }

    /// Directories of which, and below which, nothing is decided: they may be mounted through.
    pub fn grafts(&self) -> impl Iterator<Item = PathBuf> {
        let grafting = self.0.rules.iter().filter(|rule| rule.action == Action::Graft);
        let paths = grafting.flat_map(|rule| rule.patterns.iter().filter_map(|pattern| pattern.tree()));
        paths.map(|names| Path::new("/").join(names.iter().collect::<PathBuf>()))
    }

    /// Programs that rules ask for.
    pub fn programs(&self) -> impl Iterator<Item = &Path> {
        let of = |rule: &'_ Rule| rule.who.programs.len() + rule.except.programs.len() > 0;
        let asking = self.0.rules.iter().filter(move |rule| of(rule));
        asking.flat_map(|rule| rule.who.programs.iter().chain(&rule.except.programs)).map(PathBuf::as_path)
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.rules.iter().map(|rule| &rule.name)).finish()
    }
}
