//! The daemon's handler of requests about a volume.

use std::sync::Arc;

use serde_json::Value;
use shunt_volume::history::{self, NameSource, OpKind, Operation, Reader, timestamp};
use shunt_volume::id::{ObjectId, Seq};
use shunt_volume::merge::Side;
use shunt_volume::object::{Kind, LinkName};
use shunt_volume::replica::{ConflictInfo, Replica, Version};
use shunt_volume::store::MetaStore;

use crate::cmd::volume::api;
use crate::control::VolumeAsk;

/// Most commits in a reply, which even then stays below the limit of its size.
const MAX_COMMITS: u32 = 10_000;
/// Approximate limit of the bytes of paths in a reply.
const MAX_REPLY_PATH_BYTES: usize = 2 << 20;

/// Answers requests about a mounted volume, from its replica and its store.
pub struct ControlHandler {
    pub replica: Arc<Replica>,
    pub meta: Arc<dyn MetaStore>,
}

impl ControlHandler {
    pub fn answer(&self, ask: &VolumeAsk) -> Result<Value, String> {
        match ask {
            VolumeAsk::Conflicts { under } => {
                let found = self.conflicts(under, true)?;
                to_value(&found.iter().map(conflict).collect::<Vec<_>>())
            }
            VolumeAsk::Resolve { keep, path, below } => to_value(&self.resolve(keep, path, *below)?),
            VolumeAsk::Pin { path, pinned } => self.pin(path, *pinned),
            VolumeAsk::History { path } => to_value(&self.history(path)?),
            VolumeAsk::Tree => Err("this is not a tree of volumes".to_owned()),
            VolumeAsk::Log { path, limit } => to_value(&self.log(path.as_deref(), *limit)?),
        }
    }

    fn conflicts(&self, under: &[u8], below: bool) -> Result<Vec<ConflictInfo>, String> {
        let mut all = self.replica.conflicts_with_paths().map_err(|errno| errno.to_string())?;
        all.retain(|one| one.path == under || below && is_below(&one.path, under));
        all.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(all)
    }

    fn resolve(&self, keep: &str, path: &[u8], below: bool) -> Result<Vec<api::Resolved>, String> {
        let found = self.conflicts(path, below)?;
        if found.is_empty() && !below {
            return Err(format!("{}: there is no conflict", text(path)));
        }
        Ok(found
            .iter()
            .map(|one| api::Resolved { path: text(&one.path), error: self.resolve_one(one, keep).err() })
            .collect())
    }

    /// Resolves a conflict as removing the other version's entry does.
    fn resolve_one(&self, one: &ConflictInfo, keep: &str) -> Result<(), String> {
        let kept = one.sides.iter().find(|side| side.name == keep.as_bytes());
        let done = match kept {
            Some(side) => self.replica.resolve(&one.at, side.side),
            None if keep == "both" => self.replica.keep_both(&one.at),
            None => {
                let [mine, theirs] = &one.sides;
                return Err(format!(
                    "there is no version of {keep}; choose {} or {}",
                    text(&mine.name),
                    text(&theirs.name)
                ));
            }
        };
        done.map_err(|errno| errno.to_string())
    }

    fn pin(&self, path: &[u8], pinned: bool) -> Result<Value, String> {
        let failed = |errno: rustix::io::Errno| format!("{}: {errno}", text(path));
        let node = self.replica.walk(path).map_err(failed)?;
        self.replica.pin(node.ino, pinned).map_err(failed)?;
        if !pinned && self.replica.is_pinned(node.ino).map_err(failed)? {
            return Err(format!("{}: a directory above it is pinned; unpin that directory", text(path)));
        }
        Ok(Value::Null)
    }

    fn history(&self, path: &[u8]) -> Result<Vec<api::Version>, String> {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = slash.map_or((&b""[..], path), |slash| (&path[..slash], &path[slash + 1..]));
        let directory = self.replica.walk(above).map_err(|errno| format!("{}: {errno}", text(above)))?;
        let meta = &*self.meta;
        let found = match name {
            b"" => history::versions(meta, directory.id),
            name => history::versions_of_name(meta, &LinkName { parent: directory.id, name: name.to_vec() }),
        };
        let found = found.map_err(|error| error.to_string())?;
        Ok(found.into_iter().map(version).collect())
    }

    fn log(&self, path: Option<&[u8]>, limit: u32) -> Result<Vec<api::Commit>, String> {
        let names = Names(&self.replica);
        let mut reader = Reader::new(&*self.meta, &names).map_err(|error| error.to_string())?;
        let (mut commits, mut bytes) = (Vec::new(), 0);
        let limit = limit.min(MAX_COMMITS) as usize;
        while commits.len() < limit && bytes < MAX_REPLY_PATH_BYTES {
            let page = reader.earlier().map_err(|error| error.to_string())?;
            if page.is_empty() {
                break;
            }
            for mut commit in page {
                if let Some(path) = path {
                    commit.operations.retain(|operation| concerns(operation, path));
                }
                if commit.operations.is_empty() || commits.len() == limit || bytes >= MAX_REPLY_PATH_BYTES {
                    continue;
                }
                let commit = self::commit(commit);
                bytes += commit.changes.iter().map(|change| change.bytes()).sum::<usize>();
                commits.push(commit);
            }
        }
        Ok(commits)
    }
}

impl api::Change {
    fn bytes(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        100 + of(&self.path) + of(&self.detail)
    }
}

struct Names<'a>(&'a Replica);

impl NameSource for Names<'_> {
    fn names(&self, id: ObjectId) -> Vec<(LinkName, Seq)> {
        self.0.agreed_names(id).unwrap_or_default()
    }

    fn is_directory(&self, id: ObjectId) -> bool {
        id == ObjectId::ROOT || self.0.find(id).ok().flatten().is_some_and(|node| node.is_directory())
    }
}

fn is_below(path: &[u8], above: &[u8]) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/'))
}

fn concerns(operation: &Operation, path: &[u8]) -> bool {
    let is = |one: &[u8]| one == path || is_below(one, path);
    operation.path.as_deref().is_some_and(is) || matches!(&operation.kind, OpKind::Moved(from) if is(from))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn to_value(commits: &impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(commits).map_err(|error| error.to_string())
}

fn conflict(one: &ConflictInfo) -> api::Conflict {
    api::Conflict {
        path: text(&one.path),
        kind: one.kind.as_str().to_owned(),
        since: timestamp::exact(one.since),
        sides: one.sides.iter().map(side).collect(),
    }
}

fn side(version: &Version) -> api::Side {
    let inode = version.inode.as_ref();
    api::Side {
        node: text(&version.name),
        here: version.side == Side::Local,
        what: inode.map_or("deleted", |inode| kind(inode.kind)).to_owned(),
        size: inode.map_or(0, |inode| inode.size),
        modified: inode.map(|inode| timestamp::exact(inode.modified)),
        owner: inode.map(|inode| inode.owner.0),
    }
}

pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Regular => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "pipe",
        Kind::Socket => "socket",
        Kind::Character(..) => "character device",
        Kind::Block(..) => "block device",
    }
}

fn version(version: history::PathVersion) -> api::Version {
    let object = version.object.as_ref();
    api::Version {
        seq: version.since.0,
        at: version.by.as_ref().map(|(at, _)| timestamp::exact(*at)),
        node: version.by.map(|(_, node)| node.to_string()),
        what: object.map_or("removed", |object| kind(object.kind)).to_owned(),
        size: object.map_or(0, |object| object.content.size),
        mode: object.map(|object| format!("{:04o}", object.mode)),
        current: version.is_current,
    }
}

fn commit(commit: history::Commit) -> api::Commit {
    api::Commit {
        seq: commit.seq.0,
        at: timestamp::exact(commit.at),
        node: commit.node.to_string(),
        changes: commit.operations.into_iter().map(change).collect(),
    }
}

fn change(operation: Operation) -> api::Change {
    let (what, detail) = match operation.kind {
        OpKind::Made(made) => ("made", Some(kind(made).to_owned())),
        OpKind::Written(size) => ("wrote", Some(format!("{size} bytes"))),
        OpKind::Moved(from) => ("moved", Some(format!("from {}", text(&from)))),
        OpKind::Linked => ("linked", None),
        OpKind::Removed => ("removed", None),
        OpKind::Mode(mode) => ("mode", Some(format!("{mode:04o}"))),
        OpKind::Owner(owner) => ("owner", Some(owner.to_string())),
        OpKind::Group(group) => ("group", Some(group.to_string())),
        OpKind::Touched => ("time", None),
        OpKind::Xattr(name) => ("xattr", Some(text(&name))),
    };
    api::Change { what: what.to_owned(), path: operation.path.map(|path| text(&path)), detail }
}
