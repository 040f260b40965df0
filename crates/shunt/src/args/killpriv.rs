//! The option `--killpriv`.

use clap::ValueEnum;

/// The component that clears setuid, setgid and capabilities when a file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KillprivArg {
    /// The daemon, when a request says so: no request before a write
    #[default]
    V2,
    /// The kernel, which requests the attribute `security.capability` before each write
    Off,
}
