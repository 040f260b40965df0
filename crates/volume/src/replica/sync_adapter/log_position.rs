//! Stores the verified position of a sealed log in the replica's database.

use rusqlite::OptionalExtension as _;
use rusqlite::params;

use crate::id::Seq;
use crate::replica::db::ReplicaDb;
use crate::replica::error::Result;
use crate::store::log_verifier::VerifiedPosition;

pub(super) fn get(db: &ReplicaDb) -> Result<Option<VerifiedPosition>> {
    let query = "SELECT value FROM meta WHERE key = 'ledger'";
    let bytes: Option<Vec<u8>> = db.db.query_row(query, [], |row| row.get(0)).optional()?;
    let Some(bytes) = bytes else { return Ok(None) };
    let (at, chain): (Seq, [u8; 32]) = postcard::from_bytes(&bytes)?;
    let mut query = db.db.prepare_cached("SELECT id, count FROM writer")?;
    let writers = query.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    Ok(Some(VerifiedPosition {
        at,
        chain,
        writers: writers.collect::<rusqlite::Result<_>>()?,
        is_reset: false,
    }))
}

pub(super) fn put(db: &mut ReplicaDb, position: &VerifiedPosition) -> Result<()> {
    db.begin()?;
    let mut put = db.db.prepare_cached("INSERT OR REPLACE INTO meta VALUES ('ledger', ?1)")?;
    put.execute([postcard::to_stdvec(&(position.at, position.chain))?])?;
    if position.is_reset {
        db.db.execute("DELETE FROM writer", [])?;
    }
    let mut put = db.db.prepare_cached("INSERT OR REPLACE INTO writer VALUES (?1, ?2)")?;
    for (writer, count) in &position.writers {
        put.execute(params![writer, *count as i64])?;
    }
    Ok(())
}
