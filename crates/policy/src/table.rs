//! Decision tables: the decisions of a rule set by user and group alone, for enforcement in the kernel.

use crate::caller::KnownCaller;
use crate::content::NoContent;
use crate::decide::Outcome;
use crate::ids::{IdRange, Owner};
use crate::rule::{Denial, Op, Rule};
use crate::rule_set::{Candidate, RuleSet};

/// Limit on the user ranges of a table.
pub const MAX_USERS: usize = 64;
/// Limit on the group ranges of a table.
pub const MAX_GROUPS: usize = 8;
/// Limit on the pairs of a user range and a group range.
pub const MAX_CELLS: usize = 128;

/// The decisions for one pair of ranges: an errno for each [`Op`], in their order, 0 if it is allowed. The last byte is
/// unused.
pub type Cell = [u8; 8];

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
    fn depends_on_ids_only(&self) -> bool {
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

impl RuleSet {
    /// Returns the decisions of this rule set, if they depend on user and group alone and fit into a table.
    pub fn table(&self) -> Option<Table> {
        let rules = || self.candidates().iter().map(|candidate| self.rule(candidate));
        if !rules().all(Rule::depends_on_ids_only) {
            return None;
        }
        let mut owners = Vec::new();
        for owner in self.candidates().iter().filter_map(|Candidate { owners, .. }| owners.as_ref()).flatten()
        {
            match owner {
                Owner::Uid(uid) => owners.push((*uid, *uid)),
                Owner::Uids(ranges) => owners.extend(ranges),
                Owner::Gid(_) => return None,
            }
        }
        let users = rules().flat_map(|rule| rule.who.uids.iter().chain(&rule.except.uids));
        let users = bounds(users.chain(&owners));
        let groups = bounds(rules().flat_map(|rule| rule.who.gids.iter().chain(&rule.except.gids)));
        let fits =
            users.len() <= MAX_USERS && groups.len() <= MAX_GROUPS && users.len() * groups.len() <= MAX_CELLS;
        if !fits {
            return None;
        }
        // The decision is constant within a range, so the first id stands for all.
        let each = users.iter().flat_map(|uid| groups.iter().map(|gid| self.cell(*uid, *gid)));
        Some(Table { cells: each.collect(), users, groups })
    }

    fn cell(&self, uid: u32, gid: u32) -> Cell {
        let caller = KnownCaller::new(uid, gid);
        let mut cell = Cell::default();
        for op in OPS {
            cell[op as usize] = match self.decide(op, &caller, &NoContent).outcome {
                Outcome::Allow | Outcome::Redact(_) => 0,
                Outcome::ReadOnly => 30,
                Outcome::Deny(Denial::Access) => 13,
                Outcome::Deny(Denial::NotPermitted) => 1,
                Outcome::Hide => 2,
            };
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
