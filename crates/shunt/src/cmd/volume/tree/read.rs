//! Reads the files of a config volume through its mount. Its writers may be on other machines and are not trusted: no path leads
//! out of it, and no file can block the reader.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use shunt_change_stamp::ChangeStamp;
use shunt_policy::Names;
use shunt_volume::tree_config::{ConfigError, Files, check_count, name_in};

/// Limit of the bytes of a file.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// Limit of the bytes of all files.
const MAX_TOTAL_BYTES: u64 = 64 << 20;
/// Limit of the files of a directory.
const MAX_FILES: usize = 200_000;

/// A fingerprint for detecting changes: the files that exist, and the time when each was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps(BTreeMap<String, ChangeStamp>);

impl Stamps {
    /// Collects the stamps of the files at `top`, and of this machine's accounts.
    pub fn take(top: &Path) -> io::Result<Self> {
        let mut stamps = Self::default();
        // An unmounted volume fails here, instead of looking like an empty directory.
        fs::metadata(top)?;
        for dir in ["volumes", "nodes"] {
            let at = top.join(dir);
            match fs::symlink_metadata(&at) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
                Ok(of) if !of.is_dir() => return Err(io::Error::other(format!("{dir} is not a directory"))),
                Ok(_) => {}
            }
            for (count, entry) in fs::read_dir(at)?.enumerate() {
                if count == MAX_FILES {
                    return Err(io::Error::other(format!("{dir} has more than {MAX_FILES} files")));
                }
                let name = entry?.file_name();
                let path = format!("{dir}/{}", name.to_string_lossy());
                if name_in(dir, &path).is_some() {
                    stamps.add(path.clone(), fs::symlink_metadata(top.join(path)))?;
                }
            }
        }
        stamps.add("users.toml".into(), fs::symlink_metadata(top.join("users.toml")))?;
        for file in [PASSWD, GROUP] {
            stamps.add(file.into(), fs::metadata(file))?;
        }
        Ok(stamps)
    }

    fn add(&mut self, name: String, of: io::Result<fs::Metadata>) -> io::Result<()> {
        match of {
            Ok(of) => {
                self.0.insert(name, ChangeStamp::from(&of));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads all files that have a stamp.
    pub fn read(&self, top: &Path) -> Result<Files, ConfigError> {
        let names = self.0.keys().map(String::as_str).filter(|name| !name.starts_with('/'));
        check_count(names.clone())?;
        let complain = |file: &str, why| ConfigError { file: file.to_owned(), line: None, why };
        let top = rustix::fs::open(top, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| complain(".", error.to_string()))?;
        let mut files = Files::new();
        let mut room = MAX_TOTAL_BYTES;
        for name in names {
            let text = read(top.as_fd(), name, &mut room).map_err(|why| complain(name, why))?;
            files.insert(name.to_owned(), text);
        }
        Ok(files)
    }
}

/// Reads one file, which must not be longer than `room`.
fn read(top: BorrowedFd<'_>, name: &str, room: &mut u64) -> Result<String, String> {
    let no_file = || "it is not a regular file".to_owned();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let open = match rustix::fs::openat2(top, name, flags, Mode::empty(), resolve) {
        Err(Errno::LOOP | Errno::NXIO | Errno::XDEV) => return Err(no_file()),
        open => fs::File::from(open.map_err(|error| error.to_string())?),
    };
    let of = open.metadata().map_err(|error| error.to_string())?;
    if of.is_dir() {
        return Err(
            "conflicting changes of two machines; resolve them with `shunt volume resolve`".to_owned()
        );
    }
    if !of.is_file() {
        return Err(no_file());
    }
    let mut text = Vec::new();
    open.take(MAX_FILE_BYTES.min(*room) + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    let length = text.len() as u64;
    if length > MAX_FILE_BYTES {
        return Err(format!("it is longer than {MAX_FILE_BYTES} bytes"));
    }
    *room = room
        .checked_sub(length)
        .ok_or_else(|| format!("the files up to this one exceed {MAX_TOTAL_BYTES} bytes in total"))?;
    String::from_utf8(text).map_err(|_| "it is not valid UTF-8".to_owned())
}

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// The accounts of this machine.
pub fn accounts() -> Names {
    let text = |file| fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Names::parse(&text(PASSWD).unwrap_or_default(), &text(GROUP).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType};

    use super::*;

    fn refused(top: &Path) -> String {
        match Stamps::take(top) {
            Ok(stamps) => stamps.read(top).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn only_plain_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        let file = top.join("volumes/a.toml");
        fs::create_dir_all(top.join("volumes")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("a.toml"), "").unwrap();
        // Opening a FIFO for reading would block until there is a writer.
        for kind in [FileType::Fifo, FileType::Socket] {
            rustix::fs::mknodat(CWD, &file, kind, Mode::RUSR | Mode::WUSR, 0).unwrap();
            assert_eq!(refused(&top), "volumes/a.toml: it is not a regular file");
            fs::remove_file(&file).unwrap();
        }
        symlink("../../outside/a.toml", &file).unwrap();
        assert_eq!(refused(&top), "volumes/a.toml: it is not a regular file");
        fs::remove_file(&file).unwrap();
        fs::write(&file, "place = \"b\"").unwrap();
        assert_eq!(Stamps::take(&top).unwrap().read(&top).unwrap()["volumes/a.toml"], "place = \"b\"");
        symlink("../outside", top.join("nodes")).unwrap();
        assert_eq!(refused(&top), "nodes is not a directory");
    }

    #[test]
    fn so_much_and_not_more_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        fs::create_dir(top.join("nodes")).unwrap();
        for at in 0..=MAX_TOTAL_BYTES / MAX_FILE_BYTES {
            fs::File::create(top.join(format!("nodes/{at:04}.toml")))
                .unwrap()
                .set_len(MAX_FILE_BYTES)
                .unwrap();
        }
        let last = format!("nodes/{:04}.toml", MAX_TOTAL_BYTES / MAX_FILE_BYTES);
        assert_eq!(
            refused(top),
            format!("{last}: the files up to this one exceed {MAX_TOTAL_BYTES} bytes in total")
        );
        fs::remove_file(top.join(last)).unwrap();
        assert!(Stamps::take(top).unwrap().read(top).is_ok());
        // The count is checked before any file is read: this one could not be.
        fs::create_dir(top.join("volumes")).unwrap();
        fs::create_dir(top.join("volumes/0.toml")).unwrap();
        (1..=1000).for_each(|at| fs::write(top.join(format!("volumes/{at}.toml")), "").unwrap());
        assert_eq!(refused(top), "volumes: a tree has at most 1000 volumes");
    }
}
