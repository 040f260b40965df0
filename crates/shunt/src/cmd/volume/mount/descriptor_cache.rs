//! The cached descriptor of a volume, with which it can be mounted while its store is unreachable.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use shunt_volume::address::MetaAddress;
use shunt_volume::crypto::VolumeKey;
use shunt_volume::id::VolumeName;
use shunt_volume::open::{self, OpenError};
use shunt_volume::private;
use shunt_volume::store::StoreError;
use shunt_volume::volume::{Volume, VolumeDescriptor};

use crate::error::{Result, failed};

/// The file in the cache directory with the descriptor that the store gave when the volume was last opened.
const CACHE_FILE: &str = "volume";

/// Timeout of opening a store whose volume descriptor is cached.
const CACHED_OPEN_TIMEOUT: Duration = Duration::from_secs(3);

/// Opens a volume. If the store is unreachable, it is opened with the descriptor cached at the last mount from this cache
/// directory.
pub fn open(
    cache: &Path,
    meta: &MetaAddress,
    name: &VolumeName,
    secret: Option<&VolumeKey>,
) -> Result<Volume> {
    let cannot = |error: &dyn std::fmt::Display| failed(format_args!("cannot open volume {name}: {error}"));
    let known = read(cache).filter(|known| known.name == *name);
    let Some(known) = known else {
        return open::open(meta, name, secret).map_err(|error| cannot(&error));
    };
    let (sender, receiver) = mpsc::channel();
    let (at, of, key) = (meta.clone(), name.clone(), secret.cloned());
    std::thread::Builder::new()
        .name("open-volume".into())
        .spawn(move || sender.send(open::open(&at, &of, key.as_ref())).is_ok())
        .map_err(|error| cannot(&error))?;
    let why = match receiver.recv_timeout(CACHED_OPEN_TIMEOUT) {
        // A tampered store could claim that the log is not sealed, and so have any content accepted.
        Ok(Ok(volume)) if known.sealed.is_some() && volume.described.sealed != known.sealed => {
            let why = "the store was tampered with: its descriptor of the volume differs from the one that this machine has \
                       cached; restore an intact copy of the store";
            return Err(cannot(&why));
        }
        Ok(Ok(volume)) => return Ok(volume),
        Ok(Err(OpenError::Store(error @ StoreError::Unreachable(_)))) => error.to_string(),
        Ok(Err(error)) => return Err(cannot(&error)),
        Err(_) => "the store does not answer".to_owned(),
    };
    tracing::warn!("volume {name} is mounted from the cache: {why}");
    open::open_cached(meta, &known, secret).map_err(|error| cannot(&error))
}

/// Opens a volume by its cached descriptor, without waiting for the store.
pub fn reopen(
    cache: &Path,
    meta: &MetaAddress,
    name: &VolumeName,
    secret: Option<&VolumeKey>,
) -> Result<Volume> {
    match read(cache).filter(|known| known.name == *name) {
        Some(known) => open::open_cached(meta, &known, secret)
            .map_err(|error| failed(format_args!("cannot open volume {name}: {error}"))),
        None => open(cache, meta, name, secret),
    }
}

/// Caches the descriptor of a volume, for mounts while its store is unreachable.
pub fn save(cache: &Path, described: &VolumeDescriptor) -> Result<()> {
    let bytes = described.to_bytes();
    let file = cache.join(CACHE_FILE);
    if std::fs::read(&file).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    private::write(&file, &bytes)
        .map_err(|error| failed(format_args!("cannot write {}: {error}", file.display())))
}

fn read(cache: &Path) -> Option<VolumeDescriptor> {
    let bytes = std::fs::read(cache.join(CACHE_FILE)).ok()?;
    VolumeDescriptor::from_bytes(&bytes).ok()
}
