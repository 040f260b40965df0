//! Creates and opens volumes: from addresses to a [`Volume`] with both its stores.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::address::routing::MapError;
use crate::address::{AddressError, DataAddress, MetaAddress};
use crate::chunks::{Blobs, ChunkKeys, ContentError, ContentStore};
use crate::crypto::VolumeKey;
use crate::gateway::{BadCertificate, Client, Credentials, JoinError};
use crate::id::{ObjectId, OwnerId, VolumeName};
use crate::maintenance::StoreOwnerError;
use crate::maintenance::store_owner::StoreOwner;
use crate::object::{Content, Kind, Object};
use crate::store::admin::StoreAdmin;
use crate::store::lazy::LazyStore;
use crate::store::seal::{RootAttributes, UnsealedChain, tampered};
use crate::store::{MetaStore, PostgresStore, SqliteStore, StoreError, sqlite, system_clock};
use crate::volume::{KeyError, Volume, VolumeDescriptor};

/// The file of the metadata in the directory of a `sqlite:` volume.
const META_FILE: &str = "meta.db";
/// The directory of the contents in it.
const DATA_DIR: &str = "data";

/// The reason why a volume cannot be opened or created.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An address that cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// An error of the metadata store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the object store.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The location of the contents belongs, or may belong, to another volume.
    #[error(transparent)]
    StoreOwner(StoreOwnerError),
    /// The credentials of a gateway's node cannot be used.
    #[error(transparent)]
    Credentials(#[from] JoinError),
    /// The routing file does not lead to the volume.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The key is missing or wrong, or the volume is not encrypted.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl From<StoreOwnerError> for OpenError {
    fn from(error: StoreOwnerError) -> Self {
        match error {
            StoreOwnerError::Content(error) => Self::Content(error),
            error => Self::StoreOwner(error),
        }
    }
}

/// The settings of a volume to be created.
#[derive(Debug, Clone)]
pub struct Options {
    /// The store of its contents.
    pub data: DataAddress,
    /// Encrypts contents and names; `None`: the volume is not encrypted.
    pub secret: Option<VolumeKey>,
    /// Permission bits of the root directory.
    pub mode: u16,
    /// Owning user of the root directory.
    pub owner: OwnerId,
    /// Owning group of the root directory.
    pub group: OwnerId,
}

impl Default for Options {
    fn default() -> Self {
        Self { data: DataAddress::Beside, secret: None, mode: 0o755, owner: OwnerId(0), group: OwnerId(0) }
    }
}

/// Creates a volume. A failed attempt leaves no volume and releases its location in the object store.
///
/// # Errors
/// [`StoreError::Exists`]; [`OpenError::StoreOwner`] where another volume's contents are; those of the stores.
pub fn create(meta: &MetaAddress, name: &VolumeName, options: &Options) -> Result<Volume, OpenError> {
    let meta = &meta.resolve(name)?;
    let made = system_clock()();
    let root = Object {
        id: ObjectId::ROOT,
        kind: Kind::Directory,
        mode: options.mode,
        owner: options.owner,
        group: options.group,
        modified: made,
        target: Vec::new(),
        content: Content::empty(),
        xattrs: Default::default(),
    };
    let (id, secret) = (rand::random(), options.secret.as_ref());
    let described = VolumeDescriptor {
        name: name.clone(),
        id,
        made,
        data: options.data.clone(),
        names: rand::random(),
        mark: secret.map(VolumeKey::mark_of_sealed),
        hides_names: secret.is_some(),
        sealed: secret.map(|secret| UnsealedChain::new(secret, id).seal(RootAttributes::from(&root))),
    };
    // Contents first: a volume whose object store is not writable is not created.
    let content = contents(meta, &described, &|described| Ok(described.keys(options.secret.as_ref())?))?;
    content.probe()?;
    // An existing volume owns its location, which would otherwise be reported as the reason.
    if open_meta(meta, name).is_ok() {
        return Err(StoreError::Exists(name.clone()).into());
    }
    let owner_marker = StoreOwner::new(&content, &described)?;
    let about = described.to_bytes();
    let admin: Arc<dyn StoreAdmin> = match meta {
        MetaAddress::Sqlite(dir) => {
            create_directory(dir)?;
            Arc::new(SqliteStore::create(&dir.join(META_FILE), name, &root, &about)?)
        }
        MetaAddress::Postgres(address) => Arc::new(PostgresStore::create(address, name, &root, &about)?),
        MetaAddress::Gateway(_) | MetaAddress::Map(_) => return Err(made_elsewhere(meta)),
    };
    owner_marker.commit();
    let volume = Volume { meta: admin.clone(), admin: Some(admin), content, described };
    volume.decrypted_by(options.secret.as_ref()).map_err(OpenError::from)
}

/// Opens a volume.
///
/// # Errors
/// [`StoreError::NoVolume`], [`StoreError::Format`], [`KeyError`]; those of the stores.
pub fn open(meta: &MetaAddress, name: &VolumeName, secret: Option<&VolumeKey>) -> Result<Volume, OpenError> {
    open_by(meta, name, &|described| Ok(described.keys(secret)?))?
        .decrypted_by(secret)
        .map_err(OpenError::from)
}

/// Opens a volume by its cached descriptor, without contacting its metadata store: the store is opened by the first call that
/// needs it, and that call returns the error.
///
/// # Errors
/// As [`open`], without errors of the metadata store.
pub fn open_cached(
    meta: &MetaAddress,
    descriptor: &VolumeDescriptor,
    secret: Option<&VolumeKey>,
) -> Result<Volume, OpenError> {
    let meta = meta.resolve(&descriptor.name)?;
    if let MetaAddress::Gateway(_) = meta {
        return open(&meta, &descriptor.name, secret);
    }
    let content = contents(&meta, descriptor, &|described| Ok(described.keys(secret)?))?;
    let (name, id, sealed) = (descriptor.name.clone(), descriptor.id, descriptor.sealed);
    let store = LazyStore::new(move || {
        let (store, about) = open_meta(&meta, &name).map_err(|error| match error {
            OpenError::Store(error) => error,
            error => StoreError::Unreachable(error.to_string()),
        })?;
        let found = VolumeDescriptor::from_bytes(&about)?;
        match found.id == id {
            true if found.sealed == sealed => Ok(store as Arc<dyn MetaStore>),
            true if sealed.is_none() => {
                Err(StoreError::Denied(format!("volume {name} was upgraded: unmount it and mount it again")))
            }
            true => Err(tampered("its volume descriptor differs from the one that this node knows")),
            false => Err(StoreError::Damaged(format!("another volume is named {name} there"))),
        }
    });
    let volume = Volume { meta: Arc::new(store), admin: None, content, described: descriptor.clone() };
    volume.decrypted_by(secret).map_err(OpenError::from)
}

/// Opens a volume without its key, to relay stored data. The contents of an encrypted volume cannot be read through it.
///
/// # Errors
/// As [`open`], without [`KeyError`].
pub fn open_without_key(meta: &MetaAddress, name: &VolumeName) -> Result<Volume, OpenError> {
    open_by(meta, name, &|described| Ok(ChunkKeys::open(described.names)))
}

/// Opens a volume for a gateway: as [`open_without_key`], and where the volume is itself behind a gateway, as a gateway that
/// passes the names of its nodes on.
///
/// # Errors
/// As [`open_without_key`].
pub fn open_to_serve(meta: &MetaAddress, name: &VolumeName) -> Result<Volume, OpenError> {
    match meta.resolve(name)? {
        MetaAddress::Gateway(file) => {
            open_remote(&file, name, &|described| Ok(ChunkKeys::open(described.names)), Client::of_gateway)
        }
        meta => open_without_key(&meta, name),
    }
}

/// Derives the chunk keys of a volume from its descriptor.
type FindKeys<'a> = dyn Fn(&VolumeDescriptor) -> Result<ChunkKeys, OpenError> + 'a;

fn open_by(meta: &MetaAddress, name: &VolumeName, keys: &FindKeys<'_>) -> Result<Volume, OpenError> {
    let meta = &meta.resolve(name)?;
    if let MetaAddress::Gateway(file) = meta {
        return open_remote(file, name, keys, Client::of);
    }
    let (admin, about) = open_meta(meta, name)?;
    let described = VolumeDescriptor::from_bytes(&about)?;
    if described.name != *name {
        return Err(StoreError::NoVolume(name.clone()).into());
    }
    let content = contents(meta, &described, keys)?;
    Ok(Volume { meta: admin.clone(), admin: Some(admin), content, described })
}

/// Opens a metadata store that is not a gateway. Returns it with the stored form of the volume's descriptor.
pub(crate) fn open_meta(
    meta: &MetaAddress,
    name: &VolumeName,
) -> Result<(Arc<dyn StoreAdmin>, Vec<u8>), OpenError> {
    match meta {
        MetaAddress::Sqlite(dir) => {
            let path = dir.join(META_FILE);
            if !path.exists() {
                return Err(StoreError::NoVolume(name.clone()).into());
            }
            let store = SqliteStore::open(&path)?;
            let about = store.descriptor()?;
            Ok((Arc::new(store), about))
        }
        MetaAddress::Postgres(address) => {
            let store = PostgresStore::open(address, name)?;
            let about = store.descriptor()?;
            Ok((Arc::new(store), about))
        }
        MetaAddress::Gateway(_) | MetaAddress::Map(_) => Err(made_elsewhere(meta)),
    }
}

fn open_remote(
    file: &Path,
    name: &VolumeName,
    keys: &FindKeys<'_>,
    client: fn(Credentials, &Path) -> Result<Client, BadCertificate>,
) -> Result<Volume, OpenError> {
    let credentials = Credentials::load(file)?;
    if credentials.volume != *name {
        return Err(StoreError::NoVolume(name.clone()).into());
    }
    let described = VolumeDescriptor::from_bytes(credentials.descriptor())?;
    let keys = keys(&described)?;
    let client = client(credentials, file).map_err(JoinError::from)?;
    let content = ContentStore::new(Blobs::over(Arc::new(client.blobs())), keys);
    Ok(Volume { meta: Arc::new(client), admin: None, content, described })
}

fn made_elsewhere(meta: &MetaAddress) -> OpenError {
    let why = "create the volume where its stores are, not through a gateway";
    AddressError(format!("{meta:?}"), why).into()
}

fn contents(
    meta: &MetaAddress,
    described: &VolumeDescriptor,
    keys: &FindKeys<'_>,
) -> Result<ContentStore, OpenError> {
    let blobs = match (&described.data, meta) {
        (DataAddress::Beside, MetaAddress::Sqlite(dir)) => {
            let data = dir.join(DATA_DIR);
            create_directory(&data)?;
            // An older version may have created it with wider permissions. A directory named by `file:` may be shared on
            // purpose.
            sqlite::tighten(&data);
            Blobs::directory(&data)?
        }
        (DataAddress::Beside, MetaAddress::Postgres(_)) => {
            let why = "a volume in PostgreSQL needs --data s3://BUCKET/PREFIX or file:DIR";
            return Err(AddressError(described.data.to_string(), why).into());
        }
        (_, MetaAddress::Gateway(_) | MetaAddress::Map(_)) => return Err(made_elsewhere(meta)),
        (DataAddress::Directory(dir), _) => Blobs::directory(dir)?,
        (DataAddress::S3(bucket, prefix), _) => Blobs::s3(bucket, prefix)?,
        (DataAddress::Gcs(bucket, prefix), _) => Blobs::gcs(bucket, prefix)?,
        (DataAddress::Azure(container, prefix), _) => Blobs::azure(container, prefix)?,
        (DataAddress::Http(url), _) => Blobs::http(url)?,
    };
    Ok(ContentStore::new(blobs, keys(described)?))
}

/// Creates a directory with mode 0700: it holds names and contents of all of the volume's users.
fn create_directory(dir: &Path) -> Result<(), StoreError> {
    let mut make = std::fs::DirBuilder::new();
    make.recursive(true).mode(0o700);
    make.create(dir).map_err(|error| StoreError::Unreachable(format!("{}: {error}", dir.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_opens_as_it_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let at = MetaAddress::Sqlite(dir.path().join("v"));
        let (name, other): (VolumeName, VolumeName) = ("notes".parse().unwrap(), "other".parse().unwrap());
        assert!(matches!(open(&at, &name, None), Err(OpenError::Store(StoreError::NoVolume(_)))));
        let secret = VolumeKey::random();
        let options = Options { secret: Some(secret.clone()), mode: 0o700, ..Options::default() };
        let made = create(&at, &name, &options).unwrap();
        assert!(matches!(create(&at, &name, &options), Err(OpenError::Store(StoreError::Exists(_)))));
        assert!(matches!(open(&at, &name, None), Err(OpenError::Key(KeyError::Missing(_)))));
        assert!(matches!(
            open(&at, &name, Some(&VolumeKey::random())),
            Err(OpenError::Key(KeyError::Wrong(_)))
        ));
        assert!(matches!(open(&at, &other, Some(&secret)), Err(OpenError::Store(StoreError::NoVolume(_)))));
        let opened = open(&at, &name, Some(&secret)).unwrap();
        assert_eq!(opened.described, made.described);
        let root = opened.meta.get(&[ObjectId::ROOT]).unwrap().remove(0).unwrap();
        assert_eq!(root.object.mode, 0o700);
    }

    #[test]
    fn volume_files_are_readable_by_owner_only() {
        use std::fs::{Permissions, metadata, set_permissions};
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (home, elsewhere) = (dir.path().join("above/v"), dir.path().join("elsewhere"));
        let at = MetaAddress::Sqlite(home.clone());
        let name = "notes".parse().unwrap();
        let mode = |path: &Path| metadata(path).unwrap().permissions().mode() & 0o777;
        let made = create(&at, &name, &Options::default()).unwrap();
        for part in ["..", ".", DATA_DIR] {
            assert_eq!(mode(&home.join(part)), 0o700, "{part}");
        }
        let files = [META_FILE, "meta.db-wal", "meta.db-shm"].map(|file| home.join(file));
        files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
        // Permissions as an older version left them.
        files.iter().for_each(|file| set_permissions(file, Permissions::from_mode(0o644)).unwrap());
        set_permissions(home.join(DATA_DIR), Permissions::from_mode(0o755)).unwrap();
        drop(open(&at, &name, None).unwrap());
        files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
        assert_eq!(mode(&home.join(DATA_DIR)), 0o700);
        drop(made);
        // A directory named by the user keeps its permissions.
        std::fs::create_dir(&elsewhere).unwrap();
        set_permissions(&elsewhere, Permissions::from_mode(0o755)).unwrap();
        let options = Options { data: DataAddress::Directory(elsewhere.clone()), ..Options::default() };
        let at = MetaAddress::Sqlite(dir.path().join("other"));
        create(&at, &name, &options).unwrap();
        open(&at, &name, None).unwrap();
        assert_eq!(mode(&elsewhere), 0o755);
    }

    #[test]
    fn foreign_or_newer_descriptor_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = MetaAddress::Sqlite(dir.path().to_owned());
        let name = "notes".parse().unwrap();
        let refused = || match open(&at, &name, None) {
            Err(OpenError::Store(StoreError::Format { found, .. })) => found,
            other => panic!("{other:?}"),
        };
        let meta = dir.path().join(META_FILE);
        rusqlite::Connection::open(&meta).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        assert_eq!(refused(), "unknown");
        std::fs::remove_file(&meta).unwrap();
        create(&at, &name, &Options::default()).unwrap();
        rusqlite::Connection::open(&meta).unwrap().pragma_update(None, "user_version", 99).unwrap();
        assert_eq!(refused(), "99");
    }
}
