//! `--takeover`.

use clap::ValueEnum;

/// What happens to the mount should its daemon be killed, or crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TakeoverArg {
    /// Another daemon goes on, and programs wait for a moment; where that cannot be, the mount is taken away
    #[default]
    Auto,
    /// The mount is taken away, and its users get errors
    Off,
}
