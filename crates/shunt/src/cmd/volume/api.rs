//! What the daemon of a volume tells, as it travels and as `--json` shows it. Times are UTC, as `YYYY-MM-DDTHH:MM:SS.mmmZ`.

use serde::{Deserialize, Serialize};

/// Two versions of one thing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conflict {
    /// From the top directory.
    pub path: String,
    /// This machine's side first: `modify/modify`, `modify/delete`, ...
    pub kind: String,
    /// When it was found here.
    pub since: String,
    /// This machine's, and the store's.
    pub sides: Vec<Side>,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Side {
    /// Its entry of the directory: the machine.
    pub node: String,
    /// It is this machine's.
    pub here: bool,
    /// `file`, `directory`, ..., or `deleted`. The other fields tell nothing then.
    pub what: String,
    /// In bytes.
    pub size: u64,
    /// When it was last written.
    pub modified: Option<String>,
    /// Whose it is, by number.
    pub owner: Option<u32>,
}

/// A conflict that was to be resolved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resolved {
    /// From the top directory.
    pub path: String,
    /// Why it was not.
    pub error: Option<String>,
}

/// What was at a path since a commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    /// The commit: `PATH@#SEQ` shows it.
    pub seq: u64,
    /// When the store took it.
    pub at: Option<String>,
    /// Whose it is.
    pub node: Option<String>,
    /// `file`, `directory`, ..., or `removed`.
    pub what: String,
    /// In bytes.
    pub size: u64,
    /// Permission bits, in octal digits.
    pub mode: Option<String>,
    /// It is so still.
    pub current: bool,
}

/// A commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Commit {
    /// Its place in the log.
    pub seq: u64,
    /// When the store took it.
    pub at: String,
    /// Whose.
    pub node: String,
    /// At least one.
    pub changes: Vec<Change>,
}

/// What was done to a path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Change {
    /// `made`, `wrote`, `moved`, `linked`, `removed`, `mode`, `owner`, `group`, `time` or `xattr`.
    pub what: String,
    /// From the top directory, as it was. None: of something whose names are not known any more.
    pub path: Option<String>,
    /// More about it: what was made, the bytes of a file, where it was before, the mode, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A tree of volumes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TreeState {
    /// The volume that describes it.
    pub config: String,
    /// What this machine is called in it.
    pub node: String,
    /// What is wrong with that volume; what it said before is in effect then.
    pub error: Option<String>,
    /// In the order of their names.
    pub volumes: Vec<TreeVolume>,
}

/// A volume of a tree.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TreeVolume {
    /// Its name.
    pub name: String,
    /// Where it is, from the mount point of the tree on.
    pub place: String,
    /// `mounted`, `away` (not mounted), or `leaving` (unmounted, and commits what is left).
    pub state: String,
    /// Why it is not as it is wanted.
    pub error: Option<String>,
}
