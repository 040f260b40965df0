//! Who may see and do what below a directory.
//!
//! A policy is a list of rules in a file of TOML. It is parsed once ([`Policy::parse`]); what is wrong with it is said
//! with line and column. A caller of this library walks down from [`Policy::root`] by names; each [`MatchState`] knows which
//! rules can still matter below it, so that where none can, nothing is ever decided. The rules that speak of one path
//! are its [`RuleSet`], which answers what a caller may do there, and whether that depends on the caller or on what is in
//! the file: what does not may be cached for all.
//!
//! [`redact`] finds what tells the place where a picture was taken.
//!
//! ```
//! use shunt_policy::{Names, NoContent, Op, Outcome, Policy, Somebody};
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
//! let class = policy.place(b"/home/1000").class();
//! let seen_by = |uid| class.decide(Op::Lookup, &Somebody::new(uid, uid), &NoContent).outcome;
//! assert_eq!(seen_by(1000), Outcome::Allow);
//! assert_eq!(seen_by(1001), Outcome::Hide);
//! assert!(policy.place(b"/srv").is_free());
//! # Ok::<(), shunt_policy::PolicyError>(())
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]
// Not known is an answer here, after which the others still count: a fold that ended with it would be wrong.
#![allow(clippy::manual_try_fold)]

mod caller;
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
