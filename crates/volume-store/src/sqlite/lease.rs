//! Leases in SQLite, in a file next to the store's. It is written without waiting for the disk, since leases need not survive a
//! crash of the machine. There are no notifications between processes: waits poll every 4 ms while the volume has other nodes,
//! else every 20 ms.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use shunt_volume_types::id::{NodeName, Seq};
use shunt_volume_types::object::Time;

use super::{POLL_INTERVAL, fault};
use crate::lease_table::LeaseTable;
use crate::{LeaseRequest, LeaseResponse, StoreError};

/// Polling interval of a wait while the volume has other nodes; there are no notifications between processes.
const SHARED_POLL_INTERVAL: Duration = Duration::from_millis(4);

/// Version of the row's encoding. Rows of other versions are not touched.
const FORMAT: i64 = 1;

/// The lease client of a node; see the [module](self).
pub(super) struct Leases {
    path: Option<PathBuf>,
    db: Mutex<Option<Connection>>,
}

impl Leases {
    /// For the store in a file; `None`: in memory.
    pub(super) fn for_store(store: Option<&Path>) -> Self {
        let path = store.map(|store| {
            let mut path = store.as_os_str().to_owned();
            path.push("-leases");
            path.into()
        });
        Self { path, db: Mutex::default() }
    }

    fn open(&self) -> Result<MutexGuard<'_, Option<Connection>>, StoreError> {
        let mut db = self.db.lock();
        if db.is_none() {
            let open = || -> rusqlite::Result<Connection> {
                let db = match &self.path {
                    Some(path) => Connection::open(path)?,
                    None => Connection::open_in_memory()?,
                };
                db.busy_timeout(Duration::from_secs(10))?;
                // Not FULL: the last requests may be lost in a power failure.
                db.execute_batch(
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY;",
                )?;
                db.execute_batch(
                    "CREATE TABLE IF NOT EXISTS board (format INTEGER PRIMARY KEY, at INTEGER NOT NULL,
                         acks INTEGER NOT NULL, shared INTEGER NOT NULL, body BLOB NOT NULL)",
                )?;
                Ok(db)
            };
            *db = Some(open().map_err(fault)?);
        }
        Ok(db)
    }

    pub(super) fn exchange(
        &self,
        node: &NodeName,
        request: &LeaseRequest,
        now: Time,
        head: impl FnOnce() -> Result<Seq, StoreError>,
    ) -> Result<LeaseResponse, StoreError> {
        let mut db = self.open()?;
        let Some(db) = db.as_mut() else {
            return Err(StoreError::Unreachable("the lease database is not open".into()));
        };
        let work = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        let body: Option<Vec<u8>> = work
            .query_row("SELECT body FROM board WHERE format = ?", [FORMAT], |row| row.get(0))
            .optional()
            .map_err(fault)?;
        let mut board = body.map_or_else(LeaseTable::default, |body| LeaseTable::decode(&body));
        let response = board.exchange(node, request, now, head()?).ok_or_else(|| {
            StoreError::Denied(
                "too many nodes hold leases, or this node is suspended because it delayed others".to_owned(),
            )
        })?;
        let (at, acks) = board.positions();
        work.prepare_cached("INSERT OR REPLACE INTO board VALUES (?, ?, ?, ?, ?)")
            .and_then(|mut put| {
                put.execute(params![FORMAT, at as i64, acks as i64, board.is_shared(), board.encode()])
            })
            .map_err(fault)?;
        work.commit().map_err(fault)?;
        Ok(response)
    }

    pub(super) fn wait(&self, after: u64, acks: Option<u64>, at_most: Duration) -> Result<bool, StoreError> {
        let until = Instant::now() + at_most.min(Duration::from_secs(3600));
        loop {
            let (at, seen, shared) = {
                let db = self.open()?;
                let Some(db) = db.as_ref() else {
                    return Err(StoreError::Unreachable("the lease database is not open".into()));
                };
                db.prepare_cached("SELECT at, acks, shared FROM board WHERE format = ?")
                    .and_then(|mut look| {
                        look.query_row([FORMAT], |row| {
                            Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64, row.get(2)?))
                        })
                        .optional()
                    })
                    .map_err(fault)?
                    .unwrap_or((0, 0, false))
            };
            if at > after || acks.is_some_and(|acks| seen > acks) {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(left.min(if shared || acks.is_some() {
                SHARED_POLL_INTERVAL
            } else {
                POLL_INTERVAL
            }));
        }
    }
}
