//! The option `--takeover`.

use clap::ValueEnum;

/// The reaction to a killed or crashed daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TakeoverArg {
    /// Another daemon takes over, and programs wait for a moment; where that is not possible, the mount is removed
    #[default]
    Auto,
    /// The mount is removed, and its users get errors
    Off,
    /// The service manager that started this process keeps the mount, and its next process takes over: for services of systemd
    /// with `FileDescriptorStoreMax=`
    Service,
}
