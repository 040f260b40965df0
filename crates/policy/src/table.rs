//! Decision tables: the decisions of a rule set by user and group alone, for enforcement in the kernel.

use crate::caller::KnownCaller;
use crate::child_rules::{ChildRules, outcome_errno};
use crate::content::NoContent;
use crate::decide::Outcome;
use crate::ids::{IdRange, Owner};
use crate::rule::{Op, Rule};
use crate::rule_set::{Candidate, RuleSet};

/// Limit on the user ranges of a table.
pub const MAX_USERS: usize = 64;
/// Limit on the group ranges of a table.
pub const MAX_GROUPS: usize = 8;
/// Limit on the pairs of a user range and a group range.
pub const MAX_CELLS: usize = 128;

/// The decisions for one pair of ranges: an errno for each [`Op`], in their order, 0 if it is allowed. The last byte is of
/// directories: the errno of creating a name in it, 0 if that depends on the name.
pub type Cell = [u8; 8];

/// Index of the last byte of a [`Cell`].
const CREATE_INSIDE: usize = 7;

/// A decision for every user and group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Start of each user range; the first is 0.
    pub users: Vec<u32>,
    /// Start of each group range; the first is 0.
    pub groups: Vec<u32>,
    /// The cells of all group ranges for the first user range, then for the second, ...
    pub cells: Vec<Cell>,
}

const OPS: [Op; 7] = [Op::Lookup, Op::Read, Op::Write, Op::List, Op::Create, Op::Delete, Op::Attributes];

impl Rule {
    /// Reports whether the rule depends on user and group alone and is not audited.
    pub(crate) fn depends_on_ids_only(&self) -> bool {
        let more = |who: &crate::rule::CallerSet| !who.groups.is_empty() || !who.programs.is_empty();
        let redacts = matches!(self.action, crate::Action::Redact(_));
        !(self.audit || redacts || self.depends_on_content() || more(&self.who) || more(&self.except))
    }
}

/// Returns the boundaries of ranges: each start and each end.
fn bounds<'a>(ranges: impl Iterator<Item = &'a IdRange>) -> Vec<u32> {
    let mut bounds: Vec<u32> =
        ranges.flat_map(|(first, last)| [*first, last.saturating_add(1)]).chain([0]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    bounds
}

impl Table {
    /// Reports whether the table, of a directory, refuses the creation of every name to some caller.
    pub fn refuses_creation(&self) -> bool {
        self.cells.iter().any(|cell| cell[CREATE_INSIDE] != 0)
    }
}

impl RuleSet {
    /// Returns the decisions of this rule set, if they depend on user and group alone and fit into a table.
    pub fn table(&self) -> Option<Table> {
        self.table_with(None)
    }

    /// Returns the decisions of this rule set for a directory with these child rules, if they depend on user and group
    /// alone and fit into a table. They include the creation of names where that does not depend on the name.
    pub fn directory_table(&self, children: &ChildRules) -> Option<Table> {
        self.table_with(Some(children)).or_else(|| self.table())
    }

    fn table_with(&self, children: Option<&ChildRules>) -> Option<Table> {
        let candidates = self.candidates();
        let own_rules = || candidates.iter().map(|candidate| self.rule(candidate));
        if !own_rules().all(Rule::depends_on_ids_only) {
            return None;
        }
        let child_candidates = || children.into_iter().flat_map(ChildRules::candidates);
        let child_rules = || {
            children
                .into_iter()
                .flat_map(|children| children.candidates().iter().map(|candidate| children.rule(candidate)))
        };
        let mut owners = Vec::new();
        for owner in candidates.iter().filter_map(|Candidate { owners, .. }| owners.as_ref()).flatten() {
            match owner {
                Owner::Uid(uid) => owners.push((*uid, *uid)),
                Owner::Uids(ranges) => owners.extend(ranges),
                Owner::Gid(_) => return None,
            }
        }
        for owner in child_candidates().filter_map(|candidate| candidate.owner.as_ref()) {
            match owner {
                Owner::Uid(uid) => owners.push((*uid, *uid)),
                Owner::Uids(ranges) => owners.extend(ranges),
                // Such a rule is taken for one that matches some names.
                Owner::Gid(_) => {}
            }
        }
        let rules = || own_rules().chain(child_rules());
        let users = rules().flat_map(|rule| rule.who.uids.iter().chain(&rule.except.uids));
        let users = bounds(users.chain(&owners));
        let groups = bounds(rules().flat_map(|rule| rule.who.gids.iter().chain(&rule.except.gids)));
        let fits =
            users.len() <= MAX_USERS && groups.len() <= MAX_GROUPS && users.len() * groups.len() <= MAX_CELLS;
        if !fits {
            return None;
        }
        // The decision is constant within a range, so the first id stands for all.
        let each = users.iter().flat_map(|uid| {
            groups.iter().map(|gid| {
                let caller = KnownCaller::new(*uid, *gid);
                let mut cell = self.cell(&caller);
                cell[CREATE_INSIDE] = children.map_or(0, |children| children.creation_error(&caller));
                cell
            })
        });
        Some(Table { cells: each.collect(), users, groups })
    }

    fn cell(&self, caller: &KnownCaller) -> Cell {
        let decide = |op| self.decide(op, caller, &NoContent).outcome;
        let mut cell = Cell::default();
        for op in OPS {
            // A hidden name cannot be created, whatever the rules for `create` are.
            let hidden = op == Op::Create && decide(Op::Lookup) == Outcome::Hide;
            let outcome = if hidden { Outcome::Hide } else { decide(op) };
            cell[op as usize] = outcome_errno(&outcome, op);
        }
        cell
    }
}

impl crate::Policy {
    /// Reports whether every possible rule set of the policy has a [table](RuleSet::table).
    pub fn has_tables(&self) -> bool {
        let rules = self.rules();
        let by_group = |rule: &Rule| {
            let segments = rule.patterns.iter().flat_map(|pattern| &pattern.segments);
            let gid = crate::pattern::Segment::Variable(crate::ids::Variable::Gid);
            segments.into_iter().any(|segment| *segment == gid)
        };
        let owners = self.0.tables.iter().flat_map(|table| table.entries.values()).map(Vec::len).max();
        let patterns: usize = rules.iter().map(|rule| rule.patterns.len()).sum();
        let users: usize = rules.iter().map(|rule| rule.who.uids.len() + rule.except.uids.len()).sum();
        let groups: usize = rules.iter().map(|rule| rule.who.gids.len() + rule.except.gids.len()).sum();
        let users = 1 + 2 * (users + patterns * owners.unwrap_or(0).max(1));
        let groups = 1 + 2 * groups;
        rules.iter().all(|rule| rule.depends_on_ids_only() && !by_group(rule))
            && users <= MAX_USERS
            && groups <= MAX_GROUPS
            && users * groups <= MAX_CELLS
    }
}
