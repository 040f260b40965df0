//! The option `--lsm`.

use clap::ValueEnum;

/// The component that enforces the rules of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LsmArg {
    /// The kernel, by BPF programs at its LSM hooks, where it supports them and the rules depend on user and group only; else the
    /// daemon, and the status line gives the reason
    #[default]
    Auto,
    /// The daemon
    Off,
}
