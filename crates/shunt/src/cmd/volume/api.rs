//! The replies of a volume's daemon, as they are sent and as `--json` prints them. Times are UTC, as `YYYY-MM-DDTHH:MM:SS.mmmZ`.

use serde::{Deserialize, Serialize};

use crate::report::renamed::{Renamed, serde_with_former_names, set_both_words};

/// Two conflicting versions of a path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conflict {
    /// Relative to the root directory.
    pub path: String,
    /// This machine's side first: `modify/modify`, `modify/delete`, ...
    pub kind: String,
    /// The time when this machine found it.
    pub since: String,
    /// This machine's version, and the store's.
    pub sides: Vec<Side>,
}

/// One version in a conflict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Side {
    /// Its entry in the conflict's directory: the name of the node.
    pub node: String,
    /// It is this machine's version.
    pub here: bool,
    /// `file`, `directory`, ..., or `deleted`, for which the other fields are unset.
    pub what: String,
    /// Size in bytes.
    pub size: u64,
    /// The time of the last modification.
    pub modified: Option<String>,
    /// The user id of its owner.
    pub owner: Option<u32>,
}

/// The result of resolving a conflict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resolved {
    /// Relative to the root directory.
    pub path: String,
    /// The reason of a failure.
    pub error: Option<String>,
}

/// The state of a path since a commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    /// The commit: `PATH@#SEQ` shows it.
    pub seq: u64,
    /// The time when the store accepted the commit.
    pub at: Option<String>,
    /// The node that committed it.
    pub node: Option<String>,
    /// `file`, `directory`, ..., or `removed`.
    pub what: String,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits, in octal digits.
    pub mode: Option<String>,
    /// It is the current state.
    pub current: bool,
}

/// A commit in the log of the volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Commit {
    /// Its sequence number in the log.
    pub seq: u64,
    /// The time when the store accepted it.
    pub at: String,
    /// The node that committed it.
    pub node: String,
    /// The changes, at least one.
    pub changes: Vec<Change>,
}

/// A change of a path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Change {
    /// `made`, `wrote`, `moved`, `linked`, `removed`, `mode`, `owner`, `group`, `time` or `xattr`.
    pub what: String,
    /// The path at that time, relative to the root directory. None for an object whose names are no longer known.
    pub path: Option<String>,
    /// Details: the kind of object created, the bytes of a file, the previous path, the mode, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The state of a tree of volumes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TreeState {
    /// The volume that describes it.
    pub config: String,
    /// The name of this machine in it.
    pub node: String,
    /// The error in that volume's files; the previous configuration stays in effect.
    pub error: Option<String>,
    /// The volumes, ordered by name.
    pub volumes: Vec<TreeVolume>,
}

/// The state of a volume in a tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct TreeVolume {
    /// Its name.
    pub name: String,
    /// Its path, relative to the mount point of the tree.
    pub place: String,
    /// `mounted`, `unmounted`, or `unmounting` (not visible any more, while its daemon commits the remaining changes).
    #[serde(default)]
    pub status: String,
    /// The former name of `status`: `mounted`, `away` or `leaving`.
    #[serde(default)]
    pub state: String,
    /// The reason why it is not in the requested state.
    pub error: Option<String>,
}

/// The states of a volume in a tree with their former names.
const TREE_STATES: &[(&str, &str)] = &[("unmounted", "away"), ("unmounting", "leaving")];

impl Renamed for TreeVolume {
    fn set_both_names(&mut self) {
        set_both_words(&mut self.status, &mut self.state, TREE_STATES);
    }
}

serde_with_former_names!(TreeVolume);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states_of_a_tree_have_former_names() {
        for (status, state) in [("mounted", "mounted"), ("unmounted", "away"), ("unmounting", "leaving")] {
            let volume = TreeVolume { name: "a".into(), status: status.into(), ..TreeVolume::default() };
            let value = serde_json::to_value(&volume).unwrap();
            let both = json!({"name": "a", "place": "", "status": status, "state": state, "error": null});
            assert_eq!(value, both);
            let older = json!({"name": "a", "place": "", "state": state, "error": null});
            assert_eq!(serde_json::from_value::<TreeVolume>(older).unwrap().status, status);
        }
    }
}
