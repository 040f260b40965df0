//! From a request to a decision.

use std::sync::Arc;

use rustix::fs::FileType;
use shunt_fuse::{Entry, Errno, Expiry, NodeId, Request};
use shunt_policy::{Content, Decision, Denial, MatchState, Op, Outcome, RuleSet};

use super::audit::Line;
use super::caller::Asker;
use super::content::Peeked;
use super::policy_inodes::{Seen, View};
use super::{PolicyFs, Rules};

/// A node that somebody wants to do something with.
pub(super) enum Target {
    /// No rule speaks of it.
    Free(NodeId),
    /// These rules do.
    Ruled(View),
}

/// A name in a directory, and where that is.
pub(super) struct Spot {
    /// The rules by which it was found.
    pub(super) rules: Arc<Rules>,
    /// What can still matter below.
    pub(super) place: MatchState,
    /// The rules that speak of it.
    pub(super) class: RuleSet,
    /// Its path, where rules want decisions told.
    pub(super) path: Option<Arc<[u8]>>,
}

/// The error of an outcome.
pub(super) fn refusal(outcome: &Outcome, op: Op) -> Result<(), Errno> {
    match outcome {
        Outcome::Allow | Outcome::Redact(_) => Ok(()),
        Outcome::ReadOnly => Err(Errno::ROFS),
        Outcome::Deny(Denial::Access) => Err(Errno::ACCESS),
        Outcome::Deny(Denial::NotPermitted) => Err(Errno::PERM),
        // Whether there is one already must not be told.
        Outcome::Hide if op == Op::Create => Err(Errno::ACCESS),
        Outcome::Hide => Err(Errno::NOENT),
    }
}

impl PolicyFs {
    /// How far the rules have come at a directory, and its path.
    fn place(&self, rules: &Rules, dir: NodeId) -> Result<(MatchState, Vec<u8>), Errno> {
        let root = rules.policy.root();
        if root.is_free() || dir == NodeId::ROOT {
            return Ok((root, b"/".to_vec()));
        }
        let path = self.mirror.lower.path(dir)?;
        Ok((rules.places.get(&rules.policy, &path), path))
    }

    /// A directory that is listed.
    pub(super) fn dir_spot(&self, dir: NodeId) -> Result<Spot, Errno> {
        let rules = self.rules();
        let (place, path) = self.place(&rules, dir)?;
        let class = place.class();
        Ok(Spot { rules, place, class, path: Some(path.into()) })
    }

    /// A name in a directory.
    ///
    /// # Errors
    /// EACCES where the directory finds names by several spellings and rules speak of some.
    pub(super) fn spot(&self, parent: NodeId, name: &[u8]) -> Result<Spot, Errno> {
        let rules = self.rules();
        let (place, path) = self.place(&rules, parent)?;
        self.check_spelling(&place, parent, &path, name)?;
        Ok(below(rules, &place, &path, name))
    }

    /// Two names, by the same rules.
    pub(super) fn spots(
        &self,
        (parent, name): (NodeId, &[u8]),
        (new_parent, new_name): (NodeId, &[u8]),
    ) -> Result<(Spot, Spot), Errno> {
        let rules = self.rules();
        let (from, from_path) = self.place(&rules, parent)?;
        let (to, to_path) = self.place(&rules, new_parent)?;
        self.check_spelling(&from, parent, &from_path, name)?;
        self.check_spelling(&to, new_parent, &to_path, new_name)?;
        Ok((below(rules.clone(), &from, &from_path, name), below(rules, &to, &to_path, new_name)))
    }

    /// What a node is, for something to be done with it.
    ///
    /// # Errors
    /// ESTALE where it has to be looked up again.
    pub(super) fn target(&self, node: NodeId) -> Result<Target, Errno> {
        match self.views.get(node)? {
            Seen::Free(inner) => Ok(Target::Free(inner)),
            Seen::View(view) => Ok(Target::Ruled(view)),
            Seen::Retired(_) => Err(Errno::STALE),
            Seen::Unknown(inner) if self.mirror.lower.kind(inner)? == FileType::Directory => {
                let Spot { class, path, .. } = self.dir_spot(inner)?;
                Ok(match class.is_free() {
                    true => Target::Free(inner),
                    false => Target::Ruled(View { inner, class, redaction: None, path }),
                })
            }
            Seen::Unknown(_) => Err(Errno::STALE),
        }
    }

    /// The engine's node, where nothing is decided: the file is open, or its attributes are asked for.
    pub(super) fn inner(&self, node: NodeId) -> Result<NodeId, Errno> {
        Ok(match self.views.get(node)? {
            Seen::Free(inner) | Seen::Unknown(inner) => inner,
            Seen::View(view) | Seen::Retired(view) => view.inner,
        })
    }

    /// Decides, and tells it where the rules want that.
    ///
    /// # Errors
    /// EIO where it has to be told and cannot be.
    pub(super) fn decide(
        &self,
        request: &Request<'_>,
        rules: &Rules,
        class: &RuleSet,
        path: Option<&[u8]>,
        op: Op,
        content: &impl Content,
    ) -> Result<Decision, Errno> {
        let decision = class.decide(op, &Asker::new(request, &self.programs), content);
        for rule in decision.audit.iter().filter_map(|rule| rules.policy.rules().get(*rule)) {
            self.audit.tell(&Line {
                rule: &rule.name,
                line: rule.line,
                op: op.name(),
                outcome: decision.outcome.name(),
                path: path.unwrap_or_default(),
                uid: request.uid(),
                gid: request.gid(),
                pid: request.pid(),
            })?;
        }
        Ok(decision)
    }

    /// Whether the caller may do something with a node. Tells the engine's.
    pub(super) fn check(&self, request: &Request<'_>, node: NodeId, op: Op) -> Result<NodeId, Errno> {
        match self.target(node)? {
            Target::Free(inner) => Ok(inner),
            Target::Ruled(View { inner, class, path, .. }) => {
                let content = Peeked::new(&self.mirror.lower, inner);
                let rules = self.rules();
                let decision = self.decide(request, &rules, &class, path.as_deref(), op, &content)?;
                refusal(&decision.outcome, op)?;
                Ok(inner)
            }
        }
    }

    /// Whether the caller may make a name.
    pub(super) fn check_create(&self, request: &Request<'_>, spot: &Spot) -> Result<(), Errno> {
        if spot.class.is_free() {
            return Ok(());
        }
        let decide = |op| -> Result<Outcome, Errno> {
            let path = spot.path.as_deref();
            let none = &shunt_policy::NoContent;
            Ok(self.decide(request, &spot.rules, &spot.class, path, op, none)?.outcome)
        };
        // What is hidden from the caller is not made by it either, there or not.
        if spot.class.hides() && decide(Op::Lookup)? == Outcome::Hide {
            return Err(Errno::ACCESS);
        }
        refusal(&decide(Op::Create)?, Op::Create)
    }

    /// Whether the caller may do something with what a name stands for.
    pub(super) fn check_name(
        &self,
        request: &Request<'_>,
        spot: &Spot,
        (parent, name): (NodeId, crate::lower::Component<'_>),
        op: Op,
    ) -> Result<(), Errno> {
        if spot.class.is_free() {
            return Ok(());
        }
        let found = self.mirror.lower.lookup(parent, name)?.id;
        let content = Peeked::new(&self.mirror.lower, found);
        let check = |op| {
            let path = spot.path.as_deref();
            refusal(&self.decide(request, &spot.rules, &spot.class, path, op, &content)?.outcome, op)
        };
        let checked = check(Op::Lookup).and_then(|()| check(op));
        self.mirror.lower.forget(found, 1);
        checked
    }

    /// An entry of the mirror as the caller is to see it. Takes over its lookup.
    ///
    /// # Errors
    /// ENOENT where it is hidden; ESTALE where the rules changed meanwhile.
    pub(super) fn shown(&self, request: &Request<'_>, spot: &Spot, entry: Entry) -> Result<Entry, Errno> {
        let shown = self.seen(request, spot, entry);
        if shown.is_err() && entry.node != NodeId(0) {
            self.mirror.lower.forget(entry.node, 1);
        }
        shown
    }

    fn seen(&self, request: &Request<'_>, spot: &Spot, mut entry: Entry) -> Result<Entry, Errno> {
        let (class, inner) = (&spot.class, entry.node);
        let constant = class.is_name_constant() || self.is_gated(class);
        entry.entry_expiry = if constant { self.bounded(entry.entry_expiry) } else { Expiry::NEVER_CACHED };
        if inner == NodeId(0) {
            return Ok(entry);
        }
        let content = Peeked::new(&self.mirror.lower, inner);
        let decide = |op| class.decide(op, &Asker::new(request, &self.programs), &content);
        if class.hides() && decide(Op::Lookup).outcome == Outcome::Hide {
            return Err(Errno::NOENT);
        }
        let kind = entry.attributes.file_type();
        if kind == shunt_fuse::FileType::Directory {
            self.note(inner, class)?;
            return Ok(entry);
        }
        let regular = kind == shunt_fuse::FileType::Regular;
        let redaction = match class.redacts() && regular {
            true => decide(Op::Read).unseen,
            false => None,
        };
        self.show(spot, entry, redaction)
    }

    /// As [`shown`](Self::shown), of a file just made: nothing of it is hidden from who made it.
    pub(super) fn made(&self, spot: &Spot, mut entry: Entry) -> Result<Entry, Errno> {
        let constant = spot.class.is_name_constant() || self.is_gated(&spot.class);
        entry.entry_expiry = if constant { self.bounded(entry.entry_expiry) } else { Expiry::NEVER_CACHED };
        if entry.attributes.file_type() == shunt_fuse::FileType::Directory {
            let noted =
                self.note(entry.node, &spot.class).inspect_err(|_| self.mirror.lower.forget(entry.node, 1));
            return noted.map(|()| entry);
        }
        self.show(spot, entry, None).inspect_err(|_| self.mirror.lower.forget(entry.node, 1))
    }

    fn show(
        &self,
        spot: &Spot,
        mut entry: Entry,
        redaction: Option<Arc<shunt_policy::Redaction>>,
    ) -> Result<Entry, Errno> {
        let inner = entry.node;
        let partial = redaction.is_some();
        let view = View { inner, class: spot.class.clone(), redaction, path: spot.path.clone() };
        let (node, beside) = self.views.show(spot.rules.generation, view)?;
        entry.node = node;
        if let Err(errno) = self.note(entry.node, &spot.class) {
            self.views.forget(entry.node, 1);
            return Err(errno);
        }
        if partial {
            entry.attributes_expiry = Expiry::NEVER_CACHED;
        } else if entry.node != inner {
            entry.attributes_expiry = self.of_view(inner, entry.attributes_expiry);
        }
        // What it believes of the others it believed while there was one.
        if let (Some(session), true) = (self.session.get(), beside) {
            for other in self.views.others(inner, entry.node) {
                session.caches().invalidate_node(other, None);
            }
        }
        Ok(entry)
    }

    /// How long attributes are believed that are told by another id than the engine's.
    pub(super) fn attributes_expiry(&self, node: NodeId, expiry: Expiry) -> Result<Expiry, Errno> {
        Ok(match self.views.get(node)? {
            Seen::Free(_) | Seen::Unknown(_) => expiry,
            Seen::View(view) | Seen::Retired(view) if view.redaction.is_some() => Expiry::NEVER_CACHED,
            Seen::View(view) | Seen::Retired(view) if view.inner == node => expiry,
            Seen::View(view) | Seen::Retired(view) => self.of_view(view.inner, expiry),
        })
    }
}

fn below(rules: Arc<Rules>, place: &MatchState, path: &[u8], name: &[u8]) -> Spot {
    let place = place.enter(name);
    let class = place.class();
    let path = class.audits().then(|| {
        let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
        [path, slash, name].concat().into()
    });
    Spot { rules, place, class, path }
}
