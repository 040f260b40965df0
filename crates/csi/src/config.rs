//! The settings of the plugin.

use std::path::PathBuf;

use crate::launch::Detach;

/// The settings of the plugin. All paths are absolute, and as seen from the mount namespace in which mounts are made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Socket to listen on; an existing one is replaced.
    pub socket: PathBuf,
    /// Name of this node, the same that the orchestrator uses; 1 to 192 bytes.
    pub node_id: String,
    /// Name of the driver, such as `csi.shunt.dev`; 1 to 63 bytes.
    pub driver_name: String,
    /// Directory of records, logs, keys and caches. No other plugin may use it.
    pub state_dir: PathBuf,
    /// Binary that is executed for mounts, outside of the plugin's container.
    pub program: PathBuf,
    /// Version of this plugin.
    pub version: String,
    /// How daemons are kept alive after the end of the plugin.
    pub detach: Detach,
    /// Dynamic provisioning; `None`: the service Controller is not offered.
    pub provision: Option<Provision>,
}

/// Dynamic provisioning.
#[derive(Clone, Debug)]
pub struct Provision {
    /// Directory below which directories of mirrors and local stores of volumes are created.
    pub base: PathBuf,
    /// The base directory is the same on all nodes, such as a network file system: volumes are not bound to this node.
    pub shared: bool,
}

impl Config {
    /// Key of the topology segment that names the node of a volume.
    pub(crate) fn topology_key(&self) -> String {
        format!("topology.{}/node", self.driver_name)
    }

    /// Directory of the file that a daemon and its guardian log to.
    pub(crate) fn logs(&self) -> PathBuf {
        self.state_dir.join("logs")
    }
}
