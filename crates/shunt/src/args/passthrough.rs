//! `--passthrough`.

use clap::ValueEnum;

/// Whether the data of open files goes past the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PassthroughArg {
    /// Where kernel and privileges allow; else through the daemon, and the first line says why
    #[default]
    Auto,
    /// Also of files opened with O_APPEND or O_DIRECT, which stay in force when a program takes them away by fcntl(2)
    Always,
    /// Through the daemon
    Off,
}
