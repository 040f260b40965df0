//! The arguments of `shunt csi`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::LogArgs;

#[derive(Args, Clone, Debug)]
pub struct CsiArgs {
    /// Socket to listen on
    #[arg(long, value_name = "unix://PATH", env = "CSI_ENDPOINT", value_parser = socket)]
    pub endpoint: PathBuf,

    /// Name of this node, as the orchestrator knows it: 1 to 192 bytes
    #[arg(long, value_name = "NAME", env = "NODE_NAME", value_parser = node_id)]
    pub node_id: String,

    /// Name of the driver
    #[arg(long, value_name = "NAME", default_value = "csi.shunt.dev", value_parser = driver_name)]
    pub driver_name: String,

    /// Directory of this host for the plugin's copy of this binary, records, logs, keys, and the caches of volumes
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/plugins/csi.shunt.dev")]
    pub state_dir: PathBuf,

    /// Provision volumes dynamically: create directories of mirrors, and volumes without an address of their own, in this directory
    #[arg(long, value_name = "DIR")]
    pub provision_dir: Option<PathBuf>,

    /// The directory for provisioning is the same on all nodes, such as a network file system: its volumes are not bound to a node
    #[arg(long, requires = "provision_dir")]
    pub shared_provision_dir: bool,

    /// Work in the namespaces of process 1: for a privileged container in the PID namespace of the host. All paths are paths of the host
    #[arg(long)]
    pub host_namespaces: bool,

    /// Process that stands for process 1
    #[arg(long, hide = true, default_value_t = 1)]
    pub host_pid: u32,

    /// How the daemons of mounts outlive the plugin
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub detach: DetachArg,

    /// With --detach cgroup: a directory of the cgroup file system (version 2) of the host, below which each mount gets a cgroup
    #[arg(long, value_name = "DIR", required_if_eq("detach", "cgroup"))]
    pub cgroup: Option<PathBuf>,

    #[command(flatten)]
    pub log: LogArgs,
}

/// How the daemons of mounts outlive the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DetachArg {
    /// A transient scope of systemd where it is process 1, else a session
    Auto,
    /// A transient scope of systemd for each mount
    Systemd,
    /// A cgroup for each mount, below --cgroup
    Cgroup,
    /// A session for each mount, in the cgroup of the plugin: not for containers
    Session,
}

/// The arguments of the process that starts a daemon on behalf of a plugin.
#[derive(Args, Clone, Debug)]
pub struct CsiMountArgs {
    /// File that is locked meanwhile
    #[arg(long)]
    pub lock: PathBuf,

    /// The mount point
    #[arg(long)]
    pub mountpoint: PathBuf,

    /// Cgroup to enter
    #[arg(long)]
    pub cgroup: Option<PathBuf>,

    /// The command line, without the program
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path =
        PathBuf::from(text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text));
    match path.is_absolute() {
        true => Ok(path),
        false => Err("not an absolute path, as in unix:///csi/csi.sock".to_owned()),
    }
}

fn node_id(text: &str) -> Result<String, String> {
    match text.len() {
        1..=192 => Ok(text.to_owned()),
        length => Err(format!("{length} bytes, not 1 to 192")),
    }
}

fn driver_name(text: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let is_inner = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    match bytes.len() <= 63
        && bytes.iter().all(|byte| is_allowed(*byte))
        && is_inner(bytes.first())
        && is_inner(bytes.last())
    {
        true => Ok(text.to_owned()),
        false => Err("not a domain name of at most 63 letters, digits, - and .".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_sockets() {
        for right in ["unix:///csi/a.sock", "unix:/csi/a.sock", "/csi/a.sock"] {
            assert_eq!(socket(right).unwrap(), PathBuf::from("/csi/a.sock"));
        }
        for wrong in ["", "unix://a.sock", "tcp://127.0.0.1:1", "http://x/"] {
            socket(wrong).unwrap_err();
        }
    }

    #[test]
    fn names_of_drivers() {
        driver_name("csi.shunt.dev").unwrap();
        for wrong in ["", ".", "a.", "-a", "a_b", &"a".repeat(64)] {
            driver_name(wrong).unwrap_err();
        }
    }
}
