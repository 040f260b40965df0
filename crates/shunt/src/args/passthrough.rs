//! The option `--passthrough`.

use clap::ValueEnum;

/// Whether the kernel reads and writes open files without the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PassthroughArg {
    /// Where kernel and privileges allow it; else through the daemon, and the first line says why
    #[default]
    Auto,
    /// Also for files opened with O_APPEND or O_DIRECT, which stay in force when a program clears them by fcntl(2)
    Always,
    /// Never: through the daemon
    Off,
}
