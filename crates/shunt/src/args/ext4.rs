//! The arguments of `shunt ext4`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};

use super::size::Size;
use super::{DataArg, LogArgs, MountArgs};

/// `shunt ext4 IMAGE MOUNTPOINT`, or `shunt ext4 COMMAND IMAGE ...`.
#[derive(Clone, Debug)]
pub enum Ext4Args {
    Mount(Box<Ext4MountArgs>),
    Inspect(Ext4Command),
}

// Implemented by hand: the derived form of "these arguments, or a subcommand" cannot distinguish the two when arguments are
// flattened.
impl Args for Ext4Args {
    fn augment_args(command: Command) -> Command {
        let command = Ext4Command::augment_subcommands(Ext4MountArgs::augment_args(command));
        command
            .subcommand_required(false)
            .arg_required_else_help(true)
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Ext4Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self> {
        match matches.subcommand() {
            Some(_) => Ext4Command::from_arg_matches(matches).map(Self::Inspect),
            None => Ext4MountArgs::from_arg_matches(matches).map(|mount| Self::Mount(Box::new(mount))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<()> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The reaction to damaged metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ErrorsArg {
    /// Fail operations on the damaged object with EUCLEAN; everything else stays usable
    Continue,
    /// Refuse all further changes
    RemountRo,
}

/// An image, its mount point and the options of the mount.
#[derive(Args, Clone, Debug)]
pub struct Ext4MountArgs {
    /// Image file, or block device
    #[arg(value_name = "IMAGE", index = 1)]
    pub image: PathBuf,

    #[command(flatten)]
    pub location: LocationArgs,

    /// File descriptor of the image, opened by the caller and inherited; IMAGE only names it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub fd: Option<i32>,

    /// Discard freed blocks on the device after each commit: an image file becomes sparse there, a disk may reuse them
    #[arg(long, overrides_with = "nodiscard")]
    pub discard: bool,

    /// Do not discard freed blocks (the default)
    #[arg(long, hide = true)]
    pub nodiscard: bool,

    /// Seconds after which unsynced changes are committed, 0 to 3600; 0 means the default
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub commit: u32,

    /// Reaction to damaged metadata in a writable mount
    #[arg(long, value_enum, value_name = "WHAT", default_value = "continue")]
    pub errors: ErrorsArg,

    /// Do not replay the journal, not even in memory, and refuse an image that needs it. Requires --read-only
    #[arg(long, visible_alias = "noload")]
    pub norecovery: bool,

    /// Keep the daemon's memory from being swapped out. Needs root, or an unlimited RLIMIT_MEMLOCK
    #[arg(long)]
    pub mlock: bool,

    /// Mount a writable image file of root without a loop device: `sync` and `umount` may then return before changes are durable
    #[arg(long)]
    pub no_loop: bool,

    /// Component that transfers file data
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub data: DataArg,

    /// Have a BPF program in the kernel answer repeated requests: `builtin`, or an object file made by clang. Needs the module
    /// shunt_fuse_ext and a build with the feature `extension`; without them the daemon answers
    #[arg(long, value_name = "PROGRAM")]
    pub extension: Option<PathBuf>,

    /// Do not let the kernel cache names and attributes, so that the extension sees every call: for programs whose answers depend
    /// on the caller
    #[arg(long, alias = "ask-always", requires = "extension")]
    pub no_kernel_cache: bool,

    /// Once sandboxed, try operations that must fail
    #[arg(long, hide = true)]
    pub sandbox_probe: bool,

    #[command(flatten)]
    pub mount: MountArgs,
}

/// The arguments of the process that inspects an image before it is mounted.
#[derive(Args, Clone, Debug)]
pub struct SurveyArgs {
    pub image: PathBuf,

    /// The image, as an open descriptor
    #[arg(long)]
    pub fd: i32,

    /// Its journal, as an open descriptor
    #[arg(long)]
    pub journal_fd: Option<i32>,

    #[command(flatten)]
    pub location: LocationArgs,

    /// The image is to be mounted writable
    #[arg(long)]
    pub write: bool,

    #[arg(long)]
    pub norecovery: bool,

    #[command(flatten)]
    pub log: LogArgs,
}

/// An image, and the location of the file system in it.
#[derive(Args, Clone, Debug)]
pub struct ImageArgs {
    /// Image file, or block device
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,

    #[command(flatten)]
    pub location: LocationArgs,
}

/// The location of a file system in an image.
#[derive(Args, Clone, Debug)]
pub struct LocationArgs {
    /// Start of the file system in the image, in bytes
    #[arg(long, value_name = "BYTES", conflicts_with = "partition")]
    pub offset: Option<u64>,

    /// Partition of a whole disk (GPT or MBR): its number, label or UUID, or the label or UUID of the file system in it. Not needed
    /// if there is only one; `shunt ext4 info` lists them
    #[arg(long, value_name = "N|LABEL|UUID")]
    pub partition: Option<String>,

    /// Device or file of an external journal (`mke2fs -O journal_dev`). Not needed to inspect a file system that was unmounted
    /// cleanly
    #[arg(long, value_name = "DEVICE")]
    pub journal: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Ext4Command {
    /// Show sizes, features and usage of a file system
    Info {
        #[command(flatten)]
        image: ImageArgs,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// List a directory, or show one file
    Ls {
        #[command(flatten)]
        image: ImageArgs,

        /// The path in the image
        #[arg(default_value = "/")]
        path: OsString,

        /// Show mode, links, owner, group, size and time
        #[arg(short, long)]
        long: bool,
    },

    /// Write the content of a file to standard output
    Cat {
        #[command(flatten)]
        image: ImageArgs,

        /// The path in the image
        path: OsString,
    },

    /// Copy a file or a tree out of the image
    ///
    /// Preserves holes, hard links, modes and times, and, where the user may set them, owners, devices and extended attributes.
    /// Never overwrites existing files.
    Extract {
        #[command(flatten)]
        image: ImageArgs,

        /// The path in the image
        path: OsString,

        /// File or directory to create; it must not exist [default: the last part of PATH]
        #[arg(value_name = "TARGET")]
        target: Option<PathBuf>,

        /// Limit of the extracted content, as 500M or 20G [default: the size of the file system; only an image whose files share
        /// blocks exceeds it]
        #[arg(long, value_name = "SIZE")]
        max_size: Option<Size>,
    },

    /// Show the blocks of the device that hold a file
    Extents {
        #[command(flatten)]
        image: ImageArgs,

        /// The path in the image
        path: OsString,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
