//! Rules that would not hold, because a directory is mounted through.

use std::sync::Arc;

use crate::error::PolicyError;
use crate::match_state::MatchState;
use crate::policy::Inner;
use crate::rule::{Action, Rule};

/// Nothing may be decided of a graft or below it, and nobody may be kept from seeing the way to it.
pub(super) fn check(policy: &Arc<Inner>) -> Result<(), PolicyError> {
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

fn match_state(policy: &Arc<Inner>, names: &[String]) -> MatchState {
    names.iter().fold(MatchState::root(policy.clone()), |place, name| place.enter(name.as_bytes()))
}

/// The directories that lead to it.
fn check_ancestors(policy: &Arc<Inner>, graft: &Rule, names: &[String]) -> Result<(), PolicyError> {
    for length in 0..names.len() {
        let class = match_state(policy, &names[..length]).class();
        let hiding = class.candidates().iter().map(|candidate| class.rule(candidate));
        if let Some(hiding) = hiding.into_iter().find(|rule| rule.action == Action::Hide) {
            let (line, name) = (hiding.line, &hiding.name);
            let (graft_path, way) = (path(names), path(&names[..length]));
            let message = format!(
                "{graft_path} cannot be grafted: {name} (line {line}) may hide {way}, which leads to it; write `allow`"
            );
            return Err(error(graft, message));
        }
    }
    Ok(())
}

/// Rules that come first.
fn check_earlier_rules(policy: &Arc<Inner>, index: usize, names: &[String]) -> Result<(), PolicyError> {
    let place = match_state(policy, names);
    let earlier = place.rules().filter(|rule| *rule < index).map(|rule| &policy.rules[rule]);
    match earlier.into_iter().find(|rule| !rule.is_silent()) {
        None => Ok(()),
        Some(Rule { line, name, action, .. }) => Err(error(
            &policy.rules[index],
            format!(
                "{} cannot be grafted: {name} (line {line}, {}) comes first and speaks of it or of what is below; \
                 put the graft before it, or write `allow`",
                path(names),
                action.name()
            ),
        )),
    }
}

/// Rules that come later, and speak of nothing else.
fn check_later_rules(policy: &Arc<Inner>, index: usize, names: &[String]) -> Result<(), PolicyError> {
    for rule in &policy.rules[index + 1..] {
        if let Some(pattern) = rule.patterns.iter().find(|pattern| pattern.fixed().starts_with(names)) {
            let (below, graft) = (path(&pattern.fixed()), path(names));
            let message = format!(
                "{} of {below} would never hold: {graft} is grafted (line {}), and nothing is decided below; put it \
                 before, and write `allow` instead of `graft`",
                rule.action.name(),
                policy.rules[index].line
            );
            return Err(error(rule, message));
        }
    }
    Ok(())
}
