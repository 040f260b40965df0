//! `--wakeful`.

use clap::ValueEnum;

/// Whether idle processors poll while requests flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WakefulArg {
    /// During bursts, where `/dev/cpu_dma_latency` may be opened (root): requests are answered several times faster,
    /// and every processor of the machine that has nothing to do uses energy meanwhile
    #[default]
    Auto,
    /// They sleep as the machine is set up
    Off,
}
