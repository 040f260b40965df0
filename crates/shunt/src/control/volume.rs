//! What is asked of the daemon of a volume. Paths are bytes: names need not be text.

use serde::{Deserialize, Serialize};

/// A question about a volume, or something to do in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeAsk {
    /// Which conflicts are at a path or below it?
    Conflicts {
        /// From the top directory.
        under: Vec<u8>,
    },
    /// Keep one side of a conflict, or both.
    Resolve {
        /// The node whose side it is, or `both`.
        keep: String,
        /// From the top directory.
        path: Vec<u8>,
        /// All conflicts below the path too.
        below: bool,
    },
    /// Keep what is at a path and below it, or let it leave again.
    Pin {
        /// From the top directory.
        path: Vec<u8>,
        /// Whether to keep it.
        pinned: bool,
    },
    /// What was at a path?
    History {
        /// From the top directory.
        path: Vec<u8>,
    },
    /// Of a tree: which volumes are in it, and how are they?
    Tree,
    /// What was committed last?
    Log {
        /// Of this path and what is below it. None: of all.
        path: Option<Vec<u8>>,
        /// At most so many commits.
        most: u32,
    },
}
