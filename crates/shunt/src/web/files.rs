//! The file browser: lists directories and opens files of a volume, now and in the past.
//!
//! Paths are resolved below the mount point without symbolic links, so that a link in the volume cannot make the page show another
//! file of this machine.

use std::ffi::CString;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use axum::http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use serde_json::{Value, json};

use crate::files;

use super::error::{Failure, Result};
use super::query::Parameters;
use super::volumes::{MountedVolume, shown_path};

/// Limit of the entries of a listing.
const MAX_ENTRIES: usize = 5000;
/// Limit of the names that are read, and sorted, for a listing.
const MAX_NAMES: usize = 100_000;
/// Limit of a text that the page shows or compares, in bytes.
pub const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Entries of a directory: directories first, then by name.
pub fn list(parameters: &Parameters) -> Result<Value> {
    let volume = MountedVolume::of(parameters)?;
    let path = shown_path(parameters)?;
    let failure = |error: std::io::Error| Failure::file("cannot list", &volume.path(&path), &error);
    let directory =
        open_below(&volume.mountpoint, &path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failure)?;
    let mut names = names(&directory).map_err(|error| failure(error.into()))?;
    names.sort();
    let truncated = names.len() > MAX_ENTRIES;
    names.truncate(MAX_ENTRIES);
    let mut entries: Vec<(bool, Value)> = Vec::new();
    for name in names {
        // It may have been removed since.
        let Ok(stat) = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let target = (kind == FileType::Symlink)
            .then(|| rustix::fs::readlinkat(&directory, &name, Vec::new()).ok())
            .flatten()
            .map(|target| target.to_string_lossy().into_owned());
        let entry = json!({
            "name": name.to_string_lossy(),
            "encoded": percent_encode(name.to_bytes(), NON_ALPHANUMERIC).to_string(),
            "kind": kind_name(kind),
            "size": stat.st_size,
            "modified_s": stat.st_mtime,
            "mode": format!("{:04o}", stat.st_mode & 0o7777),
            "target": target,
        });
        entries.push((kind != FileType::Directory, entry));
    }
    entries.sort_by_key(|(is_file, _)| *is_file);
    let entries: Vec<Value> = entries.into_iter().map(|(_, entry)| entry).collect();
    Ok(json!({ "entries": entries, "truncated": truncated }))
}

/// The names in a directory, up to the limit.
fn names(directory: &OwnedFd) -> rustix::io::Result<Vec<CString>> {
    let is_entry = |name: &CString| ![&b"."[..], b".."].contains(&name.to_bytes());
    let entries = Dir::read_from(directory)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    entries.filter(|name| !name.as_ref().is_ok_and(|name| !is_entry(name))).take(MAX_NAMES).collect()
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "directory",
        FileType::RegularFile => "file",
        FileType::Symlink => "symlink",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Unknown => "unknown",
    }
}

/// A regular file of a request, open for reading, and its size.
pub fn open(parameters: &Parameters) -> Result<(File, u64)> {
    let volume = MountedVolume::of(parameters)?;
    let path = shown_path(parameters)?;
    let failure = |error: std::io::Error| Failure::file("cannot read", &volume.path(&path), &error);
    // Without O_PATH the open of a pipe would wait for its writer.
    let found = open_below(&volume.mountpoint, &path, OFlags::PATH | OFlags::NOFOLLOW).map_err(failure)?;
    let stat = rustix::fs::fstat(&found).map_err(|error| failure(error.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format_args!("{} is not a regular file", volume.path(&path).display()),
        ));
    }
    Ok((files::reopen(&found).map_err(failure)?, u64::try_from(stat.st_size).unwrap_or(0)))
}

/// The contents of a file that the page shows or compares.
pub enum Content {
    Text(String),
    /// A picture that browsers show.
    Picture,
    Binary,
    /// Larger than [`MAX_TEXT_BYTES`].
    Large,
}

impl Content {
    pub fn name(&self) -> &'static str {
        match self {
            Content::Text(_) => "text",
            Content::Picture => "picture",
            Content::Binary => "binary",
            Content::Large => "large",
        }
    }

    /// Reads a file, up to the limit.
    pub fn read(file: &mut File) -> std::io::Result<Self> {
        let mut bytes = Vec::new();
        file.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes)?;
        if picture_type(&bytes).is_some() {
            return Ok(Content::Picture);
        }
        if bytes.len() as u64 > MAX_TEXT_BYTES {
            return Ok(Content::Large);
        }
        Ok(match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Content::Text(text),
            _ => Content::Binary,
        })
    }
}

/// The text of a file, or what else it is.
pub fn text(parameters: &Parameters) -> Result<Value> {
    let (mut file, size) = open(parameters)?;
    let content = read(&mut file)?;
    let text = if let Content::Text(text) = &content { Some(text) } else { None };
    Ok(json!({ "kind": content.name(), "text": text, "size": size }))
}

/// Reads the contents of a file that [`open`] returned.
pub fn read(file: &mut File) -> Result<Content> {
    Content::read(file).map_err(unreadable)
}

/// An error of reading a file that [`open`] returned.
pub fn unreadable(error: std::io::Error) -> Failure {
    Failure::new(StatusCode::BAD_GATEWAY, format_args!("cannot read the file: {error}"))
}

/// The media type of a picture by its first bytes; only of formats that cannot contain scripts.
pub fn picture_type(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn open_below(mountpoint: &Path, path: &Path, flags: OFlags) -> std::io::Result<OwnedFd> {
    let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(mountpoint, open, Mode::empty())?;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(&root, path.as_os_str().as_bytes(), flags, Mode::empty(), resolve)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(outside.path(), temp.path().join("link")).unwrap();
        std::fs::create_dir(temp.path().join("dir")).unwrap();
        let open = |path: &str| open_below(temp.path(), Path::new(path), OFlags::RDONLY);
        assert!(open("").is_ok() && open("dir").is_ok());
        std::fs::write(temp.path().join("dir/file"), "").unwrap();
        let file = open_below(temp.path(), Path::new("dir/file"), OFlags::PATH | OFlags::NOFOLLOW);
        assert!(file.is_ok(), "{file:?}");
        for path in ["link", "link/secret", "../x", "/etc"] {
            assert!(open(path).is_err(), "{path}");
        }
    }

    #[test]
    fn contents_are_recognised() {
        let kind = |bytes: &[u8]| {
            let temp = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(temp.path(), bytes).unwrap();
            Content::read(&mut File::open(temp.path()).unwrap()).unwrap().name()
        };
        assert_eq!(kind("grüße\n".as_bytes()), "text");
        assert_eq!(kind(b"a\0b"), "binary");
        assert_eq!(kind(b"\xff"), "binary");
        assert_eq!(kind(b"GIF89a..."), "picture");
        assert_eq!(kind(&vec![b'a'; MAX_TEXT_BYTES as usize + 1]), "large");
    }
}
