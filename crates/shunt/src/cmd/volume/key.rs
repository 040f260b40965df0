//! The key of an encrypted volume: a file on each machine that reads it, and never in a store.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use shunt_volume::crypto::VolumeKey;
use shunt_volume::id::VolumeName;
use shunt_volume::private;

use crate::error::{Failure, Result, failed};
use crate::xdg;

/// Limit of the size of a key file.
const MAX_KEY_FILE_BYTES: u64 = 1024;

/// The default key file: `$XDG_CONFIG_HOME/shunt/volumes/NAME.key`.
pub fn file_of(name: &VolumeName) -> PathBuf {
    xdg::config().join(format!("shunt/volumes/{name}.key"))
}

/// Reads the key from the given file, or from the default one if it exists.
pub fn find(given: Option<&Path>, name: &VolumeName) -> Result<Option<VolumeKey>> {
    match given {
        Some(file) => read(file).map(Some),
        None => {
            let file = file_of(name);
            if file.exists() { read(&file).map(Some) } else { Ok(None) }
        }
    }
}

/// Reads the key from a file, which is created with a new key if it does not exist. Also returns whether it was created.
pub fn make(given: Option<&Path>, name: &VolumeName) -> Result<(VolumeKey, PathBuf, bool)> {
    let file = given.map_or_else(|| file_of(name), Path::to_owned);
    if file.exists() {
        return Ok((read(&file)?, file, false));
    }
    let secret = VolumeKey::random();
    write(&file, &secret)?;
    Ok((secret, file, true))
}

/// Writes a key to a new file.
pub fn write(file: &Path, secret: &VolumeKey) -> Result<()> {
    xdg::make_directory_of(file).map_err(failed)?;
    let write = || {
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
        writeln!(out, "{}", secret.to_text())?;
        out.sync_all()
    };
    write().map_err(|error| wrong(file, error))
}

fn read(file: &Path) -> Result<VolumeKey> {
    let opened = private::open(file).map_err(|error| wrong(file, error))?;
    let mut text = String::new();
    opened.take(MAX_KEY_FILE_BYTES).read_to_string(&mut text).map_err(|error| wrong(file, error))?;
    VolumeKey::parse(&text).ok_or_else(|| wrong(file, "not a volume key: expected 64 hexadecimal digits"))
}

fn wrong(file: &Path, why: impl std::fmt::Display) -> Failure {
    failed(format_args!("cannot use the key file {}: {why}", file.display()))
}
