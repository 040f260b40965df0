//! The arguments of `shunt volume conflicts`, `resolve`, `log`, `history`, `restore` and `set`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use shunt_volume::id::VolumeName;

use super::quota::QuotaArgs;

pub const SET_EXAMPLES: &str = "\
Examples:
  shunt volume set notes                                     show the settings
  shunt volume set --keep-days 90 notes
  shunt volume set --quota 20G --user-quota each:2G notes    connected machines apply it at once
  shunt volume set --user-quota 1000:none notes
  shunt volume set --conflicts copy notes";

pub const RESOLVE_EXAMPLES: &str = "\
Examples:
  shunt volume resolve --keep laptop /mnt/notes/plan.txt     delete the other version, as `rm` of its entry does
  shunt volume resolve --keep both /mnt/notes/plan.txt       this machine's version becomes plan.txt.conflict-NODE
  shunt volume resolve --keep desk --all /mnt/notes";

#[derive(Args, Clone, Debug)]
pub struct ConflictsArgs {
    /// Print JSON: an array of {path, kind, since, sides: [{node, here, what, size, modified, owner}]}
    #[arg(long)]
    pub json: bool,

    /// A mounted volume, or a path in one: lists the conflicts there and below
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct ResolveArgs {
    /// Node whose version is kept, by the name of its entry in the conflict's directory, or `both`
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
    pub limit: u32,

    /// A mounted volume, or a path in one: shows the changes there and below
    #[arg(value_name = "PATH", default_value = ".")]
    pub path: PathBuf,
}

pub const RESTORE_EXAMPLES: &str = "\
Examples:
  shunt volume restore /mnt/notes/plan.txt                       the previous version, also of a removed file
  shunt volume restore /mnt/notes/plan.txt@2026-11-20            the version at the start of that day
  shunt volume restore /mnt/notes/drafts@2026-11-20T12:30 --to /mnt/notes/old";

#[derive(Args, Clone, Debug)]
pub struct HistoryArgs {
    /// Print JSON: an array of {seq, at, node, what, size, mode, current}
    #[arg(long)]
    pub json: bool,

    /// A path in a mounted volume; it may have been removed
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
}

#[derive(Args, Clone, Debug)]
pub struct RestoreArgs {
    /// Path to restore to [default: the original path]
    #[arg(long, value_name = "PATH")]
    pub to: Option<PathBuf>,

    /// A path in a mounted volume, followed by `@` and a time or `@#` and a commit; for a file without either: its previous
    /// version
    #[arg(value_name = "PATH[@TIME]")]
    pub path: PathBuf,
}

/// The presentation of two conflicting versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConflictsArg {
    /// A directory replaces the file, with an entry for each version, until one is removed
    Directory,
    /// This machine's version stays at the path; the other one is stored beside it as NAME.theirs-NODE, visible to all
    #[value(alias = "beside")]
    Copy,
}

/// A number to keep, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionLimit {
    /// At most this many.
    AtMost(u32),
    /// No limit.
    All,
}

impl FromStr for RetentionLimit {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "all" => Ok(Self::All),
            word => {
                word.parse().map(Self::AtMost).map_err(|_| "expected a number from 0 up, or `all`".to_owned())
            }
        }
    }
}

impl RetentionLimit {
    /// The number; none for all.
    pub fn number(self) -> Option<u32> {
        match self {
            Self::AtMost(number) => Some(number),
            Self::All => None,
        }
    }
}

#[derive(Args, Clone, Copy, Debug)]
pub struct RetentionArgs {
    /// Days for which changed and removed versions are kept, or `all` [default of a new volume: 30]
    #[arg(long, value_name = "DAYS")]
    pub keep_days: Option<RetentionLimit>,

    /// Number of previous versions that are kept of a file, or `all` [default of a new volume: all]
    #[arg(long, value_name = "COUNT")]
    pub keep_versions: Option<RetentionLimit>,
}

#[derive(Args, Clone, Debug)]
pub struct VolumeSetArgs {
    /// Address of the volume's metadata, as given to `create` [default: sqlite:$XDG_DATA_HOME/shunt/volumes/NAME]
    #[arg(long, value_name = "ADDRESS", env = "SHUNT_VOLUME_META", hide_env_values = true)]
    pub meta: Option<String>,

    /// The key file of an encrypted volume, to change the settings of its machines [default:
    /// $XDG_CONFIG_HOME/shunt/volumes/NAME.key]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    #[command(flatten)]
    pub retention: RetentionArgs,

    #[command(flatten)]
    pub quota: QuotaArgs,

    /// How machines handle conflicting changes from now on
    #[arg(long, value_enum, value_name = "HOW")]
    pub conflicts: Option<ConflictsArg>,

    /// The volume
    #[arg(value_name = "NAME")]
    pub name: VolumeName,
}
