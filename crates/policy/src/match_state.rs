//! Incremental path matching: the state of all patterns on the way down a path, as in an NFA.

use std::sync::Arc;

use crate::child_rules::{ChildCandidate, ChildRules};
use crate::compiled::CompiledPolicy;
use crate::ids::Owner;
use crate::pattern::Segment;
use crate::rule::Action;
use crate::rule_set::{Candidate, RuleSet};

/// The state of one partially matched pattern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Thread {
    rule: usize,
    pattern: usize,
    /// Number of segments matched.
    done: usize,
    /// The owner that the variable of the pattern matched, if it was passed.
    owner: Option<Owner>,
}

/// The match state of a path. Paths with equal states have equal states below them.
#[derive(Clone)]
pub struct MatchState {
    policy: Arc<CompiledPolicy>,
    /// Sorted and without duplicates.
    threads: Vec<Thread>,
}

impl PartialEq for MatchState {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy) && self.threads == other.threads
    }
}

impl Eq for MatchState {}

impl MatchState {
    pub(crate) fn root(policy: Arc<CompiledPolicy>) -> Self {
        let mut threads = Vec::new();
        for (rule, patterns) in policy.rules.iter().map(|rule| &rule.patterns).enumerate() {
            for pattern in 0..patterns.len() {
                add(&policy, &mut threads, Thread { rule, pattern, done: 0, owner: None });
            }
        }
        Self::new(policy, threads)
    }

    fn new(policy: Arc<CompiledPolicy>, mut threads: Vec<Thread>) -> Self {
        threads.sort_unstable();
        threads.dedup();
        Self { policy, threads }
    }

    /// Descends by one name.
    #[must_use]
    pub fn enter(&self, name: &[u8]) -> Self {
        let mut threads = Vec::new();
        for thread in &self.threads {
            let next = |owner| Thread { done: thread.done + 1, owner, ..thread.clone() };
            match self.policy.segment(thread.rule, thread.pattern, thread.done) {
                None => {}
                Some(Segment::Depth) => add(&self.policy, &mut threads, thread.clone()),
                Some(Segment::Name(glob)) if glob.matches(name) => {
                    add(&self.policy, &mut threads, next(thread.owner.clone()));
                }
                Some(Segment::Name(_)) => {}
                Some(Segment::Variable(variable)) => {
                    if let Some(owner) = variable.owner(&self.policy.tables, name) {
                        add(&self.policy, &mut threads, next(Some(owner)));
                    }
                }
            }
        }
        Self::new(self.policy.clone(), threads)
    }

    /// Returns the rules that match exactly this path.
    pub fn class(&self) -> RuleSet {
        let mut candidates: Vec<Candidate> = Vec::new();
        for thread in self.threads.iter().filter(|thread| self.is_done(thread)) {
            let owners = thread.owner.clone().map(|owner| vec![owner]);
            match candidates.last_mut().filter(|last| last.rule == thread.rule) {
                None => candidates.push(Candidate { rule: thread.rule, owners }),
                Some(last) => match (&mut last.owners, owners) {
                    (Some(known), Some(owners)) => known.extend(owners),
                    (known, _) => *known = None,
                },
            }
        }
        for owners in candidates.iter_mut().filter_map(|candidate| candidate.owners.as_mut()) {
            owners.sort_unstable();
            owners.dedup();
        }
        RuleSet::new(self.policy.clone(), candidates)
    }

    /// Returns the rules that may match a name in this directory.
    pub fn child_rules(&self) -> ChildRules {
        let mut candidates = Vec::new();
        for thread in &self.threads {
            let Thread { rule, pattern, done, ref owner } = *thread;
            let segment = |done| self.policy.segment(rule, pattern, done);
            let matches_child = match segment(done) {
                // `**` matches a child itself only at the end of the pattern.
                Some(Segment::Depth) => segment(done + 1).is_none(),
                _ => self.ends_below(thread),
            };
            if !matches_child {
                continue;
            }
            let (is_certain, owner) = match segment(done) {
                None => continue,
                Some(Segment::Depth) => (true, owner.clone()),
                Some(Segment::Name(glob)) => (glob.matches_all(), owner.clone()),
                // Each name has another owner, and every caller may own one.
                Some(Segment::Variable(_)) => (false, None),
            };
            candidates.push(ChildCandidate { rule, owner, is_certain });
        }
        ChildRules::new(self.policy.clone(), candidates)
    }

    /// Iterates over the indices of rules that match this path or may match a path below it.
    pub(crate) fn rules(&self) -> impl Iterator<Item = usize> {
        self.threads.iter().map(|thread| thread.rule)
    }

    /// Reports whether a rule matches exactly this path.
    pub(crate) fn is_of(&self, rule: usize) -> bool {
        self.threads.iter().any(|thread| thread.rule == rule && self.is_done(thread))
    }

    fn is_done(&self, thread: &Thread) -> bool {
        self.policy.segment(thread.rule, thread.pattern, thread.done).is_none()
    }

    /// Reports whether no rule can match below this path.
    pub fn is_free(&self) -> bool {
        self.threads.iter().all(|thread| self.is_done(thread))
    }

    /// Reports whether a name in this directory may be hidden from some caller.
    pub fn hides_names(&self) -> bool {
        self.threads
            .iter()
            .any(|thread| self.policy.rules[thread.rule].action == Action::Hide && self.ends_below(thread))
    }

    /// Reports whether the pattern can match a direct child.
    fn ends_below(&self, thread: &Thread) -> bool {
        let rest = |done| self.policy.segment(thread.rule, thread.pattern, done);
        match rest(thread.done) {
            None => false,
            Some(Segment::Depth) => true,
            Some(_) => matches!(
                (rest(thread.done + 1), rest(thread.done + 2)),
                (None, _) | (Some(Segment::Depth), None)
            ),
        }
    }
}

/// Adds a pattern state; `**` may also match no directory.
fn add(policy: &CompiledPolicy, threads: &mut Vec<Thread>, thread: Thread) {
    if policy.segment(thread.rule, thread.pattern, thread.done) == Some(&Segment::Depth) {
        let after = Thread { done: thread.done + 1, ..thread.clone() };
        threads.push(after);
    }
    threads.push(thread);
}

impl std::fmt::Debug for MatchState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MatchState").field(&self.class()).finish()
    }
}
