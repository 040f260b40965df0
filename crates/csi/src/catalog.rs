//! The volumes that the plugin has provisioned: a file each below the base directory, so that plugins with the same base directory know
//! the same volumes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::parameters;
use crate::record_file;

/// A provisioned volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provisioned {
    /// The name that the orchestrator chose.
    pub(crate) name: String,
    /// Its size in bytes; zero if none was required.
    pub(crate) capacity_bytes: i64,
    /// Its attributes, which the node needs to mount it.
    pub(crate) context: BTreeMap<String, String>,
    /// Its store is elsewhere, as that of a volume in a bucket.
    pub(crate) remote: bool,
    /// It has been created completely.
    pub(crate) ready: bool,
}

/// The provisioned volumes of a base directory.
#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    base: PathBuf,
}

impl Catalog {
    /// Opens the catalog of a base directory, which is created.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(crate) fn open(base: &Path) -> io::Result<Self> {
        let catalog = Self { base: base.to_owned() };
        record_file::create_private_dir(&catalog.records())?;
        Ok(catalog)
    }

    /// The id of a volume with this name: the name itself if it is the valid name of a volume.
    pub(crate) fn id(name: &str) -> String {
        match parameters::is_volume_name(name) {
            true => name.to_owned(),
            false => format!("v-{}", record_file::file_name(name)),
        }
    }

    /// The directory of a volume's files. Ids that this catalog did not make have none.
    pub(crate) fn directory(&self, id: &str) -> Option<PathBuf> {
        parameters::is_volume_name(id).then(|| self.base.join(id))
    }

    /// The base directory.
    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// The record of a volume.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn get(&self, id: &str) -> io::Result<Option<Provisioned>> {
        record_file::read(&self.file(id))
    }

    /// Stores the record of a volume.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn put(&self, id: &str, volume: &Provisioned) -> io::Result<()> {
        record_file::write(&self.file(id), volume)
    }

    /// Removes a volume, its files first.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn remove(&self, id: &str) -> io::Result<()> {
        if let Some(directory) = self.directory(id) {
            remove_tree(&directory)?;
        }
        record_file::remove(&self.file(id))
    }

    fn records(&self) -> PathBuf {
        self.base.join(".shunt-csi")
    }

    fn file(&self, id: &str) -> PathBuf {
        self.records().join(record_file::file_name(id) + ".json")
    }
}

/// Removes a directory with everything in it, if it exists.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn remove_tree(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_names_of_directories() {
        assert_eq!(Catalog::id("pvc-1b4e28ba"), "pvc-1b4e28ba");
        for name in ["../x", ".", ".shunt-csi", "a/b", "ä", &"x".repeat(128)] {
            let id = Catalog::id(name);
            assert!(parameters::is_volume_name(&id) && id != name, "{id}");
        }
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(dir.path()).unwrap();
        for foreign in ["", "..", ".shunt-csi", "a/b"] {
            assert_eq!(catalog.directory(foreign), None, "{foreign}");
        }
    }
}
