//! Volumes by where they are: what a command line says, and what is written down.

use std::fmt;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::content::{Blobs, ChunkKeys, ContentError, ContentStore, VolumeKey};
use crate::gateway::{BadCertificate, Client, Credentials, JoinError};
use crate::id::{ObjectId, OwnerId, VolumeName};
use crate::maintenance::StoreOwnerError;
use crate::maintenance::store_owner::StoreOwner;
use crate::object::{Content, Kind, Object, Time};
use crate::store::admin::StoreAdmin;
use crate::store::lazy::LazyStore;
use crate::store::routing::{self, MapError};
use crate::store::seal::{Sealed, Sealer, Top, Vouching, tampered};
use crate::store::{
    EncryptedStore, MetaStore, MetadataCipher, PostgresStore, SqliteStore, StoreError, codec, postgres,
    sqlite, system_clock,
};

/// The version of [`VolumeDescriptor`].
const FORMAT: u32 = 3;
/// That of a volume whose store does not know what things are called, and whose log is not sealed.
const HIDDEN_NAMES: u32 = 2;
/// That of a volume whose names lie open in its store.
const OPEN_NAMES: u32 = 1;
/// In the directory of a volume that needs nothing else.
const META: &str = "meta.db";
const DATA: &str = "data";

/// Where the metadata of a volume are.
///
/// As text: `sqlite:DIR`, `postgres://…` as PostgreSQL's own tools understand it, `gateway:FILE`, or `map:FILE`.
#[derive(Clone, PartialEq, Eq)]
pub enum MetaAddress {
    /// In a directory of this machine.
    Sqlite(PathBuf),
    /// In a database, which may hold others too. There may be a password in it.
    Postgres(String),
    /// Behind a gateway, as a file of [`Credentials`] says; the contents too.
    Gateway(PathBuf),
    /// As a file says for each volume: see [`routing`].
    Map(PathBuf),
}

/// Where the contents of a volume are.
///
/// As text: nothing for beside the metadata, `file:DIR`, or `s3://BUCKET[/PREFIX]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataAddress {
    /// In the directory of the metadata: the whole can be moved.
    Beside,
    /// In a directory of this machine, or one that all machines see.
    Directory(PathBuf),
    /// In a bucket, below a prefix.
    S3(String, String),
}

/// What is wrong with a volume, seen from its address.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Not an address.
    #[error("`{0}` is no address: {1}")]
    Address(String, &'static str),
    /// With the metadata.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// With the contents.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// With where the contents are to be.
    #[error(transparent)]
    Place(#[from] StoreOwnerError),
    /// With the credentials of a gateway's node.
    #[error(transparent)]
    Credentials(#[from] JoinError),
    /// With the file that says where volumes are.
    #[error(transparent)]
    Map(#[from] MapError),
    /// It is encrypted.
    #[error("names and contents of volume {0} are encrypted: say --key-file FILE")]
    NeedsKey(VolumeName),
    /// It is encrypted with another key, or not.
    #[error("this is not the key of volume {0}")]
    WrongKey(VolumeName),
    /// It is not encrypted, and a key was given.
    #[error("volume {0} is not encrypted: leave out its key")]
    NoKey(VolumeName),
}

impl FromStr for MetaAddress {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        match text.split_once(':') {
            Some(("sqlite", dir)) if !dir.is_empty() => Ok(Self::Sqlite(dir.into())),
            Some(("gateway", file)) if !file.is_empty() => Ok(Self::Gateway(file.into())),
            Some(("map", file)) if !file.is_empty() => Ok(Self::Map(file.into())),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(text.to_owned())),
            // Not the text: a misspelt one may have a password in it too.
            _ => Err(OpenError::Address("--meta".into(), "say sqlite:DIR or postgres://USER@HOST/DATABASE")),
        }
    }
}

impl fmt::Debug for MetaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(dir) => write!(f, "sqlite:{}", dir.display()),
            Self::Postgres(_) => f.write_str("postgres://…"),
            Self::Gateway(file) => write!(f, "gateway:{}", file.display()),
            Self::Map(file) => write!(f, "map:{}", file.display()),
        }
    }
}

impl MetaAddress {
    /// Whether it has a password in it.
    pub fn has_password(&self) -> bool {
        matches!(self, Self::Postgres(address) if postgres::has_password(address))
    }

    /// Where a volume is: what a file says of it, where this is one.
    ///
    /// # Errors
    /// Those of the file.
    pub fn of(&self, volume: &VolumeName) -> Result<Self, OpenError> {
        match self {
            Self::Map(file) => Ok(routing::find(file, volume)?),
            other => Ok(other.clone()),
        }
    }
}

impl FromStr for DataAddress {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        if let Some(dir) = text.strip_prefix("file:").filter(|dir| !dir.is_empty()) {
            return Ok(Self::Directory(dir.into()));
        }
        let wrong = || OpenError::Address(text.to_owned(), "say file:DIR or s3://BUCKET/PREFIX");
        let place = text.strip_prefix("s3://").ok_or_else(wrong)?;
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            Err(wrong())
        } else {
            Ok(Self::S3(bucket.into(), prefix.trim_matches('/').into()))
        }
    }
}

impl fmt::Display for DataAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beside => f.write_str("beside the metadata"),
            Self::Directory(dir) => write!(f, "file:{}", dir.display()),
            Self::S3(bucket, prefix) if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3(bucket, prefix) => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

/// What a store keeps about a volume for who opens it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeDescriptor {
    /// As users call it.
    pub name: VolumeName,
    /// The same for ever, even under another name.
    pub id: u128,
    /// When it was made.
    pub made: Time,
    /// Where its contents are.
    pub data: DataAddress,
    /// Names chunks, unless the key does.
    pub names: [u8; 32],
    /// Tells the key of an encrypted volume from others.
    pub mark: Option<[u8; 32]>,
    /// Its store does not know what things are called. Told by the format of this.
    #[serde(skip)]
    pub hides_names: bool,
    /// From where on its log is sealed; `None`: it is not.
    #[serde(skip)]
    pub sealed: Option<Sealed>,
}

/// Whether a description, of which this is the beginning, is of a volume whose log is sealed: a store takes only what is sealed
/// there.
pub(super) fn is_sealed_format(description: &[u8]) -> bool {
    description.starts_with(&FORMAT.to_le_bytes())
}

impl VolumeDescriptor {
    /// What [`from_bytes`](Self::from_bytes) reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let format = match (self.hides_names, self.sealed) {
            (_, Some(_)) => FORMAT,
            (true, None) => HIDDEN_NAMES,
            (false, None) => OPEN_NAMES,
        };
        let sealed = self.sealed.as_ref().map(codec::encode).unwrap_or_default();
        [&format.to_le_bytes()[..], &codec::encode(self), &sealed].concat()
    }

    /// What [`create`] wrote: for a gateway's node, who gets it from elsewhere.
    ///
    /// # Errors
    /// [`StoreError::Format`], [`StoreError::Damaged`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let damaged = || StoreError::Damaged("the description of the volume is too short".into());
        let (format, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
        match u32::from_le_bytes(*format) {
            format @ (OPEN_NAMES | HIDDEN_NAMES) => {
                let described: Self = codec::decode("the description of the volume", rest)?;
                Ok(Self { hides_names: format == HIDDEN_NAMES, ..described })
            }
            FORMAT => {
                let (described, sealed): (Self, Sealed) =
                    codec::decode("the description of the volume", rest)?;
                Ok(Self { hides_names: true, sealed: Some(sealed), ..described })
            }
            found => Err(StoreError::Format {
                found: found.to_string(),
                known: FORMAT,
                advice: "use the version of shunt that made it",
            }),
        }
    }

    fn mark_of(&self, secret: &VolumeKey) -> [u8; 32] {
        if self.sealed.is_some() { secret.mark_of_sealed() } else { secret.mark() }
    }

    /// The keys of its contents.
    ///
    /// # Errors
    /// [`OpenError::NeedsKey`], [`OpenError::WrongKey`].
    pub fn keys(&self, secret: Option<&VolumeKey>) -> Result<ChunkKeys, OpenError> {
        match (self.mark, secret) {
            (None, None) => Ok(ChunkKeys::open(self.names)),
            (Some(mark), Some(secret)) if self.mark_of(secret) == mark => Ok(ChunkKeys::sealed(secret)),
            (None, Some(_)) => Err(OpenError::NoKey(self.name.clone())),
            (Some(_), None) => Err(OpenError::NeedsKey(self.name.clone())),
            _ => Err(OpenError::WrongKey(self.name.clone())),
        }
    }
}

/// How a volume is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its contents are to be.
    pub data: DataAddress,
    /// Encrypts them, and names.
    pub secret: Option<VolumeKey>,
    /// Permission bits of the top directory, and whose it is.
    pub mode: u16,
    /// The user of the top directory.
    pub owner: OwnerId,
    /// The group of the top directory.
    pub group: OwnerId,
}

impl Default for Options {
    fn default() -> Self {
        Self { data: DataAddress::Beside, secret: None, mode: 0o755, owner: OwnerId(0), group: OwnerId(0) }
    }
}

/// A volume with both its stores.
#[derive(Clone)]
pub struct Volume {
    /// The metadata.
    pub meta: Arc<dyn MetaStore>,
    /// The same, as its keeper sees them; not through a gateway.
    keeper: Option<Arc<dyn StoreAdmin>>,
    /// What files hold.
    pub content: ContentStore,
    /// What was written down when it was made.
    pub described: VolumeDescriptor,
}

impl Volume {
    /// Shows what is hidden from its store to who has the key, and believes only what its seals prove.
    fn unveiled(mut self, secret: Option<&VolumeKey>) -> Result<Self, OpenError> {
        if let Some(secret) = secret.filter(|_| self.described.hides_names) {
            let veiled = EncryptedStore::new(self.meta, MetadataCipher::new(secret));
            self.meta = Arc::new(match self.described.sealed {
                Some(sealed) => veiled.sealed(Sealer::new(secret, self.described.id, sealed)?),
                None => veiled,
            });
        }
        Ok(self)
    }

    /// The metadata as their keeper sees them, names as the store has them.
    ///
    /// # Errors
    /// [`StoreError::Denied`] through a gateway.
    pub fn keeper(&self) -> Result<&dyn StoreAdmin, StoreError> {
        let why = "a volume is looked after where its stores are, not through a gateway";
        self.keeper.as_deref().ok_or_else(|| StoreError::Denied(why.to_owned()))
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("name", &self.described.name).finish_non_exhaustive()
    }
}

/// Makes a volume.
///
/// # Errors
/// [`StoreError::Exists`]; [`OpenError::Place`] where the contents of another one are; those of the stores. What was begun
/// is no volume.
pub fn create(meta: &MetaAddress, name: &VolumeName, options: &Options) -> Result<Volume, OpenError> {
    let meta = &meta.of(name)?;
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
        sealed: secret.map(|secret| Vouching::new(secret, id).seal(Top::from(&root))),
    };
    // The contents first: a volume that cannot store any is none.
    let content = contents(meta, &described, &|described| described.keys(options.secret.as_ref()))?;
    content.probe()?;
    // One that is there has its place, which is then no reason of its own.
    if open_meta(meta, name).is_ok() {
        return Err(StoreError::Exists(name.clone()).into());
    }
    let place = StoreOwner::new(&content, &described)?;
    let about = described.to_bytes();
    let keeper: Arc<dyn StoreAdmin> = match meta {
        MetaAddress::Sqlite(dir) => {
            make_directory(dir)?;
            Arc::new(SqliteStore::create(&dir.join(META), name, &root, &about)?)
        }
        MetaAddress::Postgres(address) => Arc::new(PostgresStore::create(address, name, &root, &about)?),
        MetaAddress::Gateway(_) | MetaAddress::Map(_) => return Err(made_elsewhere(meta)),
    };
    place.keep();
    let volume = Volume { meta: keeper.clone(), keeper: Some(keeper), content, described };
    volume.unveiled(options.secret.as_ref())
}

/// Opens a volume.
///
/// # Errors
/// [`StoreError::NoVolume`], [`StoreError::Format`]; those of the stores; those of keys.
pub fn open(meta: &MetaAddress, name: &VolumeName, secret: Option<&VolumeKey>) -> Result<Volume, OpenError> {
    open_by(meta, name, &|described| described.keys(secret))?.unveiled(secret)
}

/// Opens a volume that this machine has had before, whether or not its metadata can be reached now: what is wrong with them
/// is told by the calls that need them.
///
/// # Errors
/// As [`open`], but those of the metadata.
pub fn open_known(
    meta: &MetaAddress,
    known: &VolumeDescriptor,
    secret: Option<&VolumeKey>,
) -> Result<Volume, OpenError> {
    let meta = meta.of(&known.name)?;
    if let MetaAddress::Gateway(_) = meta {
        return open(&meta, &known.name, secret);
    }
    let content = contents(&meta, known, &|described| described.keys(secret))?;
    let (name, id, sealed) = (known.name.clone(), known.id, known.sealed);
    let store = LazyStore::new(move || {
        let (store, about) = open_meta(&meta, &name).map_err(|error| match error {
            OpenError::Store(error) => error,
            error => StoreError::Unreachable(error.to_string()),
        })?;
        let found = VolumeDescriptor::from_bytes(&about)?;
        match found.id == id {
            true if found.sealed == sealed => Ok(store as Arc<dyn MetaStore>),
            true if sealed.is_none() => {
                Err(StoreError::Denied(format!("volume {name} was upgraded: mount it anew")))
            }
            true => {
                Err(tampered("it has another description of the volume than the one that this machine knows"))
            }
            false => Err(StoreError::Damaged(format!("another volume is called {name} there"))),
        }
    });
    let volume = Volume { meta: Arc::new(store), keeper: None, content, described: known.clone() };
    volume.unveiled(secret)
}

/// Opens a volume for who only passes on what is stored: it needs no key, and reads no contents of an encrypted volume.
///
/// # Errors
/// As [`open`], but those of keys.
pub fn open_without_key(meta: &MetaAddress, name: &VolumeName) -> Result<Volume, OpenError> {
    open_by(meta, name, &|described| Ok(ChunkKeys::open(described.names)))
}

/// Opens a volume for a gateway before it: as [`open_without_key`], and where it is behind another gateway, in the names of nodes.
///
/// # Errors
/// As [`open_without_key`].
pub fn open_to_serve(meta: &MetaAddress, name: &VolumeName) -> Result<Volume, OpenError> {
    match meta.of(name)? {
        MetaAddress::Gateway(file) => {
            open_remote(&file, name, &|described| Ok(ChunkKeys::open(described.names)), Client::of_gateway)
        }
        meta => open_without_key(&meta, name),
    }
}

/// Finds the keys of a volume.
type FindKeys<'a> = dyn Fn(&VolumeDescriptor) -> Result<ChunkKeys, OpenError> + 'a;

fn open_by(meta: &MetaAddress, name: &VolumeName, keys: &FindKeys<'_>) -> Result<Volume, OpenError> {
    let meta = &meta.of(name)?;
    if let MetaAddress::Gateway(file) = meta {
        return open_remote(file, name, keys, Client::of);
    }
    let (keeper, about) = open_meta(meta, name)?;
    let described = VolumeDescriptor::from_bytes(&about)?;
    if described.name != *name {
        return Err(StoreError::NoVolume(name.clone()).into());
    }
    let content = contents(meta, &described, keys)?;
    Ok(Volume { meta: keeper.clone(), keeper: Some(keeper), content, described })
}

/// A store of metadata that is no gateway, and what it keeps of the volume.
pub(super) fn open_meta(
    meta: &MetaAddress,
    name: &VolumeName,
) -> Result<(Arc<dyn StoreAdmin>, Vec<u8>), OpenError> {
    match meta {
        MetaAddress::Sqlite(dir) => {
            let path = dir.join(META);
            if !path.exists() {
                return Err(StoreError::NoVolume(name.clone()).into());
            }
            let store = SqliteStore::open(&path)?;
            let about = store.description()?;
            Ok((Arc::new(store), about))
        }
        MetaAddress::Postgres(address) => {
            let store = PostgresStore::open(address, name)?;
            let about = store.description()?;
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
    let described = credentials.described()?;
    let keys = keys(&described)?;
    let client = client(credentials, file).map_err(JoinError::from)?;
    let content = ContentStore::new(Blobs::over(Arc::new(client.blobs())), keys);
    Ok(Volume { meta: Arc::new(client), keeper: None, content, described })
}

fn made_elsewhere(meta: &MetaAddress) -> OpenError {
    OpenError::Address(format!("{meta:?}"), "a volume is made where its stores are, not through a gateway")
}

fn contents(
    meta: &MetaAddress,
    described: &VolumeDescriptor,
    keys: &FindKeys<'_>,
) -> Result<ContentStore, OpenError> {
    let blobs = match (&described.data, meta) {
        (DataAddress::Beside, MetaAddress::Sqlite(dir)) => {
            let data = dir.join(DATA);
            make_directory(&data)?;
            // One that an older version made. What `file:` names may be shared on purpose.
            sqlite::tighten(&data);
            Blobs::directory(&data)?
        }
        (DataAddress::Beside, MetaAddress::Postgres(_)) => {
            let why = "a volume in a database needs --data s3://BUCKET/PREFIX or file:DIR";
            return Err(OpenError::Address(described.data.to_string(), why));
        }
        (_, MetaAddress::Gateway(_) | MetaAddress::Map(_)) => return Err(made_elsewhere(meta)),
        (DataAddress::Directory(dir), _) => Blobs::directory(dir)?,
        (DataAddress::S3(bucket, prefix), _) => Blobs::s3(bucket, prefix)?,
    };
    Ok(ContentStore::new(blobs, keys(described)?))
}

/// All names and contents of a volume are in it, whoever may read them there: it is nobody else's.
fn make_directory(dir: &Path) -> Result<(), StoreError> {
    let mut make = std::fs::DirBuilder::new();
    make.recursive(true).mode(0o700);
    make.create(dir).map_err(|error| StoreError::Unreachable(format!("{}: {error}", dir.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let meta = |text: &str| text.parse::<MetaAddress>().ok();
        assert_eq!(meta("sqlite:/a/b"), Some(MetaAddress::Sqlite("/a/b".into())));
        assert_eq!(meta("postgres://u:p@h/d"), Some(MetaAddress::Postgres("postgres://u:p@h/d".into())));
        assert_eq!(format!("{:?}", meta("postgres://u:p@h/d").unwrap()), "postgres://…");
        for wrong in ["", "sqlite:", "/a/b", "mysql://h", "postgres"] {
            assert_eq!(meta(wrong), None, "{wrong}");
        }
        for text in ["file:/a", "s3://bucket", "s3://bucket/a/b"] {
            assert_eq!(text.parse::<DataAddress>().unwrap().to_string(), text);
        }
        for wrong in ["", "file:", "s3://", "s3:///a", "/a"] {
            assert!(wrong.parse::<DataAddress>().is_err(), "{wrong}");
        }
    }

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
        assert!(matches!(open(&at, &name, None), Err(OpenError::NeedsKey(_))));
        assert!(matches!(open(&at, &name, Some(&VolumeKey::random())), Err(OpenError::WrongKey(_))));
        assert!(matches!(open(&at, &other, Some(&secret)), Err(OpenError::Store(StoreError::NoVolume(_)))));
        let opened = open(&at, &name, Some(&secret)).unwrap();
        assert_eq!(opened.described, made.described);
        let root = opened.meta.get(&[ObjectId::ROOT]).unwrap().remove(0).unwrap();
        assert_eq!(root.object.mode, 0o700);
    }

    #[test]
    fn what_a_volume_keeps_is_its_owners_to_read() {
        use std::fs::{Permissions, metadata, set_permissions};
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (home, elsewhere) = (dir.path().join("above/v"), dir.path().join("elsewhere"));
        let at = MetaAddress::Sqlite(home.clone());
        let name = "notes".parse().unwrap();
        let mode = |path: &Path| metadata(path).unwrap().permissions().mode() & 0o777;
        let made = create(&at, &name, &Options::default()).unwrap();
        for part in ["..", ".", DATA] {
            assert_eq!(mode(&home.join(part)), 0o700, "{part}");
        }
        let files = [META, "meta.db-wal", "meta.db-shm"].map(|file| home.join(file));
        files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
        // One of an older version.
        files.iter().for_each(|file| set_permissions(file, Permissions::from_mode(0o644)).unwrap());
        set_permissions(home.join(DATA), Permissions::from_mode(0o755)).unwrap();
        drop(open(&at, &name, None).unwrap());
        files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
        assert_eq!(mode(&home.join(DATA)), 0o700);
        drop(made);
        // A directory that was named is as its owner has it.
        std::fs::create_dir(&elsewhere).unwrap();
        set_permissions(&elsewhere, Permissions::from_mode(0o755)).unwrap();
        let options = Options { data: DataAddress::Directory(elsewhere.clone()), ..Options::default() };
        let at = MetaAddress::Sqlite(dir.path().join("other"));
        create(&at, &name, &options).unwrap();
        open(&at, &name, None).unwrap();
        assert_eq!(mode(&elsewhere), 0o755);
    }

    #[test]
    fn what_is_no_volume_or_newer_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = MetaAddress::Sqlite(dir.path().to_owned());
        let name = "notes".parse().unwrap();
        let refused = || match open(&at, &name, None) {
            Err(OpenError::Store(StoreError::Format { found, .. })) => found,
            other => panic!("{other:?}"),
        };
        let meta = dir.path().join(META);
        rusqlite::Connection::open(&meta).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        assert_eq!(refused(), "of something else");
        std::fs::remove_file(&meta).unwrap();
        create(&at, &name, &Options::default()).unwrap();
        rusqlite::Connection::open(&meta).unwrap().pragma_update(None, "user_version", 99).unwrap();
        assert_eq!(refused(), "99");
        let mut described = [4u32.to_le_bytes().to_vec(), vec![0; 9]].concat();
        assert!(matches!(VolumeDescriptor::from_bytes(&described), Err(StoreError::Format { .. })));
        described[0] = 1;
        assert!(matches!(VolumeDescriptor::from_bytes(&described), Err(StoreError::Damaged(_))));
    }
}
