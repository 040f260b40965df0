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
        let (from_spot, to_spot) = self.spots((from.0, &bytes(from)), (to.0, &bytes(to)))?;
        let swaps = flags.contains(RenameFlags::EXCHANGE);
        if request.begun().is_some() {
            return Ok(self.resume_rename((from, from_spot), (to, to_spot), swaps));
        }
        self.check_name(request, &from_spot, from, Op::Delete)?;
        self.check_create(request, &to_spot)?;
        // The rename replaces an existing target.
        match self.check_name(request, &to_spot, to, Op::Delete) {
            Err(Errno::NOENT) if !swaps => {}
            checked => checked?,
        }
        if swaps {
            self.check_create(request, &from_spot)?;
        }
        let mut file = None;
        if from_spot.state != to_spot.state {
            file = self.check_rule_change(request, from, &from_spot, &to_spot)?;
            if swaps {
                let other = self.check_rule_change(request, to, &to_spot, &from_spot);
                if let (Some(file), Err(_)) = (file, &other) {
                    self.mirror.engine().forget(file, 1);
                }
                if let Some(other) = other? {
                    // Both files are looked up again on their next use.
                    self.moved(other, &to_spot.class, &from_spot.class, false);
                    self.mirror.engine().forget(other, 1);
                }
            }
        }
        Ok(Move { from: from_spot, to: to_spot, file })
    }

    /// Resolves a rename that the previous daemon allowed and may have executed.
    fn resume_rename(
        &self,
        from: (NameAt<'_>, ResolvedName),
        to: (NameAt<'_>, ResolvedName),
        swaps: bool,
    ) -> Move {
        let ((from, from_spot), (to, to_spot)) = (from, to);
        let mut file = None;
        if from_spot.class != to_spot.class {
            let lower = self.mirror.engine();
            let at = |at: NameAt<'_>| lower.lookup(at.0, at.1).ok().map(|found| found.id);
            if swaps {
                // The two files cannot be told apart, so both are looked up again.
                for file in [at(from), at(to)].into_iter().flatten() {
                    self.moved(file, &from_spot.class, &to_spot.class, false);
                    self.moved(file, &to_spot.class, &from_spot.class, false);
                    lower.forget(file, 1);
                }
            } else {
                file = at(from).or_else(|| at(to));
            }
        }
        Move { from: from_spot, to: to_spot, file }
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
    fn is_restricted(&self, request: &Request<'_>, spot: &ResolvedName, file: NodeId) -> bool {
        let (caller, content) =
            (RequestCaller::new(request, &self.programs), LazyContent::new(self.mirror.engine(), file));
        [Op::Read, Op::Write, Op::Attributes]
            .into_iter()
            .any(|op| spot.class.decide(op, &caller, &content).outcome != Outcome::Allow)
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
        let spot = self.spot(parent, name.as_cstr().to_bytes())?;
        self.check_create(request, &spot)?;
        let (inner, same) = match self.target(node)? {
            Target::Free(inner) => (inner, spot.class.is_free()),
            Target::Ruled(view) => (view.inner, view.class == spot.class),
        };
        if same { Ok((inner, spot)) } else { Err(Errno::XDEV) }
    }
}
