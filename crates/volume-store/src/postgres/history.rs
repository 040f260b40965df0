//! Past versions in PostgreSQL, from the tables of superseded objects and links, and from the current ones.

use shunt_volume_types::id::{ObjectId, Seq};
use shunt_volume_types::object::{LinkName, StoredLink, Time, VersionedObject};
use tokio_postgres::Row as Found;
use tokio_postgres::types::ToSql;

use super::connection::fault;
use super::{PostgresStore, rows};
use crate::history::{History, MAX_VERSIONS, PastLink, Version};
use crate::{StoreError, codec};

fn number(row: &Found, column: usize) -> Result<Seq, StoreError> {
    Ok(Seq(row.try_get::<_, i64>(column).map_err(fault)? as u64))
}

fn link(row: &Found) -> Result<StoredLink, StoreError> {
    let at = LinkName { parent: rows::id(row, 0)?, name: row.try_get(1).map_err(fault)? };
    Ok(StoredLink { at, child: rows::id(row, 2)?, set: number(row, 3)? })
}

fn past(row: &Found) -> Result<PastLink, StoreError> {
    Ok(PastLink { link: link(row)?, until: number(row, 4)? })
}

fn seq(at: Seq) -> i64 {
    at.0.min(i64::MAX as u64) as i64
}

const MAX_ROWS: i64 = MAX_VERSIONS as i64;

impl History for PostgresStore {
    fn complete_since(&self) -> Result<Seq, StoreError> {
        let found = self.with(async |c| c.client.query_one(&c.ready.kept, &[&self.volume]).await)?;
        number(&found, 0)
    }

    fn object_at(&self, id: ObjectId, at: Seq) -> Result<Option<VersionedObject>, StoreError> {
        let (id, at_number) = (id.to_bytes(), seq(at));
        let values: [&(dyn ToSql + Sync); 3] = [&self.volume, &&id[..], &at_number];
        let found = self.with(async |c| c.client.query_opt(&c.ready.object_at, &values).await)?;
        let Some(found) = found else { return Ok(None) };
        let stored: VersionedObject =
            codec::decode("a version of an object", found.try_get(0).map_err(fault)?)?;
        Ok((stored.since() <= at).then_some(stored))
    }

    fn link_at(&self, name: &LinkName, at: Seq) -> Result<Option<StoredLink>, StoreError> {
        let (parent, at) = (name.parent.to_bytes(), seq(at));
        let values: [&(dyn ToSql + Sync); 4] = [&self.volume, &&parent[..], &&name.name[..], &at];
        let found = self.with(async |c| c.client.query_opt(&c.ready.link_at, &values).await)?;
        found.as_ref().map(link).transpose()
    }

    fn links_at(
        &self,
        parent: ObjectId,
        at: Seq,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<StoredLink>, StoreError> {
        let (parent, at, limit) = (parent.to_bytes(), seq(at), limit.min(u32::MAX as usize) as i64);
        let values: [&(dyn ToSql + Sync); 5] = [&self.volume, &&parent[..], &after, &at, &limit];
        let found = self.with(async |c| c.client.query(&c.ready.links_at, &values).await)?;
        found.iter().map(link).collect()
    }

    fn versions(&self, id: ObjectId) -> Result<Vec<Version>, StoreError> {
        let id = id.to_bytes();
        let values: [&(dyn ToSql + Sync); 3] = [&self.volume, &&id[..], &MAX_ROWS];
        let found = self.with(async |c| c.client.query(&c.ready.versions, &values).await)?;
        let mut versions = Vec::with_capacity(found.len());
        for row in &found {
            let until: Option<i64> = row.try_get(0).map_err(fault)?;
            let stored: VersionedObject =
                codec::decode("a version of an object", row.try_get(1).map_err(fault)?)?;
            versions.push(Version {
                since: stored.since(),
                stored,
                until: until.map(|until| Seq(until as u64)),
                by: None,
            });
        }
        let sinces: Vec<i64> = versions.iter().map(|version| seq(version.since)).collect();
        let rows = self.with(async |c| c.client.query(&c.ready.log_of, &[&self.volume, &sinces]).await)?;
        let mut by = std::collections::HashMap::new();
        for row in &rows {
            let node: String = row.try_get(1).map_err(fault)?;
            if let Ok(node) = node.parse() {
                by.insert(number(row, 0)?, (Time(row.try_get(2).map_err(fault)?), node));
            }
        }
        for version in &mut versions {
            version.by = by.get(&version.since).cloned();
        }
        Ok(versions)
    }

    fn past_of_name(&self, name: &LinkName) -> Result<Vec<PastLink>, StoreError> {
        let parent = name.parent.to_bytes();
        let values: [&(dyn ToSql + Sync); 4] = [&self.volume, &&parent[..], &&name.name[..], &MAX_ROWS];
        let found = self.with(async |c| c.client.query(&c.ready.past_of_name, &values).await)?;
        found.iter().map(past).collect()
    }

    fn past_names(&self, ids: &[ObjectId]) -> Result<Vec<PastLink>, StoreError> {
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| id.to_bytes().to_vec()).collect();
        let limit = MAX_ROWS.saturating_mul(ids.len() as i64);
        let found =
            self.with(async |c| c.client.query(&c.ready.past_names, &[&self.volume, &keys, &limit]).await)?;
        found.iter().map(past).collect()
    }
}
