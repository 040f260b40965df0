//! The rules that speak of one path.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Owner;
use crate::policy::Inner;
use crate::rule::{Action, Rule};

/// A rule whose path matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Candidate {
    /// By index.
    pub(crate) rule: usize,
    /// Those whom the variable in the path stands for: the rule is for any of them. `None`: for all.
    pub(crate) owners: Option<Vec<Owner>>,
}

/// The rules that speak of one path, in order. Paths of the same class are treated alike.
#[derive(Clone)]
pub struct RuleSet {
    policy: Arc<Inner>,
    candidates: Arc<[Candidate]>,
}

impl RuleSet {
    /// Rules behind one that always matches do not count.
    pub(crate) fn new(policy: Arc<Inner>, mut candidates: Vec<Candidate>) -> Self {
        let always = |candidate: &Candidate| {
            let rule = &policy.rules[candidate.rule];
            candidate.owners.is_none()
                && !rule.asks_who()
                && !rule.asks_what()
                && rule.ops.is_none()
                && rule.action != Action::Audit
        };
        if let Some(last) = candidates.iter().position(always) {
            candidates.truncate(last + 1);
        }
        // What only allows, and tells nobody, is what is done without it.
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

    /// Whether both are of the same policy.
    pub fn is_akin(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy)
    }

    /// No rule has anything to say.
    pub fn is_free(&self) -> bool {
        self.candidates.is_empty()
    }

    /// Whether the name may be hidden from somebody.
    pub fn hides(&self) -> bool {
        self.rules().any(|(_, rule)| rule.action == Action::Hide)
    }

    /// Whether somebody may see less of the file than is in it.
    pub fn redacts(&self) -> bool {
        self.rules().any(|(_, rule)| matches!(rule.action, Action::Redact(_)))
    }

    /// What a name leads to, if anything, is the same for all callers and whatever is in the file: it may be cached.
    pub fn is_name_constant(&self) -> bool {
        let asks = |(candidate, rule): (&Candidate, &Rule)| {
            candidate.owners.is_some() || rule.asks_who() || rule.asks_what()
        };
        !(self.hides() || self.redacts()) || !self.rules().any(asks)
    }

    /// Whether a rule wants decisions told.
    pub fn audits(&self) -> bool {
        self.rules().any(|(_, rule)| rule.audit)
    }

    /// Whether any rule looks into the file.
    pub fn asks_what(&self) -> bool {
        self.rules().any(|(_, rule)| rule.asks_what())
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
