//! Parsed rules and their conditions.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::caller::Caller;
use crate::content::{Content, Media, Probe};
use crate::ids::{IdRange, Owner, contains};
use crate::pattern::Pattern;

/// An operation of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Find a name, or see it in a listing. Only `hide` applies to it.
    Lookup,
    /// Read data, extended attributes, or run a program.
    Read,
    /// Write data, change the size.
    Write,
    /// List a directory.
    List,
    /// Create a name: a file, a directory, a link, or the target of a rename.
    Create,
    /// Remove a name, or rename it.
    Delete,
    /// Change mode, owner, times, or extended attributes.
    Attributes,
}

impl Op {
    /// The operations that a rule may name, with their names.
    pub const KEYWORDS: [(&str, Self); 6] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("list", Self::List),
        ("create", Self::Create),
        ("delete", Self::Delete),
        ("attributes", Self::Attributes),
    ];

    /// Returns the name used in a policy.
    pub fn name(self) -> &'static str {
        Self::KEYWORDS.iter().find(|(_, op)| *op == self).map_or("lookup", |(name, _)| name)
    }

    /// Returns the operation with a name, including `lookup`.
    pub fn named(name: &str) -> Option<Self> {
        if name == "lookup" {
            return Some(Self::Lookup);
        }
        Self::KEYWORDS.iter().find(|(known, _)| *known == name).map(|(_, op)| *op)
    }

    /// Reports whether the operation changes something.
    pub fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Create | Self::Delete | Self::Attributes)
    }
}

/// A set of operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ops(u8);

impl Ops {
    pub(crate) fn add(&mut self, op: Op) {
        self.0 |= 1 << op as u8;
    }

    pub(crate) fn contains(self, op: Op) -> bool {
        self.0 & 1 << op as u8 != 0
    }
}

/// The errno of a `deny`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// EACCES
    Access,
    /// EPERM
    NotPermitted,
}

/// The parts of a file that readers do not see.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Redaction {
    /// Hides where a picture was taken.
    pub location: bool,
    /// Hides these byte ranges, which read as zeros.
    pub bytes: Vec<Range<u64>>,
    /// Applies only to files that match one of these probes, unless the list is empty.
    pub(crate) content: Vec<Probe>,
    /// The redaction of files that this one does not apply to.
    pub(crate) otherwise: Option<Arc<Redaction>>,
}

impl Redaction {
    /// Returns the file types that the redaction applies to; `None` means all.
    pub fn kinds(&self) -> Option<&'static [Media]> {
        (self.location && self.bytes.is_empty()).then_some(&[Media::Jpeg, Media::Png, Media::Heic])
    }

    /// Returns a redaction that applies this one to matching files, and `otherwise` to all others.
    pub(crate) fn or(self: Arc<Self>, otherwise: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { otherwise, ..Self::clone(&self) })
    }

    /// Evaluates whether the rule applies to the contents of the file.
    pub(crate) fn is_content(&self, content: &(impl Content + ?Sized)) -> Truth {
        let matches = any_holds(&self.content, content);
        let Some(kinds) = self.kinds() else { return matches };
        let known = |truth, media: &Media| or(truth, || Probe::Is(*media).matches(content));
        and(matches, || kinds.iter().fold(Some(false), known))
    }
}

/// Reports whether the file matches one of the probes; true if there are none.
fn any_holds(probes: &[Probe], content: &(impl Content + ?Sized)) -> Truth {
    probes.iter().fold(Some(probes.is_empty()), |truth, probe| or(truth, || probe.matches(content)))
}

/// The effect of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The operation works as without a policy.
    Allow,
    /// The name does not exist.
    Hide,
    /// The operation fails. The name is visible.
    Deny(Denial),
    /// Changes fail with EROFS.
    ReadOnly,
    /// Reads see the file with parts blanked; writes fail with EACCES.
    Redact(Arc<Redaction>),
    /// The decision is audited, and the next rule decides.
    Audit,
    /// The effect of [`Allow`](Self::Allow) on a directory and everything below it, which may be bind-mounted.
    Graft,
}

impl Action {
    /// Returns the word used in a policy.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Hide => "hide",
            Self::Deny(_) => "deny",
            Self::ReadOnly => "read-only",
            Self::Redact(_) => "redact",
            Self::Audit => "audit",
            Self::Graft => "graft",
        }
    }
}

/// Conditions on the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallerSet {
    pub(crate) uids: Vec<IdRange>,
    pub(crate) gids: Vec<IdRange>,
    pub(crate) groups: Vec<IdRange>,
    pub(crate) programs: Vec<PathBuf>,
}

/// Three-valued truth: `None` is unknown.
pub(crate) type Truth = Option<bool>;

pub(crate) fn and(a: Truth, b: impl FnOnce() -> Truth) -> Truth {
    match a {
        Some(false) => Some(false),
        Some(true) => b(),
        None => {
            if b() == Some(false) {
                Some(false)
            } else {
                None
            }
        }
    }
}

pub(crate) fn or(a: Truth, b: impl FnOnce() -> Truth) -> Truth {
    and(a.map(|a| !a), || b().map(|b| !b)).map(|neither| !neither)
}

impl CallerSet {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Evaluates each condition that is present.
    fn answers<'a>(
        &'a self,
        caller: &'a (impl Caller + ?Sized),
    ) -> impl Iterator<Item = (&'static str, Truth)> {
        let uid = (!self.uids.is_empty()).then(|| ("uid", Some(contains(&self.uids, caller.uid()))));
        let gid = (!self.gids.is_empty()).then(|| ("gid", Some(contains(&self.gids, caller.gid()))));
        let group = (!self.groups.is_empty()).then(|| ("group", is_member(&self.groups, caller)));
        let exe = (!self.programs.is_empty()).then(|| {
            let runs = |truth, program: &PathBuf| or(truth, || caller.runs(program));
            ("exe", self.programs.iter().fold(Some(false), runs))
        });
        [uid, gid, group, exe].into_iter().flatten()
    }

    /// Evaluates whether all conditions hold; if not, returns the one that does not.
    pub(crate) fn all(&self, caller: &(impl Caller + ?Sized)) -> (Truth, &'static str) {
        let mut unknown = (Some(true), "");
        for (what, truth) in self.answers(caller) {
            match truth {
                Some(true) => {}
                Some(false) => return (Some(false), what),
                None => unknown = (None, what),
            }
        }
        unknown
    }

    /// Evaluates whether any condition holds, and returns it.
    pub(crate) fn any(&self, caller: &(impl Caller + ?Sized)) -> (Truth, &'static str) {
        let mut unknown = (Some(false), "");
        for (what, truth) in self.answers(caller) {
            match truth {
                Some(false) => {}
                Some(true) => return (Some(true), what),
                None => unknown = (None, what),
            }
        }
        unknown
    }
}

fn is_member(groups: &[IdRange], caller: &(impl Caller + ?Sized)) -> Truth {
    if contains(groups, caller.gid()) {
        return Some(true);
    }
    Some(caller.groups()?.into_iter().any(|group| contains(groups, group)))
}

impl Owner {
    pub(crate) fn is(&self, caller: &(impl Caller + ?Sized)) -> Truth {
        match self {
            Self::Uid(uid) => Some(*uid == caller.uid()),
            Self::Gid(gid) => is_member(&[(*gid, *gid)], caller),
            Self::Uids(ranges) => Some(contains(ranges, caller.uid())),
        }
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name in messages.
    pub name: String,
    /// Line of the file on which it begins.
    pub line: usize,
    /// Its effect.
    pub action: Action,
    /// Each of its decisions is audited.
    pub audit: bool,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) ops: Option<Ops>,
    pub(crate) who: CallerSet,
    pub(crate) except: CallerSet,
    pub(crate) content: Vec<Probe>,
}

impl Rule {
    /// Reports whether the rule has no effect: it only allows, and is not audited.
    pub(crate) fn is_silent(&self) -> bool {
        !self.audit && matches!(self.action, Action::Allow | Action::Graft)
    }

    /// Reports whether the rule applies to an operation.
    pub(crate) fn applies_to(&self, op: Op) -> bool {
        self.ops.is_none_or(|ops| ops.contains(op))
    }

    /// Reports whether the rule has conditions on the caller, apart from variables in its path.
    pub(crate) fn depends_on_caller(&self) -> bool {
        !self.who.is_empty() || !self.except.is_empty()
    }

    /// Reports whether the rule depends on the contents of the file.
    pub(crate) fn depends_on_content(&self) -> bool {
        !self.content.is_empty()
            || matches!(&self.action, Action::Redact(redaction) if redaction.kinds().is_some())
    }

    /// Evaluates whether the rule applies to the contents of the file.
    pub(crate) fn is_content(&self, content: &(impl Content + ?Sized)) -> Truth {
        match &self.action {
            Action::Redact(redaction) => redaction.is_content(content),
            _ => any_holds(&self.content, content),
        }
    }
}
