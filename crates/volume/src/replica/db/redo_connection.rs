//! The connection to the replica's database. It records each statement that changes the database for the [redo log](super::redo).

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use rusqlite::{CachedStatement, Connection, Params, Result, Row};

use super::redo::PendingRecords;

/// A connection that records changes while [`enabled`](Self::enable).
pub(crate) struct RedoConnection {
    connection: Connection,
    /// `None` without a redo log.
    pending: Option<RefCell<PendingRecords>>,
}

impl RedoConnection {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, pending: None }
    }

    /// Begins or stops to record.
    pub(super) fn enable(&mut self, enabled: bool) {
        self.pending = enabled.then(RefCell::default);
    }

    /// Returns the connection without recording, for transactions and for changes that are recorded otherwise.
    pub(super) fn unrecorded(&self) -> &Connection {
        &self.connection
    }

    /// Returns the records of changes that are not in the log yet; `None` without a log.
    pub(super) fn pending(&mut self) -> Option<&mut PendingRecords> {
        self.pending.as_mut().map(RefCell::get_mut)
    }

    pub(crate) fn prepare_cached(&self, sql: &str) -> Result<RedoStatement<'_>> {
        let statement = self.connection.prepare_cached(sql)?;
        Ok(RedoStatement { statement, pending: self.pending.as_ref() })
    }

    pub(crate) fn execute<P: Params>(&self, sql: &str, params: P) -> Result<usize> {
        self.prepare_cached(sql)?.execute(params)
    }
}

impl Deref for RedoConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for RedoConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// A prepared statement that is recorded when it is executed.
pub(crate) struct RedoStatement<'a> {
    statement: CachedStatement<'a>,
    pending: Option<&'a RefCell<PendingRecords>>,
}

impl RedoStatement<'_> {
    fn record(&self) {
        if let Some(pending) = self.pending
            && !self.statement.readonly()
            && let Some(sql) = self.statement.expanded_sql()
        {
            pending.borrow_mut().statement(sql);
        }
    }

    /// Executes a statement that returns no rows.
    pub(crate) fn execute<P: Params>(&mut self, params: P) -> Result<usize> {
        let changed = self.statement.execute(params)?;
        self.record();
        Ok(changed)
    }

    /// Executes a statement that returns at most one row.
    pub(crate) fn query_row<T, P: Params>(
        &mut self,
        params: P,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        let row = self.statement.query_row(params, read);
        if row.is_ok() {
            self.record();
        }
        row
    }
}

impl<'a> Deref for RedoStatement<'a> {
    type Target = CachedStatement<'a>;

    fn deref(&self) -> &CachedStatement<'a> {
        &self.statement
    }
}

impl DerefMut for RedoStatement<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.statement
    }
}
