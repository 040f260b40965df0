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
/// As text: nothing for a directory beside the metadata, `file:DIR`, `s3://BUCKET[/PREFIX]`, `gs://BUCKET[/PREFIX]`,
/// `az://CONTAINER[/PREFIX]`, or the URL of a directory of a WebDAV server. Every build parses and stores all of them; the last
/// three can be opened by builds with the feature `gcp`, `azure` or `http`.
///
/// The order of the variants is part of the stored form of a volume's descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataAddress {
    /// In the directory of the metadata: the volume can be moved as a whole.
    Beside,
    /// In a directory of this machine, or one that all machines share.
    Directory(PathBuf),
    /// In an S3 bucket, below a prefix.
    S3(String, String),
    /// In a bucket of Google Cloud Storage, below a prefix.
    Gcs(String, String),
    /// In a container of Azure Blob Storage, below a prefix.
    Azure(String, String),
    /// In a directory of a WebDAV server: its URL, without a slash at the end.
    Http(String),
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
        let wrong = || AddressError(text.to_owned(), DATA_FORMS);
        let (scheme, location) = text.split_once("://").ok_or_else(wrong)?;
        let (first, rest) = location.split_once('/').unwrap_or((location, ""));
        if first.is_empty() {
            return Err(wrong());
        }
        let below = rest.trim_matches('/').to_owned();
        match scheme {
            "s3" => Ok(Self::S3(first.into(), below)),
            "gs" => Ok(Self::Gcs(first.into(), below)),
            "az" => Ok(Self::Azure(first.into(), below)),
            // Every node reads the address, and a node may not have the password. Not the text: it contains one.
            "http" | "https" if first.contains('@') => Err(AddressError("--data".into(), LOGIN_IN_URL)),
            "http" | "https" if location.contains(['?', '#']) => {
                Err(AddressError(text.to_owned(), "a URL of a WebDAV directory has no query and no fragment"))
            }
            "http" | "https" => Ok(Self::Http(text.trim_end_matches('/').into())),
            _ => Err(wrong()),
        }
    }
}

const DATA_FORMS: &str =
    "expected file:DIR, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or https://HOST/DIR";
const LOGIN_IN_URL: &str =
    "a URL with a login would be stored in the volume: put it into SHUNT_HTTP_USER and SHUNT_HTTP_PASSWORD";

impl fmt::Display for DataAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beside => f.write_str("beside the metadata"),
            Self::Directory(dir) => write!(f, "file:{}", dir.display()),
            Self::S3(bucket, prefix) => write_bucket(f, "s3", bucket, prefix),
            Self::Gcs(bucket, prefix) => write_bucket(f, "gs", bucket, prefix),
            Self::Azure(container, prefix) => write_bucket(f, "az", container, prefix),
            Self::Http(url) => f.write_str(url),
        }
    }
}

fn write_bucket(f: &mut fmt::Formatter<'_>, scheme: &str, bucket: &str, prefix: &str) -> fmt::Result {
    let slash = if prefix.is_empty() { "" } else { "/" };
    write!(f, "{scheme}://{bucket}{slash}{prefix}")
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
        for text in [
            "file:/a",
            "s3://bucket",
            "s3://bucket/a/b",
            "gs://bucket",
            "gs://bucket/a/b",
            "az://container",
            "az://container/a/b",
            "http://host:8080",
            "https://host/a/b",
        ] {
            assert_eq!(text.parse::<DataAddress>().unwrap().to_string(), text);
        }
        let azure = |text: &str| text.parse::<DataAddress>().unwrap();
        assert_eq!(azure("az://container/a/b/"), DataAddress::Azure("container".into(), "a/b".into()));
        assert_eq!(azure("https://host/a/"), DataAddress::Http("https://host/a".into()));
        for wrong in [
            "",
            "file:",
            "s3://",
            "s3:///a",
            "/a",
            "gs://",
            "gs:///a",
            "az://",
            "gcs://bucket",
            "http:/host",
            "https://",
            "https:///a",
            "https://host/a?b",
            "https://host/a#b",
            "https://host?b",
            "ftp://host/a",
        ] {
            assert!(wrong.parse::<DataAddress>().is_err(), "{wrong}");
        }
        let login = "https://ada:secret@host/a".parse::<DataAddress>().unwrap_err().to_string();
        assert!(login.contains("SHUNT_HTTP_PASSWORD") && !login.contains("secret"), "{login}");
    }

    /// Descriptors of volumes in use begin with these numbers.
    #[test]
    fn the_stored_form_of_an_address_stays() {
        for (text, number) in
            [("file:/a", 1), ("s3://b/p", 2), ("gs://b/p", 3), ("az://c/p", 4), ("https://h/p", 5)]
        {
            let address: DataAddress = text.parse().unwrap();
            let stored = crate::store::codec::encode(&address);
            assert_eq!(stored[0], number, "{text}");
            assert_eq!(crate::store::codec::decode::<DataAddress>("an address", &stored).unwrap(), address);
        }
        assert_eq!(crate::store::codec::encode(&DataAddress::Beside), [0]);
    }
}
