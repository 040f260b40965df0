//! `shunt ext4` and what it does.

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
    Look(Ext4Command),
}

// By hand: the derived form of "these arguments, or a subcommand" cannot tell which it was where arguments are flattened.
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
            Some(_) => Ext4Command::from_arg_matches(matches).map(Self::Look),
            None => Ext4MountArgs::from_arg_matches(matches).map(|mount| Self::Mount(Box::new(mount))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<()> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What damaged metadata leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ErrorsArg {
    /// The damaged object is refused with EUCLEAN, the rest goes on
    Continue,
    /// Nothing can be changed any more
    RemountRo,
}

/// An image, and where it is mounted.
#[derive(Args, Clone, Debug)]
pub struct Ext4MountArgs {
    /// The image, or a block device
    #[arg(value_name = "IMAGE", index = 1)]
    pub image: PathBuf,

    #[command(flatten)]
    pub place: PlaceArgs,

    /// The image is open already, as this file descriptor, which the caller hands on; IMAGE only names it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub fd: Option<i32>,

    /// Tell the device of blocks that were freed, after each commit: an image becomes sparse there, a disk need not keep
    /// them
    #[arg(long, overrides_with = "nodiscard")]
    pub discard: bool,

    /// Do not (the default)
    #[arg(long, hide = true)]
    pub nodiscard: bool,

    /// Commit changes that nobody syncs after so many seconds; 0 is the default
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub commit: u32,

    /// What follows when damaged metadata is found in an image that may be changed
    #[arg(long, value_enum, value_name = "WHAT", default_value = "continue")]
    pub errors: ErrorsArg,

    /// Do not replay the journal, in memory either: refuses an image that needs it. With --read-only alone
    #[arg(long, visible_alias = "noload")]
    pub norecovery: bool,

    /// Keep the daemon's memory from being swapped out. Takes root, or an unlimited RLIMIT_MEMLOCK
    #[arg(long)]
    pub mlock: bool,

    /// Who moves the content of files
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub data: DataArg,

    /// Have the kernel answer what was asked before, by a program in it: `builtin`, or a file that clang made. Needs the
    /// module shunt_fuse_ext and a build with the feature `extension`; without them the daemon answers
    #[arg(long, value_name = "PROGRAM")]
    pub extension: Option<PathBuf>,

    /// Have the kernel keep no names and attributes, so that the extension sees every call: for programs whose answers
    /// depend on the caller
    #[arg(long, requires = "extension")]
    pub ask_always: bool,

    /// Once locked in, try what must not work
    #[arg(long, hide = true)]
    pub sandbox_probe: bool,

    #[command(flatten)]
    pub mount: MountArgs,
}

/// What is handed to the process that looks at an image before it is mounted.
#[derive(Args, Clone, Debug)]
pub struct SurveyArgs {
    pub image: PathBuf,

    /// The image, open
    #[arg(long)]
    pub fd: i32,

    /// Its journal, open
    #[arg(long)]
    pub journal_fd: Option<i32>,

    #[command(flatten)]
    pub place: PlaceArgs,

    /// It is to be changed
    #[arg(long)]
    pub write: bool,

    #[arg(long)]
    pub norecovery: bool,

    #[command(flatten)]
    pub log: LogArgs,
}

/// An image, and where in it the file system begins.
#[derive(Args, Clone, Debug)]
pub struct ImageArgs {
    /// The image, or a block device
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,

    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Where in an image the file system lies.
#[derive(Args, Clone, Debug)]
pub struct PlaceArgs {
    /// Where the file system begins in the image, in bytes
    #[arg(long, value_name = "BYTES", conflicts_with = "partition")]
    pub offset: Option<u64>,

    /// The partition of a whole disk (GPT or MBR): its number, its label or its UUID, or label or UUID of the file system
    /// in it. Needless where there is only one; `shunt ext4 info` lists them
    #[arg(long, value_name = "N|LABEL|UUID")]
    pub partition: Option<String>,

    /// The device or file that the journal lies on, where it has one of its own (`mke2fs -O journal_dev`). To look into a
    /// file system that was unmounted cleanly it is needless
    #[arg(long, value_name = "DEVICE")]
    pub journal: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Ext4Command {
    /// Show sizes, features and use of a file system
    Info {
        #[command(flatten)]
        image: ImageArgs,

        /// As JSON
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

        /// With mode, links, owner, group, size and time
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
    /// Holes stay holes, hard links stay links; modes and times are kept, and owners, devices and extended attributes
    /// where the user may set them. Nothing that exists is overwritten.
    Extract {
        #[command(flatten)]
        image: ImageArgs,

        /// The path in the image
        path: OsString,

        /// What to make; it must not exist [default: the last part of PATH]
        #[arg(value_name = "TARGET")]
        target: Option<PathBuf>,

        /// Stop before more than so much content is written: 500M, 20G [default: the size of the file system, which only an
        /// image exceeds whose files share blocks]
        #[arg(long, value_name = "SIZE")]
        max_size: Option<Size>,
    },

    /// Show which blocks of the device hold a file
    Extents {
        #[command(flatten)]
        image: ImageArgs,

        /// The path in the image
        path: OsString,

        /// As JSON
        #[arg(long)]
        json: bool,
    },
}
