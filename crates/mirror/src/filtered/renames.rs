//! Names that move, and the rules with them.

use rustix::fs::FileType;
use shunt_fuse::{Errno, NodeId, RenameFlags, Request};
use shunt_policy::{Op, Outcome, RuleSet};

use super::PolicyFs;
use super::caller::Asker;
use super::content::Peeked;
use super::decide::Spot;
use crate::lower::Component;

type NameAt<'a> = (NodeId, Component<'a>);

/// What is known of a rename before it is done.
pub(super) struct Move {
    from: Spot,
    to: Spot,
    /// The file, if it is one whose rules change; looked up once.
    file: Option<NodeId>,
}

impl PolicyFs {
    /// Whether a name may move.
    ///
    /// # Errors
    /// EXDEV where that would take a directory to other rules, or a file from rules that bind the caller.
    pub(super) fn check_rename(
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
            return Ok(self.begun_rename((from, from_spot), (to, to_spot), swaps));
        }
        self.check_name(request, &from_spot, from, Op::Delete)?;
        self.check_create(request, &to_spot)?;
        // What is there goes.
        match self.check_name(request, &to_spot, to, Op::Delete) {
            Err(Errno::NOENT) if !swaps => {}
            checked => checked?,
        }
        if swaps {
            self.check_create(request, &from_spot)?;
        }
        let mut file = None;
        if from_spot.place != to_spot.place {
            file = self.leaves(request, from, &from_spot, &to_spot)?;
            if swaps {
                let other = self.leaves(request, to, &to_spot, &from_spot);
                if let (Some(file), Err(_)) = (file, &other) {
                    self.mirror.lower.forget(file, 1);
                }
                if let Some(other) = other? {
                    // Both are looked up again by whoever uses them.
                    self.moved(other, &to_spot.class, &from_spot.class, false);
                    self.mirror.lower.forget(other, 1);
                }
            }
        }
        Ok(Move { from: from_spot, to: to_spot, file })
    }

    /// A rename that the daemon before this one allowed, and that may be done.
    fn begun_rename(&self, from: (NameAt<'_>, Spot), to: (NameAt<'_>, Spot), swaps: bool) -> Move {
        let ((from, from_spot), (to, to_spot)) = (from, to);
        let mut file = None;
        if from_spot.class != to_spot.class {
            let lower = &self.mirror.lower;
            let at = |at: NameAt<'_>| lower.lookup(at.0, at.1).ok().map(|found| found.id);
            if swaps {
                // Which is which cannot be told: both are looked up again.
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

    /// Whether something may go where other rules are. Tells the file, whose lookup is to be given back.
    fn leaves(
        &self,
        request: &Request<'_>,
        at: NameAt<'_>,
        from: &Spot,
        to: &Spot,
    ) -> Result<Option<NodeId>, Errno> {
        let lower = &self.mirror.lower;
        if lower.kind_at(at.0, at.1)? == FileType::Directory {
            return Err(Errno::XDEV);
        }
        if from.class == to.class {
            return Ok(None);
        }
        let file = lower.lookup(at.0, at.1)?.id;
        if self.binds(request, from, file) {
            lower.forget(file, 1);
            return Err(Errno::XDEV);
        }
        Ok(Some(file))
    }

    /// Whether a file's rules keep anything from the caller.
    fn binds(&self, request: &Request<'_>, spot: &Spot, file: NodeId) -> bool {
        let (asker, content) = (Asker::new(request, &self.programs), Peeked::new(&self.mirror.lower, file));
        [Op::Read, Op::Write, Op::Attributes]
            .into_iter()
            .any(|op| spot.class.decide(op, &asker, &content).outcome != Outcome::Allow)
    }

    /// After the rename: `done` tells whether it was.
    pub(super) fn renamed(&self, request: &Request<'_>, moved: Move, to: NameAt<'_>, done: bool) {
        let Some(file) = moved.file else { return };
        if done {
            let only = self.mirror.lower.links(file).is_ok_and(|links| links == 1);
            self.moved(file, &moved.from.class, &moved.to.class, only);
            // What the kernel believes of the name it was told by other rules.
            request.session().caches().expire_entry(to.0, to.1.as_cstr().to_bytes());
        }
        self.mirror.lower.forget(file, 1);
    }

    fn moved(&self, file: NodeId, from: &RuleSet, to: &RuleSet, only: bool) {
        let (on, retired) = self.views.moved(file, from, to, only);
        if let Some(node) = on {
            // The way to a full table leads through names that are looked up again.
            let _ = self.note(node, to);
        }
        self.stale(retired);
    }

    /// Whether a file may have one more name.
    ///
    /// # Errors
    /// EXDEV where other rules speak of that name.
    pub(super) fn check_link(
        &self,
        request: &Request<'_>,
        node: NodeId,
        parent: NodeId,
        name: Component<'_>,
    ) -> Result<(NodeId, Spot), Errno> {
        use super::decide::Target;
        let spot = self.spot(parent, name.as_cstr().to_bytes())?;
        self.check_create(request, &spot)?;
        let (inner, same) = match self.target(node)? {
            Target::Free(inner) => (inner, spot.class.is_free()),
            Target::Ruled(view) => (view.inner, view.class == spot.class),
        };
        if same { Ok((inner, spot)) } else { Err(Errno::XDEV) }
    }
}
