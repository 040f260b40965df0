//! The contents that a push has uploaded, between its two plans.
//!
//! The first plan finds the files to upload and leaves their commits out. They are uploaded without the replica's lock, so the plan
//! is made again afterwards. It uses an upload only if the file still has the version that was uploaded.

use std::collections::BTreeMap;

use crate::merge::push::UploadedContent;
use crate::merge::{Ino, PlanError, Trees};
use crate::object::Object;

/// A file, and its uploaded content with the [`version`](Trees::version) of the file that was read; `None` if it cannot be
/// uploaded now.
pub type FileUpload = (Ino, Option<(u64, UploadedContent)>);

/// Uploads of one push. A file is uploaded at most once: if it changed since, it waits for the next push.
#[derive(Debug, Default)]
pub struct UploadSet {
    tried: BTreeMap<Ino, Option<(u64, UploadedContent)>>,
    missing: BTreeMap<Ino, Object>,
}

impl UploadSet {
    /// Returns the uploaded content of a file, and records the file as missing if it was not tried yet.
    pub(super) fn content(
        &mut self,
        trees: &dyn Trees,
        num: Ino,
        object: &Object,
    ) -> Result<Option<UploadedContent>, PlanError> {
        match self.tried.get(&num) {
            Some(Some((version, uploaded))) if trees.version(num)? == *version => Ok(Some(uploaded.clone())),
            Some(_) => Ok(None),
            None => {
                self.missing.insert(num, object.clone());
                Ok(None)
            }
        }
    }

    /// Takes the files that the last plan left out because they were not uploaded yet.
    pub(crate) fn take_missing(&mut self) -> Vec<(Ino, Object)> {
        std::mem::take(&mut self.missing).into_iter().collect()
    }

    /// Adds the results of uploading missing files.
    pub fn add(&mut self, uploads: impl IntoIterator<Item = FileUpload>) {
        self.tried.extend(uploads);
    }
}
