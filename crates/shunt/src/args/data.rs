//! `--data`.

use clap::ValueEnum;

/// Who moves the content of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DataArg {
    /// With --read-only the kernel where it can, else the daemon
    #[default]
    Auto,
    /// The kernel, between the device and the page cache: takes root and the module shunt_extmap, and to write (which is
    /// new, and for trying) an image in a file. Files whose content does not lie on the device as it is go through the daemon
    Extmap,
    /// The daemon
    Daemon,
}
