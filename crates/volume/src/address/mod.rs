//! Addresses of a volume's stores, as a command line gives them and a volume's descriptor keeps them.
//!
//! Parsing asks nothing of the disk or the network, except [`MetaAddress::resolve`], which reads a [routing] file.

pub mod routing;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::VolumeName;
use crate::store::postgres;
use routing::MapError;

/// The address of a metadata store.
///
/// As text: `sqlite:DIR`, `postgres://…` as PostgreSQL's own tools understand it, `gateway:FILE`, or `map:FILE`.
#[derive(Clone, PartialEq, Eq)]
pub enum MetaAddress {
    /// A SQLite database in a directory of this machine.
    Sqlite(PathBuf),
    /// A PostgreSQL database, which may hold other volumes too. The text may contain a password.
    Postgres(String),
    /// A gateway, which serves metadata and contents, as a file of [`Credentials`](crate::gateway::Credentials) names it.
    Gateway(PathBuf),
    /// A file that has an address for each volume: see [`routing`].
    Map(PathBuf),
}

/// The address of a volume's contents.
///
/// As text: nothing for a directory beside the metadata, `file:DIR`, or `s3://BUCKET[/PREFIX]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataAddress {
    /// In the directory of the metadata: the volume can be moved as a whole.
    Beside,
    /// In a directory of this machine, or one that all machines share.
    Directory(PathBuf),
    /// In a bucket, below a prefix.
    S3(String, String),
}

/// An invalid address: the text (omitted if it may contain a password), and the expected form.
#[derive(Debug, thiserror::Error)]
#[error("cannot use address `{0}`: {1}")]
pub struct AddressError(pub String, pub &'static str);

impl FromStr for MetaAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once(':') {
            Some(("sqlite", dir)) if !dir.is_empty() => Ok(Self::Sqlite(dir.into())),
            Some(("gateway", file)) if !file.is_empty() => Ok(Self::Gateway(file.into())),
            Some(("map", file)) if !file.is_empty() => Ok(Self::Map(file.into())),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(text.to_owned())),
            // Not the text: a misspelt address may contain a password too.
            _ => Err(AddressError("--meta".into(), "expected sqlite:DIR or postgres://USER@HOST/DATABASE")),
        }
    }
}

impl fmt::Debug for MetaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(dir) => write!(f, "sqlite:{}", dir.display()),
            Self::Postgres(_) => f.write_str("postgres://…"),
            Self::Gateway(file) => write!(f, "gateway:{}", file.display()),
            Self::Map(file) => write!(f, "map:{}", file.display()),
        }
    }
}

impl MetaAddress {
    /// Reports whether the address contains a password.
    pub fn has_password(&self) -> bool {
        matches!(self, Self::Postgres(address) if postgres::has_password(address))
    }

    /// The address of one volume: looked up in the routing file where this is one, else the address itself.
    ///
    /// # Errors
    /// [`MapError`] where the routing file cannot be read or does not name the volume.
    pub fn resolve(&self, volume: &VolumeName) -> Result<Self, MapError> {
        match self {
            Self::Map(file) => routing::find(file, volume),
            other => Ok(other.clone()),
        }
    }
}

impl FromStr for DataAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(dir) = text.strip_prefix("file:").filter(|dir| !dir.is_empty()) {
            return Ok(Self::Directory(dir.into()));
        }
        let wrong = || AddressError(text.to_owned(), "expected file:DIR or s3://BUCKET/PREFIX");
        let place = text.strip_prefix("s3://").ok_or_else(wrong)?;
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            Err(wrong())
        } else {
            Ok(Self::S3(bucket.into(), prefix.trim_matches('/').into()))
        }
    }
}

impl fmt::Display for DataAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beside => f.write_str("beside the metadata"),
            Self::Directory(dir) => write!(f, "file:{}", dir.display()),
            Self::S3(bucket, prefix) if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3(bucket, prefix) => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let meta = |text: &str| text.parse::<MetaAddress>().ok();
        assert_eq!(meta("sqlite:/a/b"), Some(MetaAddress::Sqlite("/a/b".into())));
        assert_eq!(meta("postgres://u:p@h/d"), Some(MetaAddress::Postgres("postgres://u:p@h/d".into())));
        assert_eq!(format!("{:?}", meta("postgres://u:p@h/d").unwrap()), "postgres://…");
        for wrong in ["", "sqlite:", "/a/b", "mysql://h", "postgres"] {
            assert_eq!(meta(wrong), None, "{wrong}");
        }
        for text in ["file:/a", "s3://bucket", "s3://bucket/a/b"] {
            assert_eq!(text.parse::<DataAddress>().unwrap().to_string(), text);
        }
        for wrong in ["", "file:", "s3://", "s3:///a", "/a"] {
            assert!(wrong.parse::<DataAddress>().is_err(), "{wrong}");
        }
    }
}
