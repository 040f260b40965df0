//! `--data`.

use clap::ValueEnum;

/// Who moves the content of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DataArg {
    /// The kernel where it can, else the daemon
    #[default]
    Auto,
    /// The kernel, from the device to the page cache: takes root, the module shunt_extmap and --read-only. Files whose
    /// content does not lie on the device as it is go through the daemon
    Extmap,
    /// The daemon
    Daemon,
}
