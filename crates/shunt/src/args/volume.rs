//! `shunt volume` and what it does.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use shunt_volume::id::{NodeName, VolumeName};

use super::{MountArgs, PassthroughArg};

const MOUNT_EXAMPLES: &str = "\
Examples:
  shunt volume mount notes /mnt/notes              until Ctrl-C
  shunt volume mount --daemon notes /mnt/notes     in the background; then `shunt umount /mnt/notes`";

#[derive(Clone, Debug, Subcommand)]
pub enum VolumeCommand {
    /// Mount a volume: it is read and written at local speed, on the network or off it
    #[command(after_help = MOUNT_EXAMPLES, args_override_self = true)]
    Mount(Box<VolumeMountArgs>),

    /// Show how a mounted volume is: what is here, what waits for the network
    Status(VolumeStatusArgs),
}

#[derive(Args, Clone, Debug)]
pub struct VolumeMountArgs {
    /// The volume
    #[arg(value_name = "NAME", index = 1)]
    pub name: VolumeName,

    /// Where this machine keeps the volume's tree, and contents as far as they were wanted: plain files, also of an
    /// encrypted volume [default: $XDG_CACHE_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// What this machine is called, in conflicts and in the log [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,

    /// Whether file data goes past the daemon
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub passthrough: PassthroughArg,

    #[command(flatten)]
    pub mount: MountArgs,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeStatusArgs {
    /// Print JSON: {name, node, cache, state, reason, pending, objects_known}
    #[arg(long)]
    pub json: bool,

    /// Where it is mounted
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,
}
