//! `shunt volume conflicts`, `resolve`, `log`.

use std::path::PathBuf;

use clap::Args;

pub const RESOLVE_EXAMPLES: &str = "\
Examples:
  shunt volume resolve --keep laptop /mnt/notes/plan.txt     the other version is deleted, as by `rm` of its entry
  shunt volume resolve --keep both /mnt/notes/plan.txt       this machine's becomes plan.txt.conflict-NODE
  shunt volume resolve --keep desk --all /mnt/notes";

#[derive(Args, Clone, Debug)]
pub struct ConflictsArgs {
    /// Print JSON: an array of {path, kind, since, sides: [{node, here, what, size, modified, owner}]}
    #[arg(long)]
    pub json: bool,

    /// A mounted volume, or a path in one: the conflicts there and below
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct ResolveArgs {
    /// The node whose version stays, as the conflict's directory names it, or `both`
    #[arg(long, value_name = "NODE")]
    pub keep: String,

    /// All conflicts at the paths and below them [default path: the current directory]
    #[arg(long)]
    pub all: bool,

    /// Paths in conflict
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeLogArgs {
    /// Print JSON: an array of {seq, at, node, changes: [{what, path, detail}]}
    #[arg(long)]
    pub json: bool,

    /// Show the last N commits, 1 to 10000
    #[arg(short = 'n', long = "number", value_name = "N", default_value = "50",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub most: u32,

    /// A mounted volume, or a path in one: what was done to it, and below it
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: PathBuf,
}
