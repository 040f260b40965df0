//! Rows in PostgreSQL: all rows that a batch may need are read in one round trip, all changes written in another. The rows are
//! determined from the transactions in advance; only ancestors of new objects may need another query.

use std::collections::{HashMap, HashSet};

use futures::{FutureExt, future};
use shunt_volume_types::id::{NodeName, ObjectId, Seq};
use shunt_volume_types::object::{LinkName, Time, VersionedObject};
use shunt_volume_types::runtime::runtime;
use tokio_postgres::{Error, Row as Found};

use super::connection::Connection;
use super::group::PendingBatch;
use crate::descriptor_format::is_sealed_log;
use crate::transaction::{BatchChanges, Row, Rows};
use crate::{MAX_KEPT_RESULTS, Mutation, Precondition, StoreError, Transaction, codec};

/// The objects and names that a batch refers to.
#[derive(Default)]
struct Named {
    objects: HashSet<ObjectId>,
    links: HashSet<LinkName>,
    /// Directories that receive an existing object: their ancestors are needed for the cycle check.
    above: HashSet<ObjectId>,
}

fn named<'a>(items: impl Iterator<Item = &'a Transaction>) -> Named {
    let mut all = Named::default();
    let mut parents = HashSet::new();
    for item in items {
        let mut made = HashSet::new();
        for condition in &item.preconditions {
            match condition {
                Precondition::Exists(id) | Precondition::Field(id, ..) | Precondition::Empty(id) => {
                    all.objects.insert(*id);
                }
                Precondition::Link(at, _) => drop(all.links.insert(at.clone())),
            }
        }
        for change in &item.mutations {
            match change {
                Mutation::Make(object) => {
                    made.insert(object.id);
                    all.objects.insert(object.id);
                }
                Mutation::Link(at, child) => {
                    parents.insert(at.parent);
                    all.objects.extend([at.parent, *child]);
                    all.links.insert(at.clone());
                    if !made.contains(child) {
                        all.above.insert(at.parent);
                    }
                }
                Mutation::Unlink(at) => {
                    all.objects.insert(at.parent);
                    all.links.insert(at.clone());
                }
                set => all.objects.extend(set.sets()),
            }
        }
    }
    if !all.above.is_empty() {
        all.above.extend(parents);
    }
    all
}

/// The rows that a batch refers to, read under the lock of the volume, with the head and the number of batches.
pub(super) struct Locked<'a> {
    connection: &'a Connection,
    volume: i64,
    pub head: Seq,
    pub batches: i64,
    /// Time of the last commit.
    pub latest: Time,
    /// Time of the server, which all nodes share.
    pub now: Time,
    /// Earlier answers to the parts.
    pub answers: Vec<Option<Vec<u8>>>,
    /// The log of the volume is sealed.
    pub is_sealed: bool,
    objects: HashMap<ObjectId, Option<Row>>,
    links: HashMap<LinkName, Option<(ObjectId, Seq)>>,
}

/// Begins the transaction and locks the volume. READ COMMITTED: each statement sees all that was committed before the lock was
/// acquired, and the lock orders all commits of the volume.
pub(super) async fn lock<'a>(
    connection: &'a Connection,
    volume: i64,
    parts: &[PendingBatch<'_>],
) -> Result<Option<Locked<'a>>, Failed> {
    let Connection { client, ready } = connection;
    let Named { objects: object_ids, links: names, above } = named(parts.iter().flat_map(|part| part.items));
    let ids: Vec<Vec<u8>> = object_ids.iter().map(|id| id.to_bytes().to_vec()).collect();
    let parents: Vec<Vec<u8>> = names.iter().map(|at| at.parent.to_bytes().to_vec()).collect();
    let just_names: Vec<&[u8]> = names.iter().map(|at| &at.name[..]).collect();
    let from: Vec<Vec<u8>> = above.iter().map(|id| id.to_bytes().to_vec()).collect();
    let answer = async |part: &PendingBatch<'_>| {
        let (node, token) = (part.node.as_str(), part.token.to_be_bytes());
        let row = client.query_opt(&ready.answer, &[&volume, &node, &&token[..]]).await?;
        row.map(|row| row.try_get(0)).transpose()
    };
    let (_, locked, answers, found, linked, upper) = futures::try_join!(
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED"),
        async { client.query_opt(&ready.lock, &[&volume]).await },
        future::try_join_all(parts.iter().map(answer)),
        async { client.query(&ready.objects, &[&volume, &ids]).await },
        async { client.query(&ready.links, &[&volume, &parents, &just_names]).await },
        async {
            if from.is_empty() { Ok(Vec::new()) } else { client.query(&ready.above, &[&volume, &from]).await }
        },
    )?;
    let Some(locked) = locked else { return Ok(None) };
    let mut objects: HashMap<_, _> = object_ids.into_iter().map(|id| (id, None)).collect();
    let mut links: HashMap<_, _> = names.into_iter().map(|at| (at, None)).collect();
    for row in found.iter().chain(&upper) {
        let row = object(row, 1)?;
        objects.insert(row.stored.object.id, Some(row));
    }
    for row in &linked {
        let at = LinkName { parent: id(row, 0)?, name: row.try_get(1)? };
        let child = id(row, 2)?;
        links.insert(at, Some((child, Seq(row.try_get::<_, i64>(3)? as u64))));
        if row.try_get::<_, Option<i64>>(5)?.is_some() {
            objects.insert(child, Some(object(row, 4)?));
        }
    }
    let head = Seq(locked.try_get::<_, i64>(0)? as u64);
    let (batches, latest, now) = (locked.try_get(1)?, Time(locked.try_get(2)?), Time(locked.try_get(3)?));
    let is_sealed = is_sealed_log(locked.try_get(4)?);
    Ok(Some(Locked { connection, volume, head, batches, latest, now, answers, is_sealed, objects, links }))
}

/// A statement failed, or returned invalid data.
pub(super) enum Failed {
    Statement(Error),
    Store(StoreError),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Statement(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Rows for &mut Locked<'_> {
    fn object(&mut self, id: ObjectId) -> Result<Option<Row>, StoreError> {
        if let Some(known) = self.objects.get(&id) {
            return Ok(known.clone());
        }
        // Not read ahead: an ancestor of an object that the batch creates.
        let ids = vec![id.to_bytes().to_vec()];
        let Connection { client, ready } = self.connection;
        let query = async { client.query_opt(&ready.objects, &[&self.volume, &ids]).await };
        let found = runtime().block_on(super::connection::in_time(query))?;
        let row = found.map(|row| object(&row, 1)).transpose()?;
        self.objects.insert(id, row.clone());
        Ok(row)
    }

    fn link(&mut self, at: &LinkName) -> Result<Option<(ObjectId, Seq)>, StoreError> {
        match self.links.get(at) {
            Some(known) => Ok(*known),
            None => Err(StoreError::Damaged("a name that is not part of the batch".into())),
        }
    }
}

/// Decodes three columns from `from` on: the parent, the number of names, the body.
pub(super) fn object(row: &Found, from: usize) -> Result<Row, StoreError> {
    let wrong = super::connection::fault;
    let body: &[u8] = row.try_get(from + 2).map_err(wrong)?;
    let parent: Option<&[u8]> = row.try_get(from).map_err(wrong)?;
    let names: i64 = row.try_get(from + 1).map_err(wrong)?;
    let stored: VersionedObject = codec::decode("an object", body)?;
    Ok(Row { stored, parent: parent.map(to_id).transpose()?, names: names.max(0) as u64 })
}

pub(super) fn to_id(bytes: &[u8]) -> Result<ObjectId, StoreError> {
    let bytes = bytes
        .try_into()
        .map_err(|_| StoreError::Damaged("an object id that does not have 16 bytes".into()))?;
    Ok(ObjectId::from_bytes(bytes))
}

pub(super) fn id(row: &Found, column: usize) -> Result<ObjectId, StoreError> {
    to_id(row.try_get(column).map_err(super::connection::fault)?)
}

/// A part without an earlier answer.
pub(super) struct AcceptedBatch<'a> {
    pub node: &'a NodeName,
    pub token: u128,
    /// Number of its log entries; those of the parts follow each other in the log.
    pub accepted: usize,
    pub answer: Vec<u8>,
}

/// Writes the changes and commits. The statements are pipelined.
pub(super) async fn write(
    connection: &Connection,
    volume: i64,
    batches: i64,
    at: Time,
    by: &[AcceptedBatch<'_>],
    written: &BatchChanges<'_>,
) -> Result<(), Error> {
    let Connection { client, ready } = connection;
    let key = |id: &ObjectId| id.to_bytes().to_vec();
    let rows = || written.objects.iter().map(|(row, _)| row);
    let ids: Vec<_> = rows().map(|row| key(&row.stored.object.id)).collect();
    let above: Vec<_> = rows().map(|row| row.parent.as_ref().map(key)).collect();
    let counts: Vec<i64> = rows().map(|row| row.names as i64).collect();
    let bodies: Vec<_> = rows().map(|row| codec::encode(&row.stored)).collect();
    let ids_gone: Vec<_> = written.deleted_objects.iter().map(key).collect();

    let link_parents: Vec<_> = written.links.iter().map(|link| key(&link.0.parent)).collect();
    let link_names: Vec<&[u8]> = written.links.iter().map(|link| &link.0.name[..]).collect();
    let link_children: Vec<_> = written.links.iter().map(|link| key(&link.1)).collect();
    let link_seqs: Vec<i64> = written.links.iter().map(|link| link.2.0 as i64).collect();
    let gone_parents: Vec<_> = written.deleted_links.iter().map(|at| key(&at.parent)).collect();
    let gone_names: Vec<&[u8]> = written.deleted_links.iter().map(|at| &at.name[..]).collect();

    let chunks: Vec<&[u8]> = written.chunks.keys().map(|id| &id.0[..]).collect();
    let keys: Vec<&str> = written.chunks.values().map(|location| &location.key[..]).collect();
    let offsets: Vec<i64> = written.chunks.values().map(|location| location.offset as i64).collect();
    let stored: Vec<i64> = written.chunks.values().map(|location| i64::from(location.stored)).collect();
    let lengths: Vec<i64> = written.chunks.values().map(|location| i64::from(location.length)).collect();

    let past = &written.past_objects;
    let past_ids: Vec<_> = past.iter().map(|(stored, _)| key(&stored.object.id)).collect();
    let past_untils: Vec<i64> = past.iter().map(|(_, until)| until.0 as i64).collect();
    let past_bodies: Vec<_> = past.iter().map(|(stored, _)| codec::encode(stored)).collect();
    let ended = &written.past_links;
    let ended_parents: Vec<_> = ended.iter().map(|link| key(&link.0.parent)).collect();
    let ended_names: Vec<&[u8]> = ended.iter().map(|link| &link.0.name[..]).collect();
    let ended_untils: Vec<i64> = ended.iter().map(|link| link.3.0 as i64).collect();
    let ended_sinces: Vec<i64> = ended.iter().map(|link| link.2.0 as i64).collect();
    let ended_children: Vec<_> = ended.iter().map(|link| key(&link.1)).collect();

    let mut log = written.log.iter();
    let parts: Vec<_> = by
        .iter()
        .zip(batches + 1..)
        .map(|(by, batch)| {
            let own = || log.clone().take(by.accepted);
            let seqs: Vec<i64> = own().map(|(seq, _)| seq.0 as i64).collect();
            let changes: Vec<_> = own().map(|(_, change)| codec::encode(change)).collect();
            log = log.as_slice().get(by.accepted..).unwrap_or_default().iter();
            (batch, by.node.as_str(), by.token.to_be_bytes(), seqs, changes, &by.answer[..])
        })
        .collect();
    let (head, batches, at) = (written.head.0 as i64, batches + by.len() as i64, at.0);
    let forget = batches - MAX_KEPT_RESULTS as i64;

    // Sent, and so executed, in this order.
    let mut all = Vec::new();
    macro_rules! run {
        ($statement:ident, $($value:expr),*) => {
            all.push(async { client.execute(&ready.$statement, &[&volume, $(&$value),*]).await.map(drop) }.boxed())
        };
    }
    if !ids_gone.is_empty() {
        run!(drop_objects, ids_gone);
    }
    if !ids.is_empty() {
        run!(put_objects, ids, above, counts, bodies);
    }
    if !gone_names.is_empty() {
        run!(drop_links, gone_parents, gone_names);
    }
    if !link_names.is_empty() {
        run!(put_links, link_parents, link_names, link_children, link_seqs);
    }
    if !chunks.is_empty() {
        run!(put_chunks, chunks, keys, offsets, stored, lengths);
    }
    if !past_ids.is_empty() {
        run!(put_past_objects, past_ids, past_untils, past_bodies);
    }
    if !ended_names.is_empty() {
        run!(put_past_links, ended_parents, ended_names, ended_untils, ended_sinces, ended_children);
    }
    for (batch, node, token, seqs, changes, answer) in &parts {
        if !seqs.is_empty() {
            run!(put_log, *seqs, *node, at, *changes);
        }
        run!(put_answer, *batch, *node, &token[..], *answer);
    }
    run!(drop_answers, forget);
    run!(set_head, head, batches, at);
    all.push(client.batch_execute("COMMIT").boxed());
    // After an error the server answers COMMIT without one, and commits nothing: every answer has to be checked.
    future::join_all(all).await.into_iter().collect()
}
