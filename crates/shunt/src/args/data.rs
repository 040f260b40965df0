//! `--data`.

use clap::ValueEnum;

/// Who moves the content of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DataArg {
    /// The kernel where it can, else the daemon
    #[default]
    Auto,
    /// The kernel, between the device and the page cache: takes root and the module shunt_extmap. Files whose content does
    /// not lie on the device as it is go through the daemon
    Extmap,
    /// The daemon
    Daemon,
}
