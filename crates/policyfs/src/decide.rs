//! Policy decisions: maps a node or name of a request to its rules and decides.

use std::sync::Arc;

use rustix::fs::FileType;
use shunt_fuse::{Entry, Errno, Expiry, NodeId, Request};
use shunt_mirror::lower::Component;
use shunt_policy::{Content, Decision, Denial, MatchState, Op, Outcome, RuleSet};

use crate::audit::Line;
use crate::caller::RequestCaller;
use crate::content::LazyContent;
use crate::policy_inodes::{ResolvedNode, View};
use crate::{PolicyFs, Rules};

/// The target node of an operation.
pub(crate) enum Target {
    /// No rule matches the node.
    Free(NodeId),
    /// These rules match the node.
    Ruled(View),
}

/// A name in a directory, with its match state.
pub(crate) struct ResolvedName {
    /// The policy under which it was resolved.
    pub(crate) rules: Arc<Rules>,
    /// The rules that can still match below it.
    pub(crate) state: MatchState,
    /// The rules that match it.
    pub(crate) class: RuleSet,
    /// Its path, if rules require an audit.
    pub(crate) path: Option<Arc<[u8]>>,
}

/// Maps the outcome of a decision to an errno.
pub(crate) fn check_outcome(outcome: &Outcome, op: Op) -> Result<(), Errno> {
    match outcome {
        Outcome::Allow | Outcome::Redact(_) => Ok(()),
        Outcome::ReadOnly => Err(Errno::ROFS),
        Outcome::Deny(Denial::Access) => Err(Errno::ACCESS),
        Outcome::Deny(Denial::NotPermitted) => Err(Errno::PERM),
        // The error must not reveal whether the name exists.
        Outcome::Hide if op == Op::Create => Err(Errno::ACCESS),
        Outcome::Hide => Err(Errno::NOENT),
    }
}

impl PolicyFs {
    /// Returns the match state of a directory and its path.
    fn match_state(&self, rules: &Rules, dir: NodeId) -> Result<(MatchState, Vec<u8>), Errno> {
        let root = rules.policy.root();
        if root.is_free() || dir == NodeId::ROOT {
            return Ok((root, b"/".to_vec()));
        }
        let path = self.mirror.engine().path(dir)?;
        Ok((rules.match_states.get(&rules.policy, &path), path))
    }

    /// Resolves a directory that is listed.
    pub(crate) fn resolve_dir(&self, dir: NodeId) -> Result<ResolvedName, Errno> {
        let rules = self.rules();
        let (state, path) = self.match_state(&rules, dir)?;
        let class = state.class();
        Ok(ResolvedName { rules, state, class, path: Some(path.into()) })
    }

    /// Resolves a name in a directory.
    ///
    /// # Errors
    /// EACCES if the directory finds names by several spellings and rules apply there.
    pub(crate) fn resolve_name(&self, parent: NodeId, name: &[u8]) -> Result<ResolvedName, Errno> {
        let rules = self.rules();
        let (state, path) = self.match_state(&rules, parent)?;
        self.check_spelling(&state, parent, &path, name)?;
        Ok(below(rules, &state, &path, name))
    }

    /// Resolves two names under the same policy.
    pub(crate) fn resolve_names(
        &self,
        (parent, name): (NodeId, &[u8]),
        (new_parent, new_name): (NodeId, &[u8]),
    ) -> Result<(ResolvedName, ResolvedName), Errno> {
        let rules = self.rules();
        let (from, from_path) = self.match_state(&rules, parent)?;
        let (to, to_path) = self.match_state(&rules, new_parent)?;
        self.check_spelling(&from, parent, &from_path, name)?;
        self.check_spelling(&to, new_parent, &to_path, new_name)?;
        Ok((below(rules.clone(), &from, &from_path, name), below(rules, &to, &to_path, new_name)))
    }

    /// Resolves a node for an operation.
    ///
    /// # Errors
    /// ESTALE if the kernel must look it up again.
    pub(crate) fn target(&self, node: NodeId) -> Result<Target, Errno> {
        match self.views.get(node)? {
            ResolvedNode::Free(inner) => Ok(Target::Free(inner)),
            ResolvedNode::View(view) => Ok(Target::Ruled(view)),
            ResolvedNode::Retired(_) => Err(Errno::STALE),
            ResolvedNode::Unknown(inner) if self.mirror.engine().kind(inner)? == FileType::Directory => {
                let ResolvedName { class, path, .. } = self.resolve_dir(inner)?;
                Ok(match class.is_free() {
                    true => Target::Free(inner),
                    false => Target::Ruled(View { inner, class, redaction: None, path }),
                })
            }
            ResolvedNode::Unknown(_) => Err(Errno::STALE),
        }
    }

    /// Returns the engine's node for operations without a decision: the file is open, or its attributes are read.
    pub(crate) fn inner(&self, node: NodeId) -> Result<NodeId, Errno> {
        Ok(match self.views.get(node)? {
            ResolvedNode::Free(inner) | ResolvedNode::Unknown(inner) => inner,
            ResolvedNode::View(view) | ResolvedNode::Retired(view) => view.inner,
        })
    }

    /// Decides an operation and audits the decision if the rules require it.
    ///
    /// # Errors
    /// EIO if the audit is required and cannot be written.
    pub(crate) fn decide(
        &self,
        request: &Request<'_>,
        rules: &Rules,
        class: &RuleSet,
        path: Option<&[u8]>,
        op: Op,
        content: &impl Content,
    ) -> Result<Decision, Errno> {
        let decision = class.decide(op, &RequestCaller::new(request, &self.programs), content);
        for rule in decision.audit.iter().filter_map(|rule| rules.policy.rules().get(*rule)) {
            self.audit.record(&Line {
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

    /// Checks an operation of the caller on a node; returns the engine's node.
    pub(crate) fn check(&self, request: &Request<'_>, node: NodeId, op: Op) -> Result<NodeId, Errno> {
        match self.target(node)? {
            Target::Free(inner) => Ok(inner),
            Target::Ruled(View { inner, class, path, .. }) => {
                let content = LazyContent::new(self.mirror.engine(), inner);
                let rules = self.rules();
                let decision = self.decide(request, &rules, &class, path.as_deref(), op, &content)?;
                check_outcome(&decision.outcome, op)?;
                Ok(inner)
            }
        }
    }

    /// Checks whether the caller may create a name.
    pub(crate) fn check_create(&self, request: &Request<'_>, resolved: &ResolvedName) -> Result<(), Errno> {
        if resolved.class.is_free() {
            return Ok(());
        }
        let decide = |op| -> Result<Outcome, Errno> {
            let path = resolved.path.as_deref();
            let none = &shunt_policy::NoContent;
            Ok(self.decide(request, &resolved.rules, &resolved.class, path, op, none)?.outcome)
        };
        // A name hidden from the caller cannot be created by it, whether it exists or not.
        if resolved.class.hides() && decide(Op::Lookup)? == Outcome::Hide {
            return Err(Errno::ACCESS);
        }
        check_outcome(&decide(Op::Create)?, Op::Create)
    }

    /// Checks an operation of the caller on the file that a name refers to.
    pub(crate) fn check_name(
        &self,
        request: &Request<'_>,
        resolved: &ResolvedName,
        (parent, name): (NodeId, Component<'_>),
        op: Op,
    ) -> Result<(), Errno> {
        if resolved.class.is_free() {
            return Ok(());
        }
        let found = self.mirror.engine().lookup(parent, name)?.id;
        let content = LazyContent::new(self.mirror.engine(), found);
        let check = |op| {
            let path = resolved.path.as_deref();
            check_outcome(
                &self.decide(request, &resolved.rules, &resolved.class, path, op, &content)?.outcome,
                op,
            )
        };
        let checked = check(Op::Lookup).and_then(|()| check(op));
        self.mirror.engine().forget(found, 1);
        checked
    }

    /// Converts an entry of the mirror to the entry that the caller sees. Takes over the lookup reference.
    ///
    /// # Errors
    /// ENOENT if it is hidden; ESTALE if the rules changed meanwhile.
    pub(crate) fn shown(
        &self,
        request: &Request<'_>,
        resolved: &ResolvedName,
        entry: Entry,
    ) -> Result<Entry, Errno> {
        let shown = self.seen(request, resolved, entry);
        if shown.is_err() && entry.node != NodeId(0) {
            self.mirror.engine().forget(entry.node, 1);
        }
        shown
    }

    fn seen(&self, request: &Request<'_>, resolved: &ResolvedName, mut entry: Entry) -> Result<Entry, Errno> {
        let (class, inner) = (&resolved.class, entry.node);
        let constant = class.is_name_constant() || self.is_enforced(class);
        entry.entry_expiry = if constant { self.bounded(entry.entry_expiry) } else { Expiry::NEVER_CACHED };
        if inner == NodeId(0) {
            return Ok(entry);
        }
        let content = LazyContent::new(self.mirror.engine(), inner);
        let decide = |op| class.decide(op, &RequestCaller::new(request, &self.programs), &content);
        if class.hides() && decide(Op::Lookup).outcome == Outcome::Hide {
            return Err(Errno::NOENT);
        }
        let kind = entry.attributes.file_type();
        if kind == shunt_fuse::FileType::Directory {
            self.register_dir(inner, resolved)?;
            return Ok(entry);
        }
        let regular = kind == shunt_fuse::FileType::Regular;
        let redaction = match class.redacts() && regular {
            true => decide(Op::Read).redaction,
            false => None,
        };
        self.show(resolved, entry, redaction)
    }

    /// Converts the entry of a file just created, like [`shown`](Self::shown). Nothing is hidden from its creator.
    pub(crate) fn made(&self, resolved: &ResolvedName, mut entry: Entry) -> Result<Entry, Errno> {
        let constant = resolved.class.is_name_constant() || self.is_enforced(&resolved.class);
        entry.entry_expiry = if constant { self.bounded(entry.entry_expiry) } else { Expiry::NEVER_CACHED };
        if entry.attributes.file_type() == shunt_fuse::FileType::Directory {
            let noted = self
                .register_dir(entry.node, resolved)
                .inspect_err(|_| self.mirror.engine().forget(entry.node, 1));
            return noted.map(|()| entry);
        }
        self.show(resolved, entry, None).inspect_err(|_| self.mirror.engine().forget(entry.node, 1))
    }

    fn show(
        &self,
        resolved: &ResolvedName,
        mut entry: Entry,
        redaction: Option<Arc<shunt_policy::Redaction>>,
    ) -> Result<Entry, Errno> {
        let inner = entry.node;
        let partial = redaction.is_some();
        let view = View { inner, class: resolved.class.clone(), redaction, path: resolved.path.clone() };
        let (node, is_additional) = self.views.show(resolved.rules.generation, view)?;
        entry.node = node;
        if let Err(errno) = self.register(entry.node, &resolved.class) {
            self.views.forget(entry.node, 1);
            return Err(errno);
        }
        if partial {
            entry.attributes_expiry = Expiry::NEVER_CACHED;
        } else if entry.node != inner {
            entry.attributes_expiry = self.of_view(inner, entry.attributes_expiry);
        }
        // The kernel cached the attributes of the other inodes while there was only one.
        if let (Some(session), true) = (self.session.get(), is_additional) {
            for other in self.views.others(inner, entry.node) {
                session.caches().invalidate_node(other, None);
            }
        }
        Ok(entry)
    }

    /// Returns the attribute expiry of a node, which is shorter for a file that has a node id other than the engine's.
    pub(crate) fn attributes_expiry(&self, node: NodeId, expiry: Expiry) -> Result<Expiry, Errno> {
        Ok(match self.views.get(node)? {
            ResolvedNode::Free(_) | ResolvedNode::Unknown(_) => expiry,
            ResolvedNode::View(view) | ResolvedNode::Retired(view) if view.redaction.is_some() => {
                Expiry::NEVER_CACHED
            }
            ResolvedNode::View(view) | ResolvedNode::Retired(view) if view.inner == node => expiry,
            ResolvedNode::View(view) | ResolvedNode::Retired(view) => self.of_view(view.inner, expiry),
        })
    }
}

fn below(rules: Arc<Rules>, state: &MatchState, path: &[u8], name: &[u8]) -> ResolvedName {
    let state = state.enter(name);
    let class = state.class();
    let path = class.audits().then(|| {
        let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
        [path, slash, name].concat().into()
    });
    ResolvedName { rules, state, class, path }
}
