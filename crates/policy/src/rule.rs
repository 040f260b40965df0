//! Rules as they are once they are read.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::caller::Caller;
use crate::content::{Content, Media, Probe};
use crate::ids::{IdRange, Owner, contains};
use crate::pattern::Pattern;

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Find a name, or see it listed. Only `hide` speaks of it.
    Lookup,
    /// Read data, extended attributes, or run a program.
    Read,
    /// Write data, change the size.
    Write,
    /// List a directory.
    List,
    /// Make a name: a file, a directory, a link, or the new name of something renamed.
    Create,
    /// Remove a name, or take it away by renaming.
    Delete,
    /// Change mode, owner, times, or extended attributes.
    Attributes,
}

impl Op {
    /// Those that a rule may name, and how.
    pub const KEYWORDS: [(&str, Self); 6] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("list", Self::List),
        ("create", Self::Create),
        ("delete", Self::Delete),
        ("attributes", Self::Attributes),
    ];

    /// The name in a policy.
    pub fn name(self) -> &'static str {
        Self::KEYWORDS.iter().find(|(_, op)| *op == self).map_or("lookup", |(name, _)| name)
    }

    /// The operation of a name; `lookup` too.
    pub fn named(name: &str) -> Option<Self> {
        if name == "lookup" {
            return Some(Self::Lookup);
        }
        Self::KEYWORDS.iter().find(|(known, _)| *known == name).map(|(_, op)| *op)
    }

    /// Whether it changes something.
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

/// The error of a `deny`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// EACCES
    Access,
    /// EPERM
    NotPermitted,
}

/// What readers do not see of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Redaction {
    /// Where a picture was taken.
    pub location: bool,
    /// These bytes, which read as zeros.
    pub bytes: Vec<Range<u64>>,
    /// Only of files that hold one of these, if any is named.
    pub(crate) content: Vec<Probe>,
    /// What is not seen of files that hold nothing of that.
    pub(crate) otherwise: Option<Arc<Redaction>>,
}

impl Redaction {
    /// The kinds of files that it speaks of, if not of all.
    pub fn kinds(&self) -> Option<&'static [Media]> {
        (self.location && self.bytes.is_empty()).then_some(&[Media::Jpeg, Media::Png, Media::Heic])
    }

    /// The same as long as the file is one that it speaks of, and another while it is not.
    pub(crate) fn or(self: Arc<Self>, otherwise: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { otherwise, ..Self::clone(&self) })
    }

    /// Whether the file is one that it speaks of.
    pub(crate) fn is_content(&self, content: &(impl Content + ?Sized)) -> Truth {
        let wanted = any_holds(&self.content, content);
        let Some(kinds) = self.kinds() else { return wanted };
        let known = |truth, media: &Media| or(truth, || Probe::Is(*media).matches(content));
        and(wanted, || kinds.iter().fold(Some(false), known))
    }
}

/// Whether the file holds one of these; anything, where none is named.
fn any_holds(probes: &[Probe], content: &(impl Content + ?Sized)) -> Truth {
    probes.iter().fold(Some(probes.is_empty()), |truth, probe| or(truth, || probe.matches(content)))
}

/// What a rule does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// As if there was no policy.
    Allow,
    /// There is no such name.
    Hide,
    /// It fails. The name is seen.
    Deny(Denial),
    /// Changes fail with EROFS.
    ReadOnly,
    /// Reads see parts blanked; writes fail with EACCES.
    Redact(Arc<Redaction>),
    /// It is told, and the next rule decides.
    Audit,
    /// As [`Allow`](Self::Allow), for a directory and all below it, which may be mounted through.
    Graft,
}

impl Action {
    /// The word in a policy.
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

/// Callers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallerSet {
    pub(crate) uids: Vec<IdRange>,
    pub(crate) gids: Vec<IdRange>,
    pub(crate) groups: Vec<IdRange>,
    pub(crate) programs: Vec<PathBuf>,
}

/// Yes, no, or not known.
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

    /// What it says of each thing it speaks of.
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

    /// All of what it says holds; else what does not.
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

    /// Any of what it says holds, and what.
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
    /// How it is called in messages.
    pub name: String,
    /// Where it begins in the file.
    pub line: usize,
    /// What it does.
    pub action: Action,
    /// Each decision by it is told.
    pub audit: bool,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) ops: Option<Ops>,
    pub(crate) who: CallerSet,
    pub(crate) except: CallerSet,
    pub(crate) content: Vec<Probe>,
}

impl Rule {
    /// It leaves everything as it would be without it, and tells nobody.
    pub(crate) fn is_silent(&self) -> bool {
        !self.audit && matches!(self.action, Action::Allow | Action::Graft)
    }

    /// Whether it speaks of an operation.
    pub(crate) fn speaks_of(&self, op: Op) -> bool {
        self.ops.is_none_or(|ops| ops.contains(op))
    }

    /// It may hold for one caller and not for another, the path aside.
    pub(crate) fn asks_who(&self) -> bool {
        !self.who.is_empty() || !self.except.is_empty()
    }

    /// It may hold for one file and not for another.
    pub(crate) fn asks_what(&self) -> bool {
        !self.content.is_empty()
            || matches!(&self.action, Action::Redact(redaction) if redaction.kinds().is_some())
    }

    /// Whether the file is one that it speaks of.
    pub(crate) fn is_content(&self, content: &(impl Content + ?Sized)) -> Truth {
        match &self.action {
            Action::Redact(redaction) => redaction.is_content(content),
            _ => any_holds(&self.content, content),
        }
    }
}
