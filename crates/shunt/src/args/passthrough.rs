//! The option `--passthrough`.

use clap::ValueEnum;

/// Kernel passthrough of the data of open files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PassthroughArg {
    /// On where kernel and privileges allow it; else data goes through the daemon, and the status line gives the reason
    #[default]
    Auto,
    /// On, also for files opened with O_APPEND or O_DIRECT, which stay in force when a program clears them by fcntl(2)
    Always,
    /// Off: data goes through the daemon
    Off,
}
