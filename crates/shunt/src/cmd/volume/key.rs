//! The key of an encrypted volume: a file on each machine that reads it, and in no store.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use shunt_volume::crypto::VolumeKey;
use shunt_volume::id::VolumeName;
use shunt_volume::private;

use crate::error::{Failure, Result, failed};
use crate::xdg;

/// A key is shorter.
const MAX_KEY_FILE_BYTES: u64 = 1024;

/// Where it is if nothing else is said: `$XDG_CONFIG_HOME/shunt/volumes/NAME.key`.
pub fn file_of(name: &VolumeName) -> PathBuf {
    xdg::config().join(format!("shunt/volumes/{name}.key"))
}

/// The key in the file that was given, or in the usual one if that is there.
pub fn find(given: Option<&Path>, name: &VolumeName) -> Result<Option<VolumeKey>> {
    match given {
        Some(file) => read(file).map(Some),
        None => {
            let file = file_of(name);
            if file.exists() { read(&file).map(Some) } else { Ok(None) }
        }
    }
}

/// The key in a file, which is made with a new one if it is not there; and whether it was made.
pub fn make(given: Option<&Path>, name: &VolumeName) -> Result<(VolumeKey, PathBuf, bool)> {
    let file = given.map_or_else(|| file_of(name), Path::to_owned);
    if file.exists() {
        return Ok((read(&file)?, file, false));
    }
    let secret = VolumeKey::random();
    keep(&file, &secret)?;
    Ok((secret, file, true))
}

/// Puts a key into a new file.
pub fn keep(file: &Path, secret: &VolumeKey) -> Result<()> {
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
    VolumeKey::parse(&text)
        .ok_or_else(|| wrong(file, "this is no key of a volume, which is 64 hexadecimal digits"))
}

fn wrong(file: &Path, why: impl std::fmt::Display) -> Failure {
    failed(format_args!("{}: {why}", file.display()))
}
