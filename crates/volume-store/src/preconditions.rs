//! Optimistic concurrency: a transaction names the versions it was made from, and is rejected as stale if any of them changed
//! since.

use shunt_volume_types::object::Kind;

use super::transaction::{Abort, Batch, Rows, Step};
use super::{Precondition, Rejected, StoreError};

impl<R: Rows> Batch<'_, R> {
    /// Rejects a transaction with the number of its first precondition that does not hold.
    pub(super) fn check_preconditions(&mut self, preconditions: &[Precondition]) -> Step {
        for (n, condition) in preconditions.iter().enumerate() {
            if !self.is_satisfied(condition)? {
                return Err(Abort::Refused(Rejected::Stale(n as u32)));
            }
        }
        Ok(())
    }

    fn is_satisfied(&mut self, condition: &Precondition) -> Result<bool, StoreError> {
        Ok(match condition {
            Precondition::Exists(id) => self.object(*id)?.is_some(),
            Precondition::Field(id, field, seq) => {
                self.object(*id)?.is_some_and(|row| row.stored.seq_of(field) == *seq)
            }
            Precondition::Link(at, expected) => self.link(at)? == *expected,
            Precondition::Empty(id) => self
                .object(*id)?
                .is_some_and(|row| row.stored.object.kind == Kind::Directory && row.names == 0),
        })
    }
}
