//! The descriptors that the daemon of an image leaves to its successor.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::MemfdFlags;
use shunt_ext4fs::TakeoverMemory;
use shunt_fuse::guardian::HandOver;
use shunt_fuse::takeover::Takeover;

use crate::cmd::ext4::Image;
use crate::cmd::ext4::survey::Survey;
use crate::error::{Result, failed};
use crate::serve::CLAIM;

// Ids of the descriptors, besides `CLAIM`.
const IMAGE: u64 = 1;
const JOURNAL: u64 = 2;
const SURVEY: u64 = 3;
const CHANGES: u64 = 4;
const LOOKUPS: u64 = 5;

/// Limit of the size of a survey, larger than any valid one.
const MAX_SURVEY_BYTES: u64 = 64 << 10;

/// The descriptors of a new mount.
pub struct Bequest {
    image: File,
    journal: Option<File>,
    survey: Survey,
    source: PathBuf,
    /// Set where another daemon can take over.
    pub memory: Arc<OnceLock<TakeoverMemory>>,
}

impl Bequest {
    /// Duplicates the descriptors of an image.
    ///
    /// # Errors
    /// They cannot be duplicated.
    pub fn new(image: &Image, survey: &Survey, source: &Path) -> io::Result<Self> {
        Ok(Self {
            image: image.file.try_clone()?,
            journal: image.journal.as_ref().map(|journal| journal.file.try_clone()).transpose()?,
            survey: survey.clone(),
            source: source.to_owned(),
            memory: Arc::default(),
        })
    }

    /// Stores them with the guardian of a new mount.
    ///
    /// # Errors
    /// No memory file can be created.
    pub fn store(&self, takeover: &Takeover) -> io::Result<()> {
        let survey = rustix::fs::memfd_create("shunt-survey", MemfdFlags::CLOEXEC)?;
        let mut survey = File::from(survey);
        let source = self.source.as_os_str().as_bytes();
        serde_json::to_writer(&survey, &(&self.survey.part, &self.survey, source))?;
        survey.flush()?;
        takeover.store(SURVEY, survey.as_fd());
        takeover.store(IMAGE, self.image.as_fd());
        if let Some(journal) = &self.journal {
            takeover.store(JOURNAL, journal.as_fd());
        }
        if self.survey.writable {
            let memory = TakeoverMemory::create(self.survey.inodes)?;
            for (id, file) in [CHANGES, LOOKUPS].into_iter().zip(memory.descriptors()) {
                takeover.store(id, file);
            }
            let _ = self.memory.set(memory);
        }
        Ok(())
    }
}

/// The descriptors of an earlier daemon.
pub struct Inheritance {
    pub image: File,
    pub journal: Option<File>,
    pub survey: Survey,
    /// Its path, as the earlier daemon found it.
    pub source: PathBuf,
    /// `None` for a read-only mount.
    pub memory: Option<TakeoverMemory>,
    /// Keeps the exclusive claim of a block device.
    pub claim: Option<OwnedFd>,
}

impl Inheritance {
    /// Takes the descriptors that an earlier daemon stored.
    ///
    /// # Errors
    /// One is missing, or is not what this version stores.
    pub fn take(hand_over: &mut HandOver) -> Result<Self> {
        let missing = || failed("cannot take over: the earlier daemon left no image");
        let unusable = |error: io::Error| {
            failed(format_args!("cannot take over: the earlier daemon left unusable state: {error}"))
        };
        let image = hand_over.take(IMAGE).ok_or_else(missing)?;
        let survey = hand_over.take(SURVEY).ok_or_else(missing)?;
        let (survey, source) = read_survey(survey.into()).map_err(unusable)?;
        let memory = match (hand_over.take(CHANGES), hand_over.take(LOOKUPS)) {
            (Some(changes), Some(lookups)) => Some(TakeoverMemory::open(changes, lookups).map_err(unusable)?),
            _ if survey.writable => return Err(missing()),
            _ => None,
        };
        Ok(Self {
            image: image.into(),
            journal: hand_over.take(JOURNAL).map(File::from),
            survey,
            source,
            memory,
            claim: hand_over.take(CLAIM),
        })
    }
}

fn read_survey(mut file: File) -> io::Result<(Survey, PathBuf)> {
    file.rewind()?;
    let mut text = String::new();
    file.take(MAX_SURVEY_BYTES).read_to_string(&mut text)?;
    let (part, mut survey, source): (Option<Range<u64>>, Survey, Vec<u8>) = serde_json::from_str(&text)?;
    survey.part = part;
    Ok((survey, OsString::from_vec(source).into()))
}
