//! Who may speak to a gateway: its authority, invitations that are open, and the nodes that took one.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::certificates::{Authority, BadCertificate};
use super::protocol::Role;
use crate::id::NodeName;

/// The format of the file.
const FORMAT: u32 = 1;

/// What is wrong with a book.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// It cannot be read or written.
    #[error("the gateway's book of nodes: {0}")]
    Database(#[from] rusqlite::Error),
    /// It cannot be made.
    #[error("the gateway's book of nodes: {0}")]
    Io(#[from] std::io::Error),
    /// It was made by a newer version.
    #[error(
        "the gateway's book of nodes has format {0}, and this version knows {FORMAT}: use a newer version"
    )]
    Format(u32),
    /// Its keys make no sense.
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
}

/// A node that a gateway knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// How conflicts call its side.
    pub name: NodeName,
    /// What it may do.
    pub role: Role,
    /// When it was enrolled: seconds since 1970.
    pub since: i64,
}

/// The file in which a gateway keeps what it knows. Several gateways may share it.
pub struct NodeRegistry {
    database: Mutex<Connection>,
    authority: Authority,
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

fn role(word: &str) -> Role {
    // What is not understood grants the least.
    word.parse().unwrap_or(Role::Read)
}

impl NodeRegistry {
    /// Opens a book, or begins one. Its file can be read by its owner alone: it holds the authority's key.
    ///
    /// # Errors
    /// [`BookError`]
    pub fn open(path: &Path) -> Result<Self, BookError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        // One that is there is not opened: its closing would end the locks that this process has on it through SQLite.
        match std::fs::File::options().create_new(true).write(true).mode(0o600).open(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
        let mut database = Connection::open(path)?;
        database.busy_timeout(Duration::from_secs(10))?;
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.pragma_update(None, "synchronous", "FULL")?;
        // A gateway that is locked in has no directory for temporary files.
        database.pragma_update(None, "temp_store", "MEMORY")?;
        let making = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let format: u32 = making.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if format > FORMAT {
            return Err(BookError::Format(format));
        }
        if format == 0 {
            let (authority, key) = Authority::make()?;
            making.execute_batch(
                "CREATE TABLE authority (certificate BLOB NOT NULL, key BLOB NOT NULL);
                 CREATE TABLE address (one INTEGER PRIMARY KEY CHECK (one = 0), address TEXT NOT NULL);
                 CREATE TABLE invitation (secret BLOB PRIMARY KEY, role TEXT NOT NULL, until INTEGER NOT NULL);
                 CREATE TABLE node (certificate BLOB PRIMARY KEY, name TEXT NOT NULL UNIQUE, role TEXT NOT NULL,
                                    since INTEGER NOT NULL);",
            )?;
            making.execute("INSERT INTO authority VALUES (?, ?)", params![authority.certificate, key])?;
            making.pragma_update(None, "user_version", FORMAT)?;
        }
        let (certificate, key): (Vec<u8>, Vec<u8>) =
            making.query_row("SELECT certificate, key FROM authority", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        making.commit()?;
        Ok(Self { database: Mutex::new(database), authority: Authority::restore(certificate, &key)? })
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Notes where nodes find the gateway: host and port.
    ///
    /// # Errors
    /// [`BookError`]
    pub fn set_address(&self, address: &str) -> Result<(), BookError> {
        self.database.lock().execute("INSERT OR REPLACE INTO address VALUES (0, ?)", [address])?;
        Ok(())
    }

    /// What was noted last.
    ///
    /// # Errors
    /// [`BookError`]
    pub fn address(&self) -> Result<Option<String>, BookError> {
        Ok(self.database.lock().query_row("SELECT address FROM address", [], |row| row.get(0)).optional()?)
    }

    /// An invitation that is good once, for so long. Only its hash is kept.
    ///
    /// # Errors
    /// [`BookError`]
    pub fn invite(&self, role: Role, good_for: Duration) -> Result<[u8; 16], BookError> {
        let secret: [u8; 16] = rand::random();
        let until = now().saturating_add_unsigned(good_for.as_secs());
        let database = self.database.lock();
        database.execute("DELETE FROM invitation WHERE until < ?", [now()])?;
        database.execute(
            "INSERT INTO invitation VALUES (?, ?, ?)",
            params![blake3::hash(&secret).as_bytes(), role.as_str(), until],
        )?;
        Ok(secret)
    }

    /// Takes an invitation: the node is known by its certificate from now on. `Err` of the inner: one line for the node.
    pub(super) fn enrol(
        &self,
        secret: &[u8; 16],
        name: &NodeName,
        request: &[u8],
    ) -> Result<Result<Vec<u8>, String>, BookError> {
        let mut database = self.database.lock();
        let enrolling = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let secret = blake3::hash(secret);
        let invited: Option<String> = enrolling
            .query_row(
                "DELETE FROM invitation WHERE secret = ? AND until >= ? RETURNING role",
                params![secret.as_bytes(), now()],
                |row| row.get(0),
            )
            .optional()?;
        let Some(role) = invited else {
            return Ok(Err(
                "the token was used, has expired or is not of this gateway: ask for another".to_owned()
            ));
        };
        let taken: bool = enrolling.query_row(
            "SELECT EXISTS (SELECT 1 FROM node WHERE name = ?)",
            [name.as_str()],
            |row| row.get(0),
        )?;
        if taken {
            // The invitation stays good for another name.
            return Ok(Err(format!(
                "there is a node {name} already: take another name, or remove that node"
            )));
        }
        let certificate = match self.authority.sign(name, request) {
            Ok(certificate) => certificate,
            Err(error) => return Ok(Err(error.to_string())),
        };
        enrolling.execute(
            "INSERT INTO node VALUES (?, ?, ?, ?)",
            params![blake3::hash(&certificate).as_bytes(), name.as_str(), role, now()],
        )?;
        enrolling.commit()?;
        Ok(Ok(certificate))
    }

    /// The node that shows a certificate; none where it was removed.
    pub(super) fn node(&self, certificate: &[u8]) -> Result<Option<Node>, BookError> {
        let found = self
            .database
            .lock()
            .query_row(
                "SELECT name, role, since FROM node WHERE certificate = ?",
                [blake3::hash(certificate).as_bytes()],
                read_node,
            )
            .optional()?;
        Ok(found)
    }

    /// Whether there is a node of this name.
    pub(super) fn knows(&self, name: &NodeName) -> Result<bool, BookError> {
        let database = self.database.lock();
        let mut query = database.prepare_cached("SELECT 1 FROM node WHERE name = ?")?;
        Ok(query.exists([name.as_str()])?)
    }

    /// All nodes, by name.
    ///
    /// # Errors
    /// [`BookError`]
    pub fn nodes(&self) -> Result<Vec<Node>, BookError> {
        let database = self.database.lock();
        let mut query = database.prepare("SELECT name, role, since FROM node ORDER BY name")?;
        Ok(query.query_map([], read_node)?.collect::<Result<_, _>>()?)
    }

    /// Has a node be another from now on: its next request is judged by that. Tells whether there is such a node.
    ///
    /// # Errors
    /// [`BookError`]
    pub fn set_role(&self, name: &NodeName, role: Role) -> Result<bool, BookError> {
        let changed = self
            .database
            .lock()
            .execute("UPDATE node SET role = ? WHERE name = ?", [role.as_str(), name.as_str()])?;
        Ok(changed > 0)
    }

    /// A node is known no more. Tells whether it was.
    ///
    /// # Errors
    /// [`BookError`]
    pub fn remove(&self, name: &NodeName) -> Result<bool, BookError> {
        Ok(self.database.lock().execute("DELETE FROM node WHERE name = ?", [name.as_str()])? > 0)
    }
}

fn read_node(row: &rusqlite::Row<'_>) -> rusqlite::Result<Node> {
    let name: String = row.get(0)?;
    let name = name.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    })?;
    let word: String = row.get(1)?;
    Ok(Node { name, role: role(&word), since: row.get(2)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_of_a_newer_version_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        drop(NodeRegistry::open(file.path()).unwrap());
        let database = Connection::open(file.path()).unwrap();
        database.pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(NodeRegistry::open(file.path()), Err(BookError::Format(99))));
    }
}
