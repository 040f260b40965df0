//! The arguments of `shunt volume tree`.

use std::path::PathBuf;

use clap::Args;
use shunt_volume::id::{NodeName, VolumeName};

use super::MountArgs;

pub const TREE_EXAMPLES: &str = "\
Examples:
  shunt volume create site                             once, for all machines
  shunt volume tree --daemon site /net                 on each of them
  mkdir /net/.tree/volumes
  echo 'place = \"work/team\"' > /net/.tree/volumes/team.toml
                                                       mounts volume team at /net/work/team, on all of them

With `shunt install-helpers`, mount(8) and /etc/fstab know trees:
  site  /net  shunt.tree  meta=postgres://ada@db/volumes,nofail  0  0";

#[derive(Args, Clone, Debug)]
pub struct VolumeTreeArgs {
    /// The volume that describes the tree
    #[arg(value_name = "NAME", index = 1)]
    pub name: VolumeName,

    /// Address of that volume's metadata, and of every volume whose file names no `store` [default: for each volume, through the
    /// gateway that this machine joined, or sqlite:$XDG_DATA_HOME/shunt/volumes/VOLUME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// Cache directory of this machine, with each volume in DIR/VOLUME [default: $XDG_CACHE_HOME/shunt/volumes]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// Name of this machine: in nodes/NODE.toml, in conflicts and in logs [default: as it joined volume NAME, or its host name]
    #[arg(long, value_name = "NODE")]
    pub node: Option<NodeName>,

    #[command(flatten)]
    pub mount: MountArgs,
}
