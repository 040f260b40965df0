//! `--passthrough`.

use clap::ValueEnum;

/// Whether the data of open files goes past the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PassthroughArg {
    /// Where kernel and privileges allow; else through the daemon, and the first line says why
    #[default]
    Auto,
    /// Through the daemon
    Off,
}
