//! Resolves paths in mounted volumes, and sends requests to the daemons that serve them.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::control::{self, Peer, SocketDir, SocketName, VolumeAsk};
use crate::error::{Code, Failure, Result, failed};
use crate::own_mounts;

/// A path in a mounted volume.
pub struct MountedPath {
    /// The mount point of the volume.
    pub mountpoint: PathBuf,
    /// The path relative to the mount point, with `/` between names; empty for the mount point itself.
    pub inside: Vec<u8>,
}

impl MountedPath {
    /// Resolves a path given by the user. It need not exist; a symbolic link in its last component is not followed.
    pub fn of(path: &Path) -> Result<Self> {
        let full = absolute(path)
            .map_err(|error| failed(format_args!("cannot resolve {}: {error}", path.display())))?;
        for above in full.ancestors() {
            let Ok((_, info)) = own_mounts::find(above) else { continue };
            if own_mounts::kind(&info) != Some("volume") {
                break;
            }
            let inside = full.strip_prefix(above).unwrap_or(Path::new(""));
            return Ok(Self { mountpoint: above.to_owned(), inside: inside.as_os_str().as_bytes().to_vec() });
        }
        Err(Failure::new(Code::NotShunt, format_args!("{} is not in a mounted volume", path.display())))
    }

    /// Sends a request to the daemon that serves the volume.
    pub fn request<T: DeserializeOwned>(&self, ask: &VolumeAsk, at_most: Duration) -> Result<T> {
        request_any(&self.mountpoint, |peer| peer.request_volume(ask, at_most))
    }
}

/// Sends a request to the daemon that serves a mount point.
pub fn request_any<T>(mountpoint: &Path, ask: impl Fn(&Peer<'_>) -> io::Result<T>) -> Result<T> {
    let path = mountpoint.display();
    let (mount, info) = own_mounts::find(mountpoint)?;
    let dirs = own_mounts::owner(&info).map(SocketDir::of).unwrap_or_default();
    let name = SocketName::of(&mount);
    control::request(&dirs, &name, || !mount.is_mounted(), ask)
        .map_err(|error| failed(format_args!("request to the daemon of {path} failed: {error}")))?
        .ok_or_else(|| {
            failed(format_args!("no daemon of this user serves {path}; run this as the user who mounted it"))
        })
}

/// Resolves symbolic links except in the last component. Components that do not exist are kept.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let Some(name) = path.file_name() else { return path.canonicalize() };
    let (mut above, mut below) = (path.parent().unwrap_or(&path), vec![name]);
    loop {
        match (above.canonicalize(), above.file_name(), above.parent()) {
            (Ok(found), ..) => return Ok(below.iter().rev().fold(found, |path, name| path.join(name))),
            (Err(_), Some(name), Some(parent)) => {
                below.push(name);
                above = parent;
            }
            (Err(error), ..) => return Err(error),
        }
    }
}
