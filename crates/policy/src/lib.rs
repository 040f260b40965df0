//! Access policies for a directory tree: rules decide which caller may see and do what.
//!
//! A policy is a list of rules in a TOML file. It is parsed once ([`Policy::parse`]); errors are reported with line and
//! column. A user of this library walks down from [`Policy::root`] by names. Each [`MatchState`] knows which rules can
//! still match below it, so that nothing is decided in trees that no rule matches. The rules that match one path are
//! its [`RuleSet`], which decides what a caller may do there. It also reports whether that depends on the caller or on
//! the contents of the file: a result that does not may be cached for all callers.
//!
//! [`redact`] finds the metadata that reveals where a picture was taken.
//!
//! ```
//! use shunt_policy::{Names, NoContent, Op, Outcome, Policy, KnownCaller};
//!
//! let policy = Policy::parse(
//!     r#"
//!     [[rule]]
//!     path = "/home/{uid}/**"
//!     action = "allow"
//!
//!     [[rule]]
//!     path = "/home/*/**"
//!     action = "hide"
//!     "#,
//!     &Names::default(),
//! )?;
//! let class = policy.match_path(b"/home/1000").class();
//! let seen_by = |uid| class.decide(Op::Lookup, &KnownCaller::new(uid, uid), &NoContent).outcome;
//! assert_eq!(seen_by(1000), Outcome::Allow);
//! assert_eq!(seen_by(1001), Outcome::Hide);
//! assert!(policy.match_path(b"/srv").is_free());
//! # Ok::<(), shunt_policy::PolicyError>(())
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]
// In three-valued logic the operands after an unknown one still matter, so a fold must not stop early.
#![allow(clippy::manual_try_fold)]

mod caller;
mod child_rules;
mod compiled;
mod content;
mod decide;
mod error;
mod explain;
mod file;
mod glob;
mod ids;
mod match_state;
mod pattern;
mod policy;
pub mod redact;
mod rule;
mod rule_set;
mod serialize;
mod table;

pub use caller::{Caller, KnownCaller};
pub use child_rules::ChildRules;
pub use content::{Content, Media, NoContent, Probe};
pub use decide::{Decision, Outcome};
pub use error::PolicyError;
pub use explain::Explanation;
pub use ids::Names;
pub use match_state::MatchState;
pub use policy::Policy;
pub use rule::{Action, Denial, Op, Redaction, Rule};
pub use rule_set::RuleSet;
pub use table::{Cell, MAX_CELLS, MAX_GROUPS, MAX_USERS, Table};

/// The examples of the README, compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
