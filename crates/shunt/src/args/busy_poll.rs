//! The option `--busy-poll`.

use clap::ValueEnum;

/// Polling of idle processors while requests flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BusyPollArg {
    /// Keep idle processors awake during bursts, where `/dev/cpu_dma_latency` may be opened (root): requests are answered several
    /// times faster, while every idle processor of the machine uses more energy
    #[default]
    Auto,
    /// Let idle processors sleep as the system is configured
    Off,
}
