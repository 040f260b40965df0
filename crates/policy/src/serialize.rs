//! Serialisation of rule sets and redactions, for a process that takes over from this one.

use crate::policy::Policy;
use crate::rule::Redaction;
use crate::rule_set::{Candidate, RuleSet};

impl RuleSet {
    /// Serialises the rule set for [`Policy::class`] of a policy parsed from the same text and names.
    pub fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self.candidates()).unwrap_or_default()
    }
}

impl Policy {
    /// Restores a [saved](RuleSet::save) rule set; `None` if it does not fit this policy.
    pub fn class(&self, saved: &[u8]) -> Option<RuleSet> {
        let candidates: Vec<Candidate> = serde_json::from_slice(saved).ok()?;
        let fits = candidates.iter().all(|candidate| candidate.rule < self.0.rules.len());
        fits.then(|| RuleSet::new(self.0.clone(), candidates))
    }
}

impl Redaction {
    /// Serialises the redaction for [`restore`](Self::restore).
    pub fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Restores a [saved](Self::save) redaction; `None` if it is invalid.
    pub fn restore(saved: &[u8]) -> Option<Self> {
        let redaction: Self = serde_json::from_slice(saved).ok()?;
        redaction.is_in_order().then_some(redaction)
    }

    fn is_in_order(&self) -> bool {
        let ranges = self.bytes.iter().all(|range| range.start <= range.end);
        ranges && self.otherwise.as_ref().is_none_or(|otherwise| otherwise.is_in_order())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KnownCaller, Names, NoContent, Op};

    const RULES: &str = r#"
[ids.team]
red = [5, "6-9"]

[[rule]]
path = "/by/{team}/**"
action = "allow"

[[rule]]
path = ["/by/**", "*.jpg"]
uid = 3
action = "redact"

[[rule]]
path = "*.jpg"
action = "redact"
bytes = [[10, 20]]
content = ["image/jpeg"]
"#;

    #[test]
    fn saved_rule_set_is_restored_unchanged() {
        let policy = Policy::parse(RULES, &Names::default()).unwrap();
        for path in ["/", "/by/red/x", "/by/blue/x.jpg", "/a/b.jpg"] {
            let class = policy.match_path(path.as_bytes()).class();
            assert_eq!(policy.class(&class.save()), Some(class.clone()), "{path}");
            let redaction = class.decide(Op::Read, &KnownCaller::new(3, 3), &NoContent).redaction;
            if let Some(redaction) = redaction {
                assert_eq!(Redaction::restore(&redaction.save()).as_ref(), Some(&*redaction));
            }
        }
    }

    #[test]
    fn malformed_text_restores_nothing() {
        let policy = Policy::parse(RULES, &Names::default()).unwrap();
        for saved in ["", "[", "[{\"rule\":3,\"owners\":null}]", "{}"] {
            assert_eq!(policy.class(saved.as_bytes()), None, "{saved}");
        }
        let backwards = r#"{"location":false,"bytes":[{"start":2,"end":1}],"content":[],"otherwise":null}"#;
        assert_eq!(Redaction::restore(backwards.as_bytes()), None);
        assert_eq!(Redaction::restore(&Redaction::default().save()), Some(Redaction::default()));
    }
}
