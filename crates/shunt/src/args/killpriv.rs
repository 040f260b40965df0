//! `--killpriv`.

use clap::ValueEnum;

/// Who clears setuid, setgid and capabilities of a file that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KillprivArg {
    /// The daemon, as each request says: no question before a write
    #[default]
    V2,
    /// The kernel, which asks for the attribute `security.capability` before each write
    Off,
}
