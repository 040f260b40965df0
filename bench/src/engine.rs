//! The volume engine without a mount, over stores that the benchmark starts for it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use object_store::aws::AmazonS3Builder;
use shunt_test_support::servers::S3;
use shunt_volume::chunks::{Blobs, ChunkKeys, ContentStore};
use shunt_volume::id::{ObjectId, OwnerId};
use shunt_volume::object::{Content, Kind, Object, Time};
use shunt_volume::replica::{NewObject, Options, Replica, StoreFetcher, SyncAdapter};
use shunt_volume::store::MetaStore;
use shunt_volume::sync::Synchroniser;

/// An empty object.
pub fn object(id: u128, kind: Kind) -> Object {
    Object {
        id: ObjectId(id),
        kind,
        mode: 0o755,
        owner: OwnerId(0),
        group: OwnerId(0),
        modified: Time(0),
        target: Vec::new(),
        content: Content::empty(),
        xattrs: Default::default(),
    }
}

/// The root directory of a new volume.
pub fn root() -> Object {
    object(ObjectId::ROOT.0, Kind::Directory)
}

/// A new object of this kind, for [`Replica::make`].
pub fn new(kind: Kind) -> NewObject<'static> {
    NewObject { kind, mode: 0o644, owner: OwnerId(0), group: OwnerId(0), target: b"" }
}

/// A client builder for the server's bucket.
pub fn bucket(server: &S3) -> AmazonS3Builder {
    shunt_volume::chunks::choose_tls();
    AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name("bucket")
        .with_access_key_id(S3::KEYS.0)
        .with_secret_access_key(S3::KEYS.1)
}

/// A [`ContentStore`] over the server's bucket.
///
/// # Errors
/// When the address is invalid.
pub fn contents(server: &S3) -> Result<ContentStore> {
    Ok(ContentStore::new(Blobs::over_s3(bucket(server), "volume")?, ChunkKeys::open([1; 32])))
}

/// Incompressible bytes, determined by the seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = (0..length.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes()
    });
    words.take(length).collect()
}

/// One node of a volume.
pub struct Node {
    /// The node's replica.
    pub replica: Arc<Replica>,
    /// Synchronises the replica with the store.
    pub sync: Synchroniser<SyncAdapter>,
}

impl Node {
    /// Opens a node with its cache in a directory.
    ///
    /// # Errors
    /// Errors of opening the directory; when `name` is no node name.
    pub fn open(at: &Path, name: &str, meta: &Arc<dyn MetaStore>, contents: &ContentStore) -> Result<Self> {
        let name = name.parse().ok().context("invalid node name")?;
        let replica = Arc::new(Replica::open(at, Options::new("bench", name))?);
        replica.set_fetcher(Some(Arc::new(StoreFetcher::new(meta.clone(), contents.clone()))));
        let site = SyncAdapter::new(replica.clone(), meta.clone(), contents.clone());
        let node = replica.node_name().clone();
        let sync = Synchroniser::new(site, meta.clone(), node, rand::random::<u128>);
        Ok(Self { replica, sync })
    }

    /// Makes a file with these bytes.
    ///
    /// # Errors
    /// Errors of the replica and of the write.
    pub fn write(&self, parent: u64, name: &str, bytes: &[u8]) -> Result<u64> {
        let num = self.replica.make(parent, name.as_bytes(), new(Kind::Regular))?.ino;
        let opened = self.replica.open_file(num, true, false)?;
        let written: Result<(), std::io::Error> = File::write_all_at(&opened.file, bytes, 0);
        self.replica.release_open(num, true, opened.session);
        written?;
        Ok(num)
    }

    /// Synchronises until no changes are left to send or receive.
    ///
    /// # Errors
    /// Errors of synchronisation; when the user interrupts.
    pub fn sync_until_idle(&mut self) -> Result<()> {
        loop {
            crate::job::check()?;
            let step = self.sync.step()?;
            match step.blocked {
                _ if step.more || step.sent + step.received > 0 => {}
                0 => return Ok(()),
                // A large file is uploaded only some time after it was closed.
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}
