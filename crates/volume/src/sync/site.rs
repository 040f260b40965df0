//! What synchronisation needs of a replica.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::id::Seq;
use crate::object::Object;
use crate::plan::{At, Num, Plan, PlanError, Sent, Todo, Trees};
use crate::store::{Item, StoreError};

/// Commits that are on their way. Kept by the replica until the log has told what became of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbox {
    /// By which the store knows them again.
    pub token: u128,
    /// In this order.
    pub items: Vec<Item>,
    /// The last commit that was accepted, 0 if none was; `None`: there was no answer yet.
    pub answered: Option<Seq>,
}

impl Outbox {
    /// Those that the store may have and of which the log was not read, up to this place of it. What was accepted of a batch is
    /// one behind the other in the log.
    pub fn unread(mut self, cursor: Seq) -> Vec<Item> {
        if let Some(last) = self.answered {
            let unread = usize::try_from(last.0.saturating_sub(cursor.0)).unwrap_or(usize::MAX);
            self.items.drain(..self.items.len().saturating_sub(unread));
        }
        self.items
    }
}

/// Why a step was not made.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The store's reason.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The replica cannot be read or written.
    #[error("the replica: {0}")]
    Replica(#[from] Errno),
}

/// A file and what of it went to the store of contents.
pub type Contents = (Num, Option<(u64, Sent)>);

/// A replica, as synchronisation sees it.
pub trait Site {
    /// Up to where the log was read.
    ///
    /// # Errors
    /// Those of reading.
    fn cursor(&self) -> Result<Seq, Errno>;

    /// Reads while nothing changes.
    ///
    /// # Errors
    /// Those of the closure.
    fn read(&self, read: &mut dyn FnMut(&dyn Trees) -> Result<(), PlanError>) -> Result<(), PlanError>;

    /// Makes a plan while nothing else changes, and changes the replica by it, with the place in the log up to which it
    /// was read: all in one transaction.
    ///
    /// # Errors
    /// Those of the closure, and of writing. Then nothing is changed.
    fn change(&self, cursor: Option<Seq>, plan: &mut Plan<'_>) -> Result<(), PlanError>;

    /// The same with several plans, each for a place in the log, one after the other: together in one transaction, or as
    /// many of the first as went well.
    ///
    /// # Errors
    /// Those of [`change`](Self::change).
    fn change_each(&self, plans: &mut [(Seq, Box<Plan<'_>>)]) -> Result<(), PlanError> {
        plans.iter_mut().try_for_each(|(cursor, plan)| self.change(Some(*cursor), plan))
    }

    /// What may differ from what was agreed on, in the order of the changes: after a place in that order, about so many.
    /// With the place to go on at; `None`: that was all.
    ///
    /// # Errors
    /// Those of reading.
    fn todo(&self, after: i64, most: usize) -> Result<(Todo, Option<i64>), Errno>;

    /// Brings what files hold into the store of contents. `None`: it cannot go now. With its
    /// [`version`](Trees::version) when it was read.
    ///
    /// # Errors
    /// Those of the store of contents, and of reading.
    fn send(&self, files: Vec<(Num, Object)>) -> Result<Vec<Contents>, SyncError>;

    /// Whether somebody has a file open to be written: it may differ from what was agreed on at any moment.
    ///
    /// # Errors
    /// Those of reading.
    fn is_written(&self, num: Num) -> Result<bool, Errno> {
        let _ = num;
        Ok(false)
    }

    /// Commits on their way.
    ///
    /// # Errors
    /// Those of reading.
    fn outbox(&self) -> Result<Option<Outbox>, Errno>;

    /// Keeps commits on their way. They outlive this process when this returns.
    ///
    /// # Errors
    /// Those of writing.
    fn set_outbox(&self, outbox: Option<&Outbox>) -> Result<(), Errno>;

    /// Names with conflicts.
    ///
    /// # Errors
    /// Those of reading.
    fn conflicts(&self) -> Result<Vec<At>, Errno>;
}
