//! The option `--data`.

use clap::ValueEnum;

/// The component that transfers file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DataArg {
    /// The kernel where it can, else the daemon
    #[default]
    Auto,
    /// The kernel, between the device and the page cache: needs root and the module shunt_extmap. Files whose data is not stored
    /// verbatim on the device go through the daemon
    Extmap,
    /// The daemon
    Daemon,
}
