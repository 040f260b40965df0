//! Identifiers: of objects, commits and owners, and the names of nodes and volumes. Names consist of letters, digits, `-`, `_`
//! and `.`, and do not begin with a dot.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Identifies a file, directory, link or device on all nodes, and is never reused; independent of its path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId(pub u128);

impl ObjectId {
    /// The root directory of each volume.
    pub const ROOT: Self = Self(1);

    /// Encodes the id big-endian, so that database keys sort by number.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Decodes [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The sequence number of a commit in the log of its volume, from 1 up without gaps. 0: before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A user or a group in a volume. Each node maps it to a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OwnerId(pub u32);

/// A name that is not allowed, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {name:?} is not allowed: 1 to {max_bytes} letters, digits, `-`, `_` and `.`, not beginning with a dot"
)]
pub struct BadName {
    what: &'static str,
    name: String,
    max_bytes: usize,
}

fn validate_name(what: &'static str, name: &str, max_bytes: usize) -> Result<String, BadName> {
    let fits = (1..=max_bytes).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if fits { Ok(name.to_owned()) } else { Err(BadName { what, name: name.to_owned(), max_bytes }) }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $max_bytes:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Returns the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = BadName;

            fn from_str(name: &str) -> Result<Self, BadName> {
                validate_name($what, name, $max_bytes).map(Self)
            }
        }

        impl TryFrom<String> for $type {
            type Error = BadName;

            fn try_from(name: String) -> Result<Self, BadName> {
                name.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A machine that has a replica of a volume, or accesses it. Conflicts name its side by this.
    NodeName,
    "the node's name",
    64
);
impl NodeName {
    /// Returns the name that stands for the author of a change if the author is unknown.
    pub fn store() -> Self {
        Self("store".into())
    }
}

name!(
    /// The name of a volume, as users know it.
    VolumeName,
    "the volume's name",
    64
);
