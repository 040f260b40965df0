//! A parsed policy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::compiled::CompiledPolicy;
use crate::error::PolicyError;
use crate::file;
use crate::ids::Names;
use crate::match_state::MatchState;
use crate::rule::{Action, Rule};

/// A parsed policy. Clones share it.
#[derive(Clone)]
pub struct Policy(pub(crate) Arc<CompiledPolicy>);

impl Policy {
    /// Parses a policy. `names` are the users and groups that it may refer to.
    ///
    /// # Errors
    /// The first error, with its position, in one line.
    pub fn parse(text: &str, names: &Names) -> Result<Self, PolicyError> {
        file::read(text, names).map(Self)
    }

    /// Returns a policy without rules.
    pub fn empty() -> Self {
        Self(Arc::new(CompiledPolicy { rules: Vec::new(), tables: Vec::new(), has_explicit_default: true }))
    }

    /// Reports whether the policy has no rule and lacks `default = "allow"`, which would declare that as intended: the
    /// file is empty or truncated.
    pub fn is_unfinished(&self) -> bool {
        self.0.rules.is_empty() && !self.0.has_explicit_default
    }

    /// Returns the rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.0.rules
    }

    /// Returns the match state of the policy's root directory.
    pub fn root(&self) -> MatchState {
        MatchState::root(self.0.clone())
    }

    /// Returns the match state of a path below the root. Empty components are ignored.
    pub fn match_path(&self, path: &[u8]) -> MatchState {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.fold(self.root(), |state, name| state.enter(name))
    }

    /// Iterates over the directories on and below which nothing is decided, so that they may be bind-mounted.
    pub fn grafts(&self) -> impl Iterator<Item = PathBuf> {
        let grafting = self.0.rules.iter().filter(|rule| rule.action == Action::Graft);
        let paths = grafting.flat_map(|rule| rule.patterns.iter().filter_map(|pattern| pattern.tree()));
        paths.map(|names| Path::new("/").join(names.iter().collect::<PathBuf>()))
    }

    /// Iterates over the programs that rules name.
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
