//! The option `--busy-poll`.

use clap::ValueEnum;

/// Polling of idle processors while requests flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BusyPollArg {
    /// During bursts, where `/dev/cpu_dma_latency` may be opened (root): requests are answered several times faster, while every
    /// idle processor of the machine uses more energy
    #[default]
    Auto,
    /// Idle processors sleep as the machine is set up
    Off,
}
