//! The image that a command is given.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shunt_ext4::{Device, FileDevice, Filesystem, Window};

use crate::args::PlaceArgs;
use crate::error::{Code, Failure, Result, failed};

/// An open image. Not one byte of it is written.
pub struct Image {
    pub path: PathBuf,
    pub file: File,
    pub filesystem: Filesystem,
}

impl Image {
    /// Opens an image to be read.
    pub fn open(image: &Path, place: &PlaceArgs) -> Result<Self> {
        let path = image.display();
        let file = File::open(image).map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::PermissionDenied => Code::Privilege,
                _ => Code::Failed,
            };
            Failure::new(code, format_args!("cannot open {path}: {error}"))
        })?;
        let device = file
            .try_clone()
            .and_then(|file| FileDevice::new(file, true))
            .map_err(|error| failed(format_args!("cannot tell the size of {path}: {error}")))?;
        let size = device.size();
        let device: Arc<dyn Device> = match place.offset {
            0 => Arc::new(device),
            offset => {
                let window = Window::new(device, offset, size.saturating_sub(offset));
                Arc::new(window.ok_or_else(|| {
                    failed(format_args!("{path} has {size} bytes: nothing begins at {offset}"))
                })?)
            }
        };
        let filesystem =
            Filesystem::open(device).map_err(|error| failed(format_args!("cannot read {path}: {error}")))?;
        Ok(Self { path: image.to_owned(), file, filesystem })
    }
}
