//! Consistency check between grafts and other rules, which would have no effect on a bind mount.

use std::sync::Arc;

use crate::compiled::CompiledPolicy;
use crate::error::PolicyError;
use crate::match_state::MatchState;
use crate::rule::{Action, Rule};

/// Checks that no rule decides anything on a graft or below it, or hides the path to it.
pub(super) fn check(policy: &Arc<CompiledPolicy>) -> Result<(), PolicyError> {
    let is_graft = |(_, rule): &(usize, &Rule)| rule.action == Action::Graft;
    for (index, graft) in policy.rules.iter().enumerate().filter(is_graft) {
        for names in graft.patterns.iter().filter_map(|pattern| pattern.tree()) {
            check_ancestors(policy, graft, &names)?;
            check_earlier_rules(policy, index, &names)?;
            check_later_rules(policy, index, &names)?;
        }
    }
    Ok(())
}

fn error(rule: &Rule, message: String) -> PolicyError {
    PolicyError { line: rule.line, column: 1, message }
}

fn path(names: &[String]) -> String {
    format!("/{}", names.join("/"))
}

fn match_state(policy: &Arc<CompiledPolicy>, names: &[String]) -> MatchState {
    names.iter().fold(MatchState::root(policy.clone()), |state, name| state.enter(name.as_bytes()))
}

/// Checks the directories that lead to a graft.
fn check_ancestors(policy: &Arc<CompiledPolicy>, graft: &Rule, names: &[String]) -> Result<(), PolicyError> {
    for length in 0..names.len() {
        let class = match_state(policy, &names[..length]).class();
        let hiding = class.candidates().iter().map(|candidate| class.rule(candidate));
        if let Some(hiding) = hiding.into_iter().find(|rule| rule.action == Action::Hide) {
            let (line, name) = (hiding.line, &hiding.name);
            let (graft_path, ancestor) = (path(names), path(&names[..length]));
            let message = format!(
                "cannot graft {graft_path}: {name} (line {line}) may hide its ancestor {ancestor}; use `allow` instead"
            );
            return Err(error(graft, message));
        }
    }
    Ok(())
}

/// Checks the rules before a graft.
fn check_earlier_rules(
    policy: &Arc<CompiledPolicy>,
    index: usize,
    names: &[String],
) -> Result<(), PolicyError> {
    let state = match_state(policy, names);
    let earlier = state.rules().filter(|rule| *rule < index).map(|rule| &policy.rules[rule]);
    match earlier.into_iter().find(|rule| !rule.is_silent()) {
        None => Ok(()),
        Some(Rule { line, name, action, .. }) => Err(error(
            &policy.rules[index],
            format!(
                "cannot graft {}: {name} (line {line}, {}) comes first and applies to it or to names below it; \
                 move the graft before it, or use `allow` instead",
                path(names),
                action.name()
            ),
        )),
    }
}

/// Checks the rules after a graft that match nothing outside it.
fn check_later_rules(
    policy: &Arc<CompiledPolicy>,
    index: usize,
    names: &[String],
) -> Result<(), PolicyError> {
    for rule in &policy.rules[index + 1..] {
        if let Some(pattern) = rule.patterns.iter().find(|pattern| pattern.fixed().starts_with(names)) {
            let (below, graft) = (path(&pattern.fixed()), path(names));
            let message = format!(
                "{} of {below} would never apply: {graft} is grafted (line {}), and no rule applies below a graft; \
                 move the rule before it, and use `allow` instead of `graft`",
                rule.action.name(),
                policy.rules[index].line
            );
            return Err(error(rule, message));
        }
    }
    Ok(())
}
