//! The set of rules that match one path.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::compiled::CompiledPolicy;
use crate::ids::Owner;
use crate::rule::{Action, Rule};

/// A rule whose path pattern matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Candidate {
    /// Index of the rule.
    pub(crate) rule: usize,
    /// The owners that the variable in the path matched; the rule applies to each of them. `None`: the rule applies to
    /// all callers.
    pub(crate) owners: Option<Vec<Owner>>,
}

/// The rules that match one path, in order. Paths with equal rule sets are treated alike.
#[derive(Clone)]
pub struct RuleSet {
    policy: Arc<CompiledPolicy>,
    candidates: Arc<[Candidate]>,
}

impl RuleSet {
    /// Creates a rule set and drops the rules after one that always decides.
    pub(crate) fn new(policy: Arc<CompiledPolicy>, mut candidates: Vec<Candidate>) -> Self {
        let always = |candidate: &Candidate| {
            let rule = &policy.rules[candidate.rule];
            candidate.owners.is_none()
                && !rule.depends_on_caller()
                && !rule.depends_on_content()
                && rule.ops.is_none()
                && rule.action != Action::Audit
        };
        if let Some(last) = candidates.iter().position(always) {
            candidates.truncate(last + 1);
        }
        // Trailing rules that only allow, without an audit, equal the default.
        let silent = |candidate: &Candidate| policy.rules[candidate.rule].is_silent();
        while candidates.last().is_some_and(silent) {
            candidates.pop();
        }
        Self { policy, candidates: candidates.into() }
    }

    pub(crate) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    pub(crate) fn rule(&self, candidate: &Candidate) -> &Rule {
        &self.policy.rules[candidate.rule]
    }

    fn rules(&self) -> impl Iterator<Item = (&Candidate, &Rule)> {
        self.candidates.iter().map(|candidate| (candidate, self.rule(candidate)))
    }

    /// Reports whether both sets belong to the same policy.
    pub fn is_akin(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy)
    }

    /// Reports whether the set is empty.
    pub fn is_free(&self) -> bool {
        self.candidates.is_empty()
    }

    /// Reports whether the name may be hidden from some caller.
    pub fn hides(&self) -> bool {
        self.rules().any(|(_, rule)| rule.action == Action::Hide)
    }

    /// Reports whether some caller may see only a part of the file.
    pub fn redacts(&self) -> bool {
        self.rules().any(|(_, rule)| matches!(rule.action, Action::Redact(_)))
    }

    /// Reports whether the name resolves to the same inode for all callers and all contents of the file, so that it may
    /// be cached.
    pub fn is_name_constant(&self) -> bool {
        let asks = |(candidate, rule): (&Candidate, &Rule)| {
            candidate.owners.is_some() || rule.depends_on_caller() || rule.depends_on_content()
        };
        !(self.hides() || self.redacts()) || !self.rules().any(asks)
    }

    /// Reports whether a rule requires an audit.
    pub fn audits(&self) -> bool {
        self.rules().any(|(_, rule)| rule.audit)
    }

    /// Reports whether a rule depends on the contents of the file.
    pub fn depends_on_content(&self) -> bool {
        self.rules().any(|(_, rule)| rule.depends_on_content())
    }
}

impl PartialEq for RuleSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy) && self.candidates == other.candidates
    }
}

impl Eq for RuleSet {}

impl Hash for RuleSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.candidates.hash(state);
    }
}

impl std::fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.rules().map(|(_, rule)| &rule.name)).finish()
    }
}
