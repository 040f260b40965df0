//! Decisions: the first rule that matches an operation decides.
//!
//! Conditions use three-valued logic: an unknown property (the groups of a caller that exited, a file that cannot be
//! read) makes a condition neither true nor false. The decision is then the stricter one of the rule's outcome and the
//! outcome without the rule.

use std::sync::Arc;

use crate::caller::Caller;
use crate::content::Content;
use crate::rule::{Action, Denial, Op, Redaction, Truth, and, or};
use crate::rule_set::{Candidate, RuleSet};

/// The outcome of a decision, in order of increasing strictness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The operation works as without a policy.
    Allow,
    /// Reads see the file with parts blanked.
    Redact(Arc<Redaction>),
    /// Changes fail with EROFS.
    ReadOnly,
    /// The operation fails with EACCES or EPERM.
    Deny(Denial),
    /// The name does not exist: ENOENT.
    Hide,
}

impl Outcome {
    fn strictness(&self) -> u8 {
        match self {
            Self::Allow => 0,
            Self::Redact(_) => 1,
            Self::ReadOnly => 2,
            Self::Deny(_) => 3,
            Self::Hide => 4,
        }
    }

    /// Returns the name of the outcome.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Redact(_) => "redact",
            Self::ReadOnly => "read-only",
            Self::Deny(Denial::Access) => "deny (EACCES)",
            Self::Deny(Denial::NotPermitted) => "deny (EPERM)",
            Self::Hide => "hide",
        }
    }
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The outcome.
    pub outcome: Outcome,
    /// Index of the rule that decided; `None` if no rule matched.
    pub rule: Option<usize>,
    /// A condition could not be evaluated, and the strictest outcome was chosen.
    pub is_uncertain: bool,
    /// Indices of the rules that require an audit of the decision.
    pub audit: Vec<usize>,
    /// The redaction for a reader who opens the file now. It applies as long as the file is open, whatever is written to
    /// it: a file that is not a picture at open may become one.
    pub redaction: Option<Arc<Redaction>>,
}

impl Action {
    /// Returns the outcome for an operation; `None` if the next rule decides.
    pub(crate) fn outcome(&self, op: Op) -> Option<Outcome> {
        Some(match self {
            Self::Audit => return None,
            Self::Hide => Outcome::Hide,
            Self::Deny(denial) if op != Op::Lookup => Outcome::Deny(*denial),
            Self::ReadOnly if op.changes() => Outcome::ReadOnly,
            Self::Redact(redaction) if op == Op::Read => Outcome::Redact(redaction.clone()),
            // An editor that writes blanks back would destroy the data that they hide.
            Self::Redact(_) if op == Op::Write => Outcome::Deny(Denial::Access),
            Self::Allow | Self::Deny(_) | Self::ReadOnly | Self::Redact(_) | Self::Graft => Outcome::Allow,
        })
    }
}

impl Candidate {
    /// Reports whether the rule applies to the caller, and the condition that decided it.
    pub(crate) fn is_caller(
        &self,
        class: &RuleSet,
        caller: &(impl Caller + ?Sized),
    ) -> (Truth, &'static str) {
        let rule = class.rule(self);
        let owner = match &self.owners {
            None => Some(true),
            Some(owners) => owners.iter().fold(Some(false), |truth, owner| or(truth, || owner.is(caller))),
        };
        if owner == Some(false) {
            return (Some(false), "the path belongs to another owner");
        }
        let (all, what) = rule.who.all(caller);
        if all == Some(false) {
            return (Some(false), what);
        }
        let (any, excepted) = rule.except.any(caller);
        if any == Some(true) {
            return (Some(false), "the caller is excepted");
        }
        let truth = and(and(owner, || all), || any.map(|any| !any));
        (truth, if all.is_none() { what } else { excepted })
    }
}

impl RuleSet {
    /// Decides an operation of a caller.
    pub fn decide(
        &self,
        op: Op,
        caller: &(impl Caller + ?Sized),
        content: &(impl Content + ?Sized),
    ) -> Decision {
        let mut decision = Decision {
            outcome: Outcome::Allow,
            rule: None,
            is_uncertain: false,
            audit: Vec::new(),
            redaction: None,
        };
        // A lookup only decides between visible and hidden: the contents are not read if they cannot matter.
        if op == Op::Lookup && !self.hides() {
            return decision;
        }
        let mut strictest: Option<(Outcome, usize)> = None;
        let mut not_yet = Vec::new();
        for candidate in self.candidates() {
            let rule = self.rule(candidate);
            if !rule.applies_to(op) {
                continue;
            }
            let who = candidate.is_caller(self, caller).0;
            let truth = and(who, || match rule.depends_on_content() {
                true => rule.is_content(content),
                false => Some(true),
            });
            if truth == Some(false) {
                if let (Action::Redact(redaction), true) = (&rule.action, who != Some(false)) {
                    not_yet.push(redaction.clone());
                }
                continue;
            }
            if rule.audit && op != Op::Lookup {
                decision.audit.push(candidate.rule);
            }
            let Some(outcome) = rule.action.outcome(op) else { continue };
            if truth == Some(true) {
                decision.outcome = outcome;
                decision.rule = Some(candidate.rule);
                break;
            }
            decision.is_uncertain = true;
            if strictest.as_ref().is_none_or(|(known, _)| known.strictness() < outcome.strictness()) {
                strictest = Some((outcome, candidate.rule));
            }
        }
        let stricter = |outcome: &Outcome| outcome.strictness() > decision.outcome.strictness();
        if let Some((outcome, rule)) = strictest.filter(|(outcome, _)| stricter(outcome)) {
            decision.outcome = outcome;
            decision.rule = Some(rule);
        }
        if op == Op::Read {
            let now = match &decision.outcome {
                Outcome::Allow => None,
                Outcome::Redact(redaction) => Some(redaction.clone()),
                Outcome::ReadOnly | Outcome::Deny(_) | Outcome::Hide => return decision,
            };
            decision.redaction =
                not_yet.into_iter().rev().fold(now, |otherwise, redaction| Some(redaction.or(otherwise)));
        }
        decision
    }
}
