//! `shunt volume serve` and those who use it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use shunt_volume::gateway::Role;
use shunt_volume::id::{NodeName, VolumeName};

use super::LogArgs;

const SERVE_EXAMPLES: &str = "\
Examples:
  shunt volume serve notes --listen 0.0.0.0:7070 --address gate.example:7070
  shunt volume invite notes                      prints a token for one machine, good for a day
  shunt volume join TOKEN                        there; then `shunt volume mount notes /mnt/notes`

A machine that joined with the role `gateway` may serve others too, without the stores:
  shunt volume invite notes --role gateway
  shunt volume serve notes                       there, after `shunt volume join TOKEN`";

/// Which volume, for the machine that serves it.
#[derive(Args, Clone, Debug)]
pub struct ServedArgs {
    /// The volume
    #[arg(value_name = "NAME")]
    pub name: VolumeName,

    /// Where its authority, its invitations and its nodes are kept: whoever reads this file can make nodes
    /// [default: $XDG_DATA_HOME/shunt/gateways/NAME.book]
    #[arg(long, value_name = "FILE")]
    pub book: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    pub served: ServedArgs,

    /// Where the metadata of the volume are, as it was made [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME, or where that
    /// is not, the gateway that this machine joined]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// Where to listen: address and port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7070")]
    pub listen: String,

    /// Where nodes find it: host and port. Goes into tokens [default: the host name, and the port of --listen]
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,

    /// Once locked in, try what must not work
    #[arg(long, hide = true)]
    pub sandbox_probe: bool,

    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Args, Clone, Debug)]
pub struct InviteArgs {
    #[command(flatten)]
    pub served: ServedArgs,

    /// What the node may do: read, write, admin (which removes contents that nothing speaks of), or gateway (all that,
    /// and serve nodes of its own)
    #[arg(long, value_name = "ROLE", default_value = "write")]
    pub role: Role,

    /// Put the key of an encrypted volume into the token: who has it reads the contents
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// How long the token is good: hours
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8784))]
    pub hours: u32,
}

#[derive(Args, Clone, Debug)]
pub struct JoinArgs {
    /// What `shunt volume invite` printed; `-`: a line of the standard input. In the command line all users of this machine can
    /// read it, the key that may be in it too
    #[arg(value_name = "TOKEN")]
    pub token: String,

    /// What this machine is called, in conflicts and in the log [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum NodesCommand {
    /// List them
    List {
        #[command(flatten)]
        served: ServedArgs,
        /// Print JSON: [{name, role, since}]
        #[arg(long)]
        json: bool,
    },
    /// Give a node another role; it holds from its next request on
    Role {
        #[command(flatten)]
        served: ServedArgs,
        /// The node
        #[arg(value_name = "NODE")]
        node: NodeName,
        /// read, write, admin or gateway
        #[arg(value_name = "ROLE")]
        role: Role,
    },
    /// Know a node no more, from its next request on
    Remove {
        #[command(flatten)]
        served: ServedArgs,
        /// The node
        #[arg(value_name = "NODE")]
        node: NodeName,
    },
}
