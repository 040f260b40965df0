//! The routing file: assigns volumes to databases.
//!
//! It has a line per volume:
//!
//! ```text
//! # comments, and empty lines
//! team = postgres://ada@db1/volumes
//! photos = postgres://ada@db2/volumes
//! * = postgres://ada@db3/volumes
//! ```
//!
//! `*` matches all volumes that are not named. The file's administrator moves volumes between databases; it is read at each
//! open.

use std::path::{Path, PathBuf};

use super::MetaAddress;
use crate::id::VolumeName;

/// Name that matches all other volumes.
const DEFAULT_ROUTE: &str = "*";
/// Maximum size of the file in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// An error of resolving the address of a volume by a routing file.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The file cannot be read.
    #[error("cannot read {0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// A line is malformed.
    #[error("{0}, line {1}: {2}")]
    Line(PathBuf, usize, &'static str),
    /// The volume is not listed.
    #[error("{0} does not list volume {1}: add a line `{1} = ADDRESS`")]
    Unknown(PathBuf, VolumeName),
}

/// Looks up the address of a volume's metadata in a routing file.
///
/// # Errors
/// See [`MapError`]. The whole file is checked.
pub fn find(file: &Path, volume: &VolumeName) -> Result<MetaAddress, MapError> {
    let unreadable = |error| MapError::Unreadable(file.to_owned(), error);
    if std::fs::metadata(file).map_err(unreadable)?.len() > MAX_FILE_BYTES {
        return Err(unreadable(std::io::ErrorKind::FileTooLarge.into()));
    }
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    read(&text, volume)
        .map_err(|(line, why)| MapError::Line(file.to_owned(), line, why))?
        .ok_or_else(|| MapError::Unknown(file.to_owned(), volume.clone()))
}

type Wrong = (usize, &'static str);

fn read(text: &str, volume: &VolumeName) -> Result<Option<MetaAddress>, Wrong> {
    let (mut named, mut others) = (None, None);
    let mut seen = std::collections::HashSet::new();
    for (n, line) in text.lines().enumerate() {
        let wrong = |why| (n + 1, why);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, address) = line.split_once('=').ok_or(wrong("expected VOLUME = ADDRESS"))?;
        let (name, address) = (name.trim(), address.trim());
        if name != DEFAULT_ROUTE && name.parse::<VolumeName>().is_err() {
            return Err(wrong("invalid volume name"));
        }
        if !seen.insert(name) {
            return Err(wrong("this volume is listed twice"));
        }
        // Without the parser's reason: the address may contain a password.
        let parsed = address.parse::<MetaAddress>();
        let address = parsed.ok().ok_or(wrong("expected sqlite:DIR or postgres://USER@HOST/DATABASE"))?;
        if matches!(address, MetaAddress::Map(_)) {
            return Err(wrong("a routing file cannot refer to another one"));
        }
        if name == volume.as_str() {
            named = Some(address);
        } else if name == DEFAULT_ROUTE {
            others = Some(address);
        }
    }
    Ok(named.or(others))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route_of(text: &str) -> Result<Option<MetaAddress>, Wrong> {
        read(text, &"team".parse().unwrap())
    }

    fn postgres(host: &str) -> Option<MetaAddress> {
        Some(MetaAddress::Postgres(format!("postgres://a@{host}/d")))
    }

    #[test]
    fn the_volume_itself_before_all_others() {
        let named = "# ours\n\nteam=postgres://a@one/d\n";
        assert_eq!(route_of(named), Ok(postgres("one")));
        assert_eq!(route_of(&format!("* = postgres://a@two/d\n{named}")), Ok(postgres("one")));
        assert_eq!(route_of("other = postgres://a@one/d\n * = postgres://a@two/d"), Ok(postgres("two")));
        assert_eq!(route_of("other = postgres://a@one/d"), Ok(None));
        assert!(route_of("team = postgres://a@one/d?options=-c%20x=y").unwrap().is_some());
    }

    #[test]
    fn invalid_line_is_reported_without_password() {
        for (text, line) in [
            ("team", 1),
            ("\nteam = mysql://secret@h", 2),
            ("team = postgres://a\nteam = postgres://b", 2),
            ("a b = postgres://a", 1),
            ("team = map:/other", 1),
            ("team = postgres://a@one/d\nother = nothing", 2),
        ] {
            let (found, why) = route_of(text).unwrap_err();
            assert_eq!(found, line, "{text}");
            assert!(!why.contains("secret"));
        }
    }

    #[test]
    fn a_file_is_looked_at_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let (file, name) = (dir.path().join("map"), "team".parse().unwrap());
        assert!(matches!(find(&file, &name), Err(MapError::Unreadable(..))));
        std::fs::write(&file, "other = postgres://a@one/d").unwrap();
        assert!(matches!(find(&file, &name), Err(MapError::Unknown(..))));
        std::fs::write(&file, "team = postgres://a@one/d").unwrap();
        assert_eq!(find(&file, &name).unwrap(), postgres("one").unwrap());
    }
}
