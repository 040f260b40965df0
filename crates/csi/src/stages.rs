//! The volumes that are staged on this node: a file each. It is written before the mount is made, so that each mount has one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::parameters::MountSpec;
use crate::record_file;

/// A staged volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stage {
    /// Its id.
    pub(crate) volume_id: String,
    /// Path of the mount.
    pub(crate) staging_path: PathBuf,
    /// The source of the mount.
    pub(crate) spec: MountSpec,
    /// No changes are possible.
    pub(crate) read_only: bool,
    /// Options of the mount.
    pub(crate) mount_flags: Vec<String>,
    /// The daemon needs secrets, which are not stored: only a call that has them can start it again.
    pub(crate) has_secrets: bool,
}

/// The records in the state directory.
#[derive(Clone, Debug)]
pub(crate) struct Stages {
    directory: PathBuf,
}

impl Stages {
    /// Opens the records of a state directory.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(crate) fn open(state_dir: &Path) -> io::Result<Self> {
        let directory = state_dir.join("staged");
        record_file::create_private_dir(&directory)?;
        Ok(Self { directory })
    }

    /// The record of a volume.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn get(&self, volume_id: &str) -> io::Result<Option<Stage>> {
        record_file::read(&self.file(volume_id))
    }

    /// Stores the record of a volume.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn put(&self, stage: &Stage) -> io::Result<()> {
        record_file::write(&self.file(&stage.volume_id), stage)
    }

    /// Removes the record of a volume, if there is one.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn remove(&self, volume_id: &str) -> io::Result<()> {
        record_file::remove(&self.file(volume_id))
    }

    /// All records that can be read.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn all(&self) -> io::Result<Vec<Stage>> {
        let mut stages = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                match record_file::read(&path) {
                    Ok(stage) => stages.extend(stage),
                    Err(error) => tracing::warn!("cannot read {}: {error}", path.display()),
                }
            }
        }
        Ok(stages)
    }

    fn file(&self, volume_id: &str) -> PathBuf {
        self.directory.join(record_file::file_name(volume_id) + ".json")
    }
}
