//! The rules that may match a name in a directory, whatever the name is.
//!
//! A new name has no inode, so its rules cannot be attached to one. But the rules of many directories decide alike about
//! every name that can be created there: the pattern ends with `**` or `*`. [`ChildRules`] holds each rule that some name
//! can match, and whether it matches all names. From it follows the error of creating a name where that is the same for
//! all names. Where it may differ between names, the daemon decides.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::caller::KnownCaller;
use crate::compiled::CompiledPolicy;
use crate::decide::Outcome;
use crate::ids::Owner;
use crate::rule::{Denial, Op, Rule, Truth, and, or};

/// A rule that may match a name in the directory. A rule with several patterns may have several entries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChildCandidate {
    /// Index of the rule.
    pub(crate) rule: usize,
    /// The owner that the path of the directory names; `None`: the rule applies to all callers.
    pub(crate) owner: Option<Owner>,
    /// The rule matches every name.
    pub(crate) is_certain: bool,
}

/// The rules that may match a name in a directory. Directories with equal child rules treat new names alike.
#[derive(Clone)]
pub struct ChildRules {
    policy: Arc<CompiledPolicy>,
    /// Sorted and without duplicates.
    candidates: Arc<[ChildCandidate]>,
}

/// A set of errors, as a bit mask: bit 0 for success.
type Errors = u64;

const ALLOWED: Errors = 1;

impl ChildCandidate {
    /// Evaluates whether the rule matches all names (true), none, or some (unknown) for a caller.
    fn is_caller(&self, caller: &KnownCaller) -> Truth {
        let owner = match &self.owner {
            // Members of a group are not known by user and group alone.
            Some(Owner::Gid(_)) => None,
            Some(owner) => owner.is(caller),
            None => Some(true),
        };
        and(owner, || self.is_certain.then_some(true))
    }
}

impl ChildRules {
    pub(crate) fn new(policy: Arc<CompiledPolicy>, mut candidates: Vec<ChildCandidate>) -> Self {
        candidates.sort_unstable();
        candidates.dedup();
        Self { policy, candidates: candidates.into() }
    }

    pub(crate) fn candidates(&self) -> &[ChildCandidate] {
        &self.candidates
    }

    pub(crate) fn rule(&self, candidate: &ChildCandidate) -> &Rule {
        &self.policy.rules[candidate.rule]
    }

    /// Reports whether no rule can match a name in the directory.
    pub fn is_free(&self) -> bool {
        self.candidates.is_empty()
    }

    /// Returns the errno with which the creation of a name fails for a caller, if it is the same for all names, or else 0.
    pub(crate) fn creation_error(&self, caller: &KnownCaller) -> u8 {
        let hidden = 1 << outcome_errno(&Outcome::Hide, Op::Lookup);
        let (Some(lookup), Some(create)) = (self.errors(Op::Lookup, caller), self.errors(Op::Create, caller))
        else {
            return 0;
        };
        // The creation of a hidden name is refused before the rules for `create` decide.
        let of_hidden = if lookup & hidden == 0 { 0 } else { 1 << outcome_errno(&Outcome::Hide, Op::Create) };
        let of_others = if lookup == hidden { 0 } else { create };
        let errors: Errors = of_hidden | of_others;
        if errors.count_ones() == 1 { errors.trailing_zeros() as u8 } else { 0 }
    }

    /// Returns a superset of the errors that an operation of a caller has on the names; `None` if they depend on more than
    /// user and group.
    fn errors(&self, op: Op, caller: &KnownCaller) -> Option<Errors> {
        let mut errors = 0;
        for candidates in self.candidates.chunk_by(|a, b| a.rule == b.rule) {
            let rule = self.rule(&candidates[0]);
            let path = candidates
                .iter()
                .fold(Some(false), |truth, candidate| or(truth, || candidate.is_caller(caller)));
            if !rule.applies_to(op) || path == Some(false) {
                continue;
            }
            if !rule.depends_on_ids_only() {
                return None;
            }
            let truth = and(path, || rule.who.all(caller).0);
            let truth = and(truth, || rule.except.any(caller).0.map(|any| !any));
            if truth == Some(false) {
                continue;
            }
            let Some(outcome) = rule.action.outcome(op) else { continue };
            errors |= 1 << outcome_errno(&outcome, op);
            if truth == Some(true) {
                return Some(errors);
            }
        }
        Some(errors | ALLOWED)
    }
}

/// Returns the errno of an outcome, 0 if the operation is allowed.
pub(crate) fn outcome_errno(outcome: &Outcome, op: Op) -> u8 {
    match outcome {
        Outcome::Allow | Outcome::Redact(_) => 0,
        Outcome::ReadOnly => 30,
        Outcome::Deny(Denial::Access) => 13,
        Outcome::Deny(Denial::NotPermitted) => 1,
        // The error must not reveal whether the name exists.
        Outcome::Hide if op == Op::Create => 13,
        Outcome::Hide => 2,
    }
}

impl PartialEq for ChildRules {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy) && self.candidates == other.candidates
    }
}

impl Eq for ChildRules {}

impl Hash for ChildRules {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.candidates.hash(state);
    }
}

impl std::fmt::Debug for ChildRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.candidates.iter()).finish()
    }
}
