//! `--lsm`.

use clap::ValueEnum;

/// Who checks the rules of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LsmArg {
    /// The kernel, by BPF programs at its security hooks, where it allows them and user and group decide; else the
    /// daemon, and the first line says why
    #[default]
    Auto,
    /// The daemon
    Off,
}
