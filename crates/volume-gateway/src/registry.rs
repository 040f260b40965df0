//! The registry of a gateway: its authority, open invitations, and enrolled nodes, in an SQLite file.
//!
//! The file contains the authority's key and is accessible only to its owner. Several gateways may share it. Certificates of
//! nodes and secrets of invitations are stored as hashes; a change takes effect with a node's next request.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, params};
use shunt_volume_types::id::NodeName;

use super::certificates::{Authority, BadCertificate};
use super::protocol::Role;

/// Version of the file format.
const FORMAT: u32 = 1;

/// An error of the registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// It cannot be read or written.
    #[error("cannot access the node registry of the gateway: {0}")]
    Database(#[from] rusqlite::Error),
    /// It cannot be created.
    #[error("cannot access the node registry of the gateway: {0}")]
    Io(#[from] std::io::Error),
    /// It was written by a newer version.
    #[error(
        "the node registry of the gateway has format {0}, this version supports {FORMAT}: use a newer version"
    )]
    Format(u32),
    /// Its keys are invalid.
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
}

/// A node that is enrolled at a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name, also for its side of conflicts.
    pub name: NodeName,
    /// Its permissions.
    pub role: Role,
    /// Time of its enrollment: seconds since 1970.
    pub since: i64,
}

/// The registry. Several gateways may share the file.
pub struct NodeRegistry {
    database: Mutex<Connection>,
    authority: Authority,
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

fn role(word: &str) -> Role {
    // An unknown word grants the least.
    word.parse().unwrap_or(Role::Read)
}

impl NodeRegistry {
    /// Opens a registry, or creates one. Its file is accessible only to the owner: it contains the authority's key.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub fn open(path: &Path) -> Result<Self, RegistryError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        // An existing file is not opened: closing it would release the POSIX locks that SQLite holds on it in this process.
        match std::fs::File::options().create_new(true).write(true).mode(0o600).open(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
        let mut database = Connection::open(path)?;
        database.busy_timeout(Duration::from_secs(10))?;
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.pragma_update(None, "synchronous", "FULL")?;
        // A sandboxed gateway has no directory for temporary files.
        database.pragma_update(None, "temp_store", "MEMORY")?;
        let making = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let format: u32 = making.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if format > FORMAT {
            return Err(RegistryError::Format(format));
        }
        if format == 0 {
            let (authority, key) = Authority::generate()?;
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

    /// Records the address at which nodes reach the gateway: host and port.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub fn set_address(&self, address: &str) -> Result<(), RegistryError> {
        self.database.lock().execute("INSERT OR REPLACE INTO address VALUES (0, ?)", [address])?;
        Ok(())
    }

    /// Returns the recorded address.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub fn address(&self) -> Result<Option<String>, RegistryError> {
        Ok(self.database.lock().query_row("SELECT address FROM address", [], |row| row.get(0)).optional()?)
    }

    /// Creates an invitation, which is valid once and for a limited time. Only the hash of its secret is stored.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub fn invite(&self, role: Role, good_for: Duration) -> Result<[u8; 16], RegistryError> {
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

    /// Redeems an invitation: signs a certificate, by which the node is known from now on. The inner `Err` is a line for the
    /// node.
    pub(super) fn enrol(
        &self,
        secret: &[u8; 16],
        name: &NodeName,
        request: &[u8],
    ) -> Result<Result<Vec<u8>, String>, RegistryError> {
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
                "the token was used before, has expired or is for another gateway: ask for a new one"
                    .to_owned(),
            ));
        };
        let taken: bool = enrolling.query_row(
            "SELECT EXISTS (SELECT 1 FROM node WHERE name = ?)",
            [name.as_str()],
            |row| row.get(0),
        )?;
        if taken {
            // The invitation stays valid for another name.
            return Ok(Err(format!("node {name} exists already: choose another name or remove that node")));
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

    /// Returns the node with a certificate; `None` if it was removed.
    pub(super) fn node(&self, certificate: &[u8]) -> Result<Option<Node>, RegistryError> {
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

    /// Reports whether a node of this name is enrolled.
    pub(super) fn contains(&self, name: &NodeName) -> Result<bool, RegistryError> {
        let database = self.database.lock();
        let mut query = database.prepare_cached("SELECT 1 FROM node WHERE name = ?")?;
        Ok(query.exists([name.as_str()])?)
    }

    /// Returns all nodes, by name.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub fn nodes(&self) -> Result<Vec<Node>, RegistryError> {
        let database = self.database.lock();
        let mut query = database.prepare("SELECT name, role, since FROM node ORDER BY name")?;
        Ok(query.query_map([], read_node)?.collect::<Result<_, _>>()?)
    }

    /// Changes the role of a node, which applies to its next request. Returns `false` if there is no such node.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub fn set_role(&self, name: &NodeName, role: Role) -> Result<bool, RegistryError> {
        let changed = self
            .database
            .lock()
            .execute("UPDATE node SET role = ? WHERE name = ?", [role.as_str(), name.as_str()])?;
        Ok(changed > 0)
    }

    /// Removes a node. Returns `false` if there is no such node.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub fn remove(&self, name: &NodeName) -> Result<bool, RegistryError> {
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
        assert!(matches!(NodeRegistry::open(file.path()), Err(RegistryError::Format(99))));
    }
}
