//! The options that all mounting commands share.

use std::fmt;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use shunt_fuse::mount::MountOptions;

use super::{BusyPollArg, LogArgs, Size, TakeoverArg};
use crate::error::Result;

/// The transport of requests from the kernel to the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// The faster one for this kind of mount, where the kernel has it
    #[default]
    Auto,
    /// /dev/fuse
    Dev,
    /// io_uring: Linux 6.14 with the parameter `enable_uring` of the module `fuse`; else /dev/fuse, and the status
    /// line gives the reason
    Uring,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Auto => "auto",
            Transport::Dev => "dev",
            Transport::Uring => "uring",
        })
    }
}

impl From<Transport> for shunt_fuse::Transport {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Auto => Self::Auto,
            Transport::Dev => Self::Dev,
            Transport::Uring => Self::Uring,
        }
    }
}

/// The place where the io_uring transport keeps the data of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RingBuffersArg {
    /// In a buffer of each ring entry
    PerEntry,
    /// In a pool of buffers
    Pool,
    /// In the kernel's pages where possible
    ZeroCopy,
}

impl From<RingBuffersArg> for shunt_fuse::RingBuffers {
    fn from(buffers: RingBuffersArg) -> Self {
        match buffers {
            RingBuffersArg::PerEntry => Self::PerEntry,
            RingBuffersArg::Pool => Self::Pool,
            RingBuffersArg::ZeroCopy => Self::ZeroCopy,
        }
    }
}

/// The options that all mounting commands share.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Mount options")]
pub struct MountArgs {
    /// Return as soon as the mount is ready and serve in the background
    #[arg(short, long)]
    pub daemon: bool,

    /// Mount read-only: refuse all changes
    #[arg(short, long)]
    pub read_only: bool,

    /// Allow access by other users, each with their own permissions (the default for root)
    #[arg(long)]
    pub allow_other: bool,

    /// Allow access only by the user who mounts (the default for other users)
    #[arg(long, overrides_with = "allow_other")]
    pub no_allow_other: bool,

    /// Mount options as in fstab, separated by commas: ro, suid, dev, noexec, noatime, ..., and every
    /// option of this command without its dashes, as in `-o cache=none,threads=4`. `nosuid,nodev` are on
    /// unless `suid` or `dev` is given. A backslash escapes a comma
    #[arg(short, value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,

    /// Transport of requests from the kernel
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto", env = "SHUNT_TRANSPORT")]
    pub transport: Transport,

    /// Limit of the threads that read requests, 1 to 256; more are started only while some block [default: one per core, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,

    /// Polling of idle processors while requests flow
    #[arg(long, alias = "wakeful", value_enum, value_name = "HOW", default_value = "auto")]
    pub busy_poll: BusyPollArg,

    /// How far the kernel reads ahead, 4K to 64M; more than the kernel's 128K only where root mounts. Random reads of mapped
    /// files are faster with less
    #[arg(long, alias = "max-readahead", value_name = "SIZE", default_value = "1M", value_parser = read_ahead)]
    pub read_ahead: u32,

    /// Reaction to a killed or crashed daemon
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub takeover: TakeoverArg,

    /// Export metrics to Prometheus at http://ADDRESS/metrics, from this daemon; `shunt metrics` exports those of all mounts
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,

    #[command(flatten)]
    pub log: LogArgs,

    /// Marks the process that `--daemon` started
    #[arg(long, hide = true)]
    pub background: bool,

    /// Marks the process that takes over from another one
    #[arg(long, hide = true)]
    pub successor: bool,

    /// Print the version of the takeover protocol of this program, and exit
    #[arg(long, hide = true)]
    pub probe: bool,

    /// Copy all data that goes through the daemon, for comparison with splice
    #[arg(long, hide = true)]
    pub no_splice: bool,

    /// Buffers of the io_uring transport, for comparison
    #[arg(long, hide = true, value_enum, value_name = "KIND", default_value = "zero-copy")]
    pub ring_buffers: RingBuffersArg,

    /// Number of daemons that may end within ten seconds before the guardian gives up
    #[arg(long, hide = true, value_name = "N", default_value_t = 5)]
    pub crashes: u32,

    /// Mount point
    #[arg(value_name = "MOUNTPOINT", index = 2, help_heading = None)]
    pub mountpoint: PathBuf,
}

/// Parses a read-ahead window into bytes.
fn read_ahead(text: &str) -> std::result::Result<u32, String> {
    let Size(bytes) = text.parse()?;
    match u32::try_from(bytes) {
        Ok(bytes @ 0x1000..=0x400_0000) => Ok(bytes),
        _ => Err(format!("`{text}` is not within 4K and 64M")),
    }
}

impl MountArgs {
    /// The options of the mount: `base`, then these options.
    ///
    /// # Errors
    /// A wrong `-o`.
    pub fn mount_options(&self, base: MountOptions) -> Result<MountOptions> {
        let mut options = base.allow_other(self.allow_other || rustix::process::geteuid().is_root());
        for string in &self.options {
            // Options unknown to mount(8) have been applied to the command line already.
            options.apply_str(string)?;
        }
        if self.no_allow_other {
            options = options.allow_other(false);
        }
        if self.read_only {
            options = options.read_only(true);
        }
        Ok(options)
    }
}
