//! Ownership of an object store's prefix. Packs do not name their volume, and the garbage collector deletes packs unknown to
//! its metadata: a marker object records which volume owns the prefix.

use std::time::Duration;

use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _, PutPayload};

use crate::address::DataAddress;
use crate::chunks::{Blobs, ContentError, ContentStore, fault};
use crate::id::Seq;
use crate::maintenance::MaintenanceError;
use crate::object::Time;
use crate::runtime::runtime;
use crate::store::StoreError;
use crate::store::admin::StoreAdmin;
use crate::store::gc_lock::MOVES_SETTING;
use crate::volume::{Volume, VolumeDescriptor};

/// Key of the marker: the volume that owns the location.
const MARKER_KEY: &str = "shunt.volume";
/// Beginning of the marker's content; the id of the volume follows. Not the name: that of an encrypted volume is hidden from
/// its store.
const MARKER_PREFIX: &str = "shunt volume ";
/// Key of the object with the commit at which garbage was collected last.
const COLLECTED_KEY: &str = "shunt.collected";
/// Key of the object with the number of times that chunks were moved by compaction.
const MOVED_KEY: &str = "shunt.moved";
/// Number of chunks in a pack that are verified in search of an intact one.
const MAX_VERIFIED_CHUNKS: usize = 4;

/// The reason why a volume may not use a location.
#[derive(Debug, thiserror::Error)]
pub enum StoreOwnerError {
    /// A new volume's location belongs to another one.
    #[error(
        "the contents of another volume are {0}, according to the object `{MARKER_KEY}`, and \
            volumes cannot share a \
         location: choose another prefix or directory"
    )]
    Taken(String),
    /// The location has packs of unknown ownership: of an older version, or of a volume whose metadata is lost.
    #[error(
        "packs of an unknown volume are {0}, without an object `{MARKER_KEY}`, and volumes \
            cannot share a location: \
         choose another prefix or directory"
    )]
    Unmarked(String),
    /// The contents of this volume are in a location of another one.
    #[error(
        "the contents are {0}, a location of another volume according to the object \
            `{MARKER_KEY}`: nothing was \
         collected, since that could delete data of the other volume; if no other volume uses the location, remove that \
         object"
    )]
    Foreign(String),
    /// The metadata is older than the last garbage collection.
    #[error(
        "the last garbage collection was at commit {seen}, and this metadata is at commit \
            {head}, so it is an older \
         copy: nothing was collected; if it replaces lost metadata, remove the object `{COLLECTED_KEY}` {at}"
    )]
    Behind {
        /// The commit at the last collection.
        seen: Seq,
        /// The last commit of this metadata.
        head: Seq,
        /// The location.
        at: String,
    },
    /// The metadata is older than the last compaction.
    #[error(
        "chunks were moved to other packs after this metadata was copied, so its locations \
            are outdated: nothing was \
         collected; if this metadata replaces lost metadata, find the chunks with `shunt volume check --repair`, then remove \
         the object `{MOVED_KEY}` {0}"
    )]
    Moved(String),
    /// An error of the object store.
    #[error(transparent)]
    Content(#[from] ContentError),
}

fn location_text(data: &DataAddress) -> String {
    match data {
        DataAddress::Beside => data.to_string(),
        DataAddress::Http(_) => format!("at {data}"),
        DataAddress::Directory(_) | DataAddress::S3(..) | DataAddress::Gcs(..) | DataAddress::Azure(..) => {
            format!("in {data}")
        }
    }
}

/// The marker object of a location.
struct OwnershipMarker {
    content: Vec<u8>,
    since: ObjectMeta,
}

impl OwnershipMarker {
    fn of(id: u128) -> Vec<u8> {
        format!("{MARKER_PREFIX}{id:032x}\n").into_bytes()
    }

    async fn read(blobs: &Blobs) -> Result<Option<Self>, ContentError> {
        Ok(object(blobs, MARKER_KEY).await?.map(|(since, content)| Self { content, since }))
    }

    /// Writes the marker unless there is one, and returns the effective one.
    async fn put(blobs: &Blobs, id: u128) -> Result<Self, ContentError> {
        blobs.put(MARKER_KEY, Self::of(id)).await?;
        // Two volumes may have written it concurrently: read back whose it is.
        let effective = Self::read(blobs).await?;
        effective.ok_or_else(|| ContentError::Missing(format!("{MARKER_KEY}, which was just written")))
    }
}

async fn object(blobs: &Blobs, key: &str) -> Result<Option<(ObjectMeta, Vec<u8>)>, ContentError> {
    let found = match blobs.begin(key, None).await {
        Err(ContentError::Missing(_)) => return Ok(None),
        found => found?,
    };
    let about = found.meta.clone();
    Ok(Some((about, found.bytes().await.map_err(fault)?.to_vec())))
}

/// The location of a volume that is being created. The marker is removed on drop unless the creation succeeded.
pub(crate) struct StoreOwner {
    blobs: Blobs,
    is_committed: bool,
}

impl StoreOwner {
    /// Writes the marker of a volume to an empty location.
    ///
    /// # Errors
    /// [`OpenError::StoreOwner`] with a [`StoreOwnerError`]; errors of the object store.
    pub fn new(content: &ContentStore, described: &VolumeDescriptor) -> Result<Self, StoreOwnerError> {
        let (blobs, at) = (content.blobs().clone(), || location_text(&described.data));
        runtime().block_on(async {
            if OwnershipMarker::read(&blobs).await?.is_some() {
                return Err(StoreOwnerError::Taken(at()));
            }
            let below = "packs".into();
            let pack = blobs.objects().list(Some(&below)).try_next().await.map_err(fault)?;
            if pack.is_some() {
                return Err(StoreOwnerError::Unmarked(at()));
            }
            if OwnershipMarker::put(&blobs, described.id).await?.content != OwnershipMarker::of(described.id)
            {
                return Err(StoreOwnerError::Taken(at()));
            }
            Ok(())
        })?;
        Ok(Self { blobs, is_committed: false })
    }

    /// Keeps the marker: the volume was created.
    pub fn commit(mut self) {
        self.is_committed = true;
    }
}

impl Drop for StoreOwner {
    fn drop(&mut self) {
        if !self.is_committed {
            // If the deletion fails, the next `create` at this location fails and names the marker.
            runtime().block_on(self.blobs.delete(MARKER_KEY)).ok();
        }
    }
}

/// Verifies the ownership of the location, and returns the age of its marker. A volume of an older version gets its marker
/// here.
///
/// # Errors
/// [`StoreOwnerError`]; errors of either store.
pub(super) fn verify_ownership(volume: &Volume) -> Result<Duration, MaintenanceError> {
    let (blobs, id) = (volume.content.blobs(), volume.described.id);
    let at = || location_text(&volume.described.data);
    let (mark, seen, moved) = runtime().block_on(async {
        let mark = match OwnershipMarker::read(blobs).await? {
            Some(mark) => mark,
            None => OwnershipMarker::put(blobs, id).await?,
        };
        Ok::<_, ContentError>((mark, object(blobs, COLLECTED_KEY).await?, object(blobs, MOVED_KEY).await?))
    })?;
    if mark.content != OwnershipMarker::of(id) {
        return Err(StoreOwnerError::Foreign(at()).into());
    }
    // After reading the records, which another collector may advance meanwhile.
    let head = volume.meta.head()?;
    if let Some((_, content)) = seen {
        let seen = Seq(number(COLLECTED_KEY, &content)?);
        if seen > head {
            return Err(StoreOwnerError::Behind { seen, head, at: at() }.into());
        }
    }
    if let Some((_, content)) = moved
        && number(MOVED_KEY, &content)? > moves(volume.admin()?)?
    {
        return Err(StoreOwnerError::Moved(at()).into());
    }
    let now = std::time::SystemTime::now();
    Ok(now.duration_since(mark.since.last_modified.into()).unwrap_or_default())
}

/// Records that garbage is collected at a commit: older metadata refuse to collect from now on.
pub(super) fn record_collection(volume: &Volume, head: Seq) -> Result<(), MaintenanceError> {
    Ok(write_number(volume, COLLECTED_KEY, head.0)?)
}

/// Records how often chunks were moved by compaction: metadata that lack these moves refuse to collect from now on. Called
/// before a pack is deleted that they need.
pub(super) fn record_moves(volume: &Volume, admin: &dyn StoreAdmin) -> Result<(), MaintenanceError> {
    match moves(admin)? {
        0 => Ok(()),
        moves => Ok(write_number(volume, MOVED_KEY, moves)?),
    }
}

fn moves(admin: &dyn StoreAdmin) -> Result<u64, MaintenanceError> {
    let content = admin.setting(MOVES_SETTING)?;
    Ok(content.map_or(Ok(0), |content| number(MOVES_SETTING, content.as_bytes()))?)
}

/// Parses a number written by [`write_number`].
fn number(key: &str, content: &[u8]) -> Result<u64, ContentError> {
    let content = String::from_utf8_lossy(content);
    let wrong =
        |_| ContentError::Damaged(format!("object `{key}` contains {content:?}, which is not a number"));
    content.trim().parse().map_err(wrong)
}

fn write_number(volume: &Volume, key: &str, number: u64) -> Result<(), ContentError> {
    let content = PutPayload::from(format!("{number}\n").into_bytes());
    let objects = volume.content.blobs().objects();
    runtime().block_on(objects.put(&key.into(), content)).map(drop).map_err(|error| match error {
        object_store::Error::PermissionDenied { source, .. } => ContentError::Denied(source.to_string()),
        error => fault(error),
    })
}

/// Reports whether a pack unknown to the metadata belongs to the volume: chunk names match only with its keys.
pub(super) fn is_own(content: &ContentStore, key: &str) -> Result<bool, ContentError> {
    let some: Vec<_> = match content.index(key) {
        Ok(index) => index.into_iter().take(MAX_VERIFIED_CHUNKS).collect(),
        // Of a newer version, or of unknown ownership.
        Err(ContentError::Damaged(_) | ContentError::Missing(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    let (mut wrong, all) = (0, some.len());
    content.verify(some, |_, _| wrong += 1)?;
    Ok(wrong < all)
}

/// Returns the time of the last commit, as far as the log tells.
pub(super) fn last_commit_time(volume: &Volume) -> Result<Time, StoreError> {
    let admin = volume.admin()?;
    let head = admin.head()?;
    let last = match admin.log_since(Seq(head.0.saturating_sub(1)), 1) {
        Err(StoreError::Forgotten(_)) => Vec::new(),
        last => last?,
    };
    Ok(last.last().map_or(volume.described.made, |entry| entry.at))
}
