//! `shunt volume serve`, `invite`, `join` and `nodes`: the gateway that serves a volume, and the nodes that use it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use shunt_volume::gateway::Role;
use shunt_volume::id::{NodeName, VolumeName};

use super::LogArgs;

const SERVE_EXAMPLES: &str = "\
Examples:
  shunt volume serve notes --listen 0.0.0.0:7070 --address gate.example:7070
  shunt volume invite notes                      prints a token for one machine, valid for a day
  shunt volume join TOKEN                        on that machine; then `shunt volume mount notes /mnt/notes`

A machine that joined with the role `gateway` can serve others too, without access to the stores:
  shunt volume invite notes --role gateway
  shunt volume serve notes                       on that machine, after `shunt volume join TOKEN`";

/// The volume that a gateway serves, and its registry.
#[derive(Args, Clone, Debug)]
pub struct ServedArgs {
    /// The volume
    #[arg(value_name = "NAME")]
    pub name: VolumeName,

    /// Registry of the gateway's authority, invitations and nodes. Keep it private: anyone who can read it can add nodes [default:
    /// $XDG_DATA_HOME/shunt/gateways/NAME.registry]
    #[arg(long, alias = "book", value_name = "FILE")]
    pub registry: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    pub served: ServedArgs,

    /// Address of the volume's metadata, as given to `create` [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME, or if that does
    /// not exist, the gateway that this machine joined]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7070")]
    pub listen: String,

    /// Host and port at which nodes reach the gateway, recorded in tokens [default: the host name, and the port of --listen]
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,

    /// Export metrics to Prometheus at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,

    /// Once sandboxed, try operations that must fail
    #[arg(long, hide = true)]
    pub sandbox_probe: bool,

    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Args, Clone, Debug)]
pub struct InviteArgs {
    #[command(flatten)]
    pub served: ServedArgs,

    /// Permission of the node: read, write, admin (may also remove unreferenced contents), or gateway (may also serve nodes of its
    /// own)
    #[arg(long, value_name = "ROLE", default_value = "write")]
    pub role: Role,

    /// Include the key of an encrypted volume in the token: anyone who has the token can read the contents
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Hours for which the token is valid, 1 to 8784
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8784))]
    pub hours: u32,
}

#[derive(Args, Clone, Debug)]
pub struct JoinArgs {
    /// Token that `shunt volume invite` printed; `-` reads it from standard input. On the command line, all users of this machine
    /// can read the token and the key that it may contain
    #[arg(value_name = "TOKEN")]
    pub token: String,

    /// Name of this machine in conflicts and in the log [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum NodesCommand {
    /// List the nodes and their roles
    List {
        #[command(flatten)]
        served: ServedArgs,
        /// Print JSON: [{name, role, since}]
        #[arg(long)]
        json: bool,
    },
    /// Change the role of a node, effective from its next request
    Role {
        #[command(flatten)]
        served: ServedArgs,
        /// The node
        #[arg(value_name = "NODE")]
        node: NodeName,
        /// New role: read, write, admin or gateway
        #[arg(value_name = "ROLE")]
        role: Role,
    },
    /// Remove a node: its requests are refused from the next one
    Remove {
        #[command(flatten)]
        served: ServedArgs,
        /// The node
        #[arg(value_name = "NODE")]
        node: NodeName,
    },
}
