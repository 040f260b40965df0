//! Explanations of decisions, rule by rule.

use std::fmt;

use crate::caller::Caller;
use crate::content::Content;
use crate::decide::{Decision, Outcome};
use crate::match_state::MatchState;
use crate::policy::Policy;
use crate::rule::{Action, Op, Rule};
use crate::rule_set::RuleSet;

/// A decision, with the result of each rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The decision.
    pub decision: Decision,
    /// One line per rule, up to the one that decided.
    pub rules: Vec<String>,
    /// The name that was not found, if a directory on the path is hidden.
    pub hidden_above: Option<String>,
}

impl Policy {
    /// Decides an operation at a path and explains the decision. Directories on the path count: everything below a
    /// hidden one is hidden.
    pub fn explain(
        &self,
        path: &[u8],
        op: Op,
        caller: &impl Caller,
        content: &(impl Content + ?Sized),
    ) -> Explanation {
        let mut state = self.root();
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        let mut above = String::new();
        while let Some(name) = names.next() {
            state = state.enter(name);
            above.push('/');
            above.push_str(&String::from_utf8_lossy(name));
            let class = state.class();
            let seen = class.decide(Op::Lookup, caller, &crate::NoContent);
            if names.peek().is_some() && seen.outcome == Outcome::Hide {
                let rules = self.lines((&state, &class), Op::Lookup, caller, &crate::NoContent);
                return Explanation { decision: seen, rules, hidden_above: Some(above) };
            }
        }
        let class = state.class();
        Explanation {
            decision: class.decide(op, caller, content),
            rules: self.lines((&state, &class), op, caller, content),
            hidden_above: None,
        }
    }

    fn lines(
        &self,
        (state, class): (&MatchState, &RuleSet),
        op: Op,
        caller: &impl Caller,
        content: &(impl Content + ?Sized),
    ) -> Vec<String> {
        let decided = class.decide(op, caller, content).rule;
        let mut lines = Vec::new();
        for (index, rule) in self.rules().iter().enumerate() {
            let candidate = class.candidates().iter().find(|candidate| candidate.rule == index);
            let what = match candidate {
                // Either the path of the rule does not match, or an earlier rule always decides.
                None if decided.is_some_and(|decided| index > decided) => break,
                None if rule.action == Action::Allow => {
                    "not relevant: the path does not match, or no later rule would decide otherwise"
                        .to_owned()
                }
                None if rule.action == Action::Graft && state.is_of(index) => {
                    "grafted: no rule applies here".to_owned()
                }
                None => "the path does not match".to_owned(),
                Some(_) if !rule.applies_to(op) => format!("does not apply to {}", op.name()),
                Some(candidate) => {
                    let (caller, why) = candidate.is_caller(class, caller);
                    let content =
                        if rule.depends_on_content() { rule.is_content(content) } else { Some(true) };
                    match (caller, content) {
                        (Some(false), _) => format!("the caller does not match: {}", reason(why)),
                        (_, Some(false)) => "the content of the file does not match".to_owned(),
                        (None, _) => format!("may match: {} of the caller is unknown", why),
                        (_, None) => "may match: the file cannot be read".to_owned(),
                        _ => format!("matches: {}", rule.action.name()),
                    }
                }
            };
            lines.push(format!("{}: {what}", title(rule)));
            if decided == Some(index) {
                break;
            }
        }
        lines
    }
}

fn reason(why: &str) -> String {
    match why {
        "uid" | "gid" | "group" | "exe" => format!("{why} differs"),
        other => other.to_owned(),
    }
}

fn title(rule: &Rule) -> String {
    format!("line {}, {}", rule.line, rule.name)
}

impl Explanation {
    /// Formats the explanation as text of several lines. `policy` must be the one that decided.
    pub fn show<'a>(&'a self, policy: &'a Policy) -> impl fmt::Display + 'a {
        Report { explanation: self, policy }
    }
}

/// An explanation that can name the rules.
struct Report<'a> {
    explanation: &'a Explanation,
    policy: &'a Policy,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { decision, rules, hidden_above } = self.explanation;
        write!(f, "{}", decision.outcome.name())?;
        match decision.rule.and_then(|rule| self.policy.rules().get(rule)) {
            Some(rule) => write!(f, ", by {}", title(rule))?,
            None => write!(f, ", by default: no rule decides")?,
        }
        if decision.is_uncertain {
            write!(f, ", the strictest possible outcome")?;
        }
        if let Some(above) = hidden_above {
            write!(f, ", because {above} is hidden")?;
        }
        for rule in &decision.audit {
            write!(f, "\n  audited, by {}", title(&self.policy.rules()[*rule]))?;
        }
        rules.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
