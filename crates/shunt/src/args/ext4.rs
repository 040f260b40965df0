//! `shunt ext4` and what it does.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Args, Clone, Debug)]
pub struct Ext4Args {
    #[command(subcommand)]
    pub command: Ext4Command,
}

/// An image, and where in it the file system begins.
#[derive(Args, Clone, Debug)]
pub struct ImageArgs {
    /// The image, or a block device
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,

    /// Where the file system begins in the image, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub offset: u64,
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
