//! Requests about volumes. Paths are bytes, since names need not be UTF-8.

use serde::{Deserialize, Serialize};

/// A request about a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeAsk {
    /// List the conflicts at a path and below it.
    Conflicts {
        /// Relative to the root directory.
        under: Vec<u8>,
    },
    /// Keep one version of a conflict, or both.
    Resolve {
        /// The node whose version is kept, or `both`.
        keep: String,
        /// Relative to the root directory.
        path: Vec<u8>,
        /// Include all conflicts below the path.
        below: bool,
    },
    /// Pin a path and everything below it, or unpin it.
    Pin {
        /// Relative to the root directory.
        path: Vec<u8>,
        /// Pin rather than unpin.
        pinned: bool,
    },
    /// List the versions of a path.
    History {
        /// Relative to the root directory.
        path: Vec<u8>,
    },
    /// Report the volumes of a tree and their states.
    Tree,
    /// List the last commits.
    Log {
        /// Only changes of this path and below it. None: all.
        path: Option<Vec<u8>>,
        /// Limit of the number of commits.
        #[serde(rename = "most")]
        limit: u32,
    },
}
