//! Renames and links under a policy, and the rules of the moved files.

use rustix::fs::FileType;
use shunt_fuse::{Errno, NodeId, RenameFlags, Request};
use shunt_mirror::lower::Component;
use shunt_policy::{Op, Outcome, RuleSet};

use crate::PolicyFs;
use crate::caller::RequestCaller;
use crate::content::LazyContent;
use crate::decide::{ResolvedName, Target};

type NameAt<'a> = (NodeId, Component<'a>);

/// A checked rename that is not done yet.
pub(crate) struct Move {
    from: ResolvedName,
    to: ResolvedName,
    /// The file, if its rules change; holds a lookup reference.
    file: Option<NodeId>,
}

impl PolicyFs {
    /// Checks a rename.
    ///
    /// # Errors
    /// EXDEV if it would move a directory to other rules, or a file away from rules that restrict the caller.
    pub(crate) fn check_rename(
        &self,
        request: &Request<'_>,
        from: NameAt<'_>,
        to: NameAt<'_>,
        flags: RenameFlags,
    ) -> Result<Move, Errno> {
        let bytes = |at: NameAt<'_>| at.1.as_cstr().to_bytes().to_vec();
        let (resolved_from, resolved_to) = self.resolve_names((from.0, &bytes(from)), (to.0, &bytes(to)))?;
        let swaps = flags.contains(RenameFlags::EXCHANGE);
        if request.begun().is_some() {
            self.ensure_not_on_graft_paths(from, to)?;
            return Ok(self.resume_rename((from, resolved_from), (to, resolved_to), swaps));
        }
        if swaps {
            // The kernel runs the hook that checks renames for the reverse direction first.
            self.check_name(request, &resolved_to, to, Op::Delete)?;
            self.check_create(request, &resolved_from)?;
        }
        self.check_name(request, &resolved_from, from, Op::Delete)?;
        self.check_create(request, &resolved_to)?;
        // The rename replaces an existing target. That of an exchange has been checked.
        if !swaps {
            match self.check_name(request, &resolved_to, to, Op::Delete) {
                Err(Errno::NOENT) => {}
                checked => checked?,
            }
        }
        // After the rules, as in a removal: the kernel checks rules before this daemon is asked.
        self.ensure_not_on_graft_paths(from, to)?;
        let mut file = None;
        if resolved_from.state != resolved_to.state {
            file = self.check_rule_change(request, from, &resolved_from, &resolved_to)?;
            if swaps {
                let other = self.check_rule_change(request, to, &resolved_to, &resolved_from);
                if let (Some(file), Err(_)) = (file, &other) {
                    self.mirror.engine().forget(file, 1);
                }
                if let Some(other) = other? {
                    // Both files are looked up again on their next use.
                    self.moved(other, &resolved_to.class, &resolved_from.class, false);
                    self.mirror.engine().forget(other, 1);
                }
            }
        }
        Ok(Move { from: resolved_from, to: resolved_to, file })
    }

    /// Returns EBUSY if one of two names leads to a graft.
    fn ensure_not_on_graft_paths(&self, from: NameAt<'_>, to: NameAt<'_>) -> Result<(), Errno> {
        self.ensure_not_on_graft_path(from.0, from.1).and_then(|()| self.ensure_not_on_graft_path(to.0, to.1))
    }

    /// Resolves a rename that the previous daemon allowed and may have executed.
    fn resume_rename(
        &self,
        from: (NameAt<'_>, ResolvedName),
        to: (NameAt<'_>, ResolvedName),
        swaps: bool,
    ) -> Move {
        let ((from, resolved_from), (to, resolved_to)) = (from, to);
        let mut file = None;
        if resolved_from.class != resolved_to.class {
            let lower = self.mirror.engine();
            let at = |at: NameAt<'_>| lower.lookup(at.0, at.1).ok().map(|found| found.id);
            if swaps {
                // The two files cannot be told apart, so both are looked up again.
                for file in [at(from), at(to)].into_iter().flatten() {
                    self.moved(file, &resolved_from.class, &resolved_to.class, false);
                    self.moved(file, &resolved_to.class, &resolved_from.class, false);
                    lower.forget(file, 1);
                }
            } else {
                file = at(from).or_else(|| at(to));
            }
        }
        Move { from: resolved_from, to: resolved_to, file }
    }

    /// Checks whether a file may move to other rules. Returns the file, whose lookup reference the caller must drop.
    fn check_rule_change(
        &self,
        request: &Request<'_>,
        at: NameAt<'_>,
        from: &ResolvedName,
        to: &ResolvedName,
    ) -> Result<Option<NodeId>, Errno> {
        let lower = self.mirror.engine();
        if lower.kind_at(at.0, at.1)? == FileType::Directory {
            return Err(Errno::XDEV);
        }
        if from.class == to.class {
            return Ok(None);
        }
        let file = lower.lookup(at.0, at.1)?.id;
        if self.is_restricted(request, from, file) {
            lower.forget(file, 1);
            return Err(Errno::XDEV);
        }
        Ok(Some(file))
    }

    /// Reports whether the rules of a file deny the caller anything.
    fn is_restricted(&self, request: &Request<'_>, resolved: &ResolvedName, file: NodeId) -> bool {
        let (caller, content) =
            (RequestCaller::new(request, &self.programs), LazyContent::new(self.mirror.engine(), file));
        [Op::Read, Op::Write, Op::Attributes]
            .into_iter()
            .any(|op| resolved.class.decide(op, &caller, &content).outcome != Outcome::Allow)
    }

    /// Finishes a rename; `done` is whether it succeeded.
    pub(crate) fn renamed(&self, request: &Request<'_>, moved: Move, to: NameAt<'_>, done: bool) {
        let Some(file) = moved.file else { return };
        if done {
            let only = self.mirror.engine().links(file).is_ok_and(|links| links == 1);
            self.moved(file, &moved.from.class, &moved.to.class, only);
            // The kernel may have cached the name under other rules.
            request.session().caches().expire_entry(to.0, to.1.as_cstr().to_bytes());
        }
        self.mirror.engine().forget(file, 1);
    }

    fn moved(&self, file: NodeId, from: &RuleSet, to: &RuleSet, only: bool) {
        let (on, retired) = self.views.moved(file, from, to, only);
        if let Some(node) = on {
            // If the table is full, the names that lead to the node are looked up again anyway.
            let _ = self.register(node, to);
        }
        self.stale(retired);
    }

    /// Checks whether a file may get another name.
    ///
    /// # Errors
    /// EXDEV if the rules of the new name differ.
    pub(crate) fn check_link(
        &self,
        request: &Request<'_>,
        node: NodeId,
        parent: NodeId,
        name: Component<'_>,
    ) -> Result<(NodeId, ResolvedName), Errno> {
        let resolved = self.resolve_name(parent, name.as_cstr().to_bytes())?;
        self.check_create(request, &resolved)?;
        let (inner, same) = match self.target(node)? {
            Target::Free(inner) => (inner, resolved.class.is_free()),
            Target::Ruled(view) => (view.inner, view.class == resolved.class),
        };
        if same { Ok((inner, resolved)) } else { Err(Errno::XDEV) }
    }
}
