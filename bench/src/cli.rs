//! The command line of the benchmark.

use std::path::PathBuf;

/// Measures Shunt beside its peers and judges every threshold.
///
/// Needs root. Peers that are not installed are left out, with one line saying so.
#[derive(Debug, clap::Parser)]
#[command(name = "shunt-bench", version)]
pub struct Args {
    /// The `shunt` binary under test.
    #[arg(long)]
    pub shunt: Option<PathBuf>,

    /// libfuse's `passthrough_hp`, built beforehand.
    #[arg(long, env = "PEER_PASSTHROUGH_HP")]
    pub passthrough_hp: Option<PathBuf>,

    /// Small sizes and one round: a check of the harness, not a measurement.
    #[arg(long)]
    pub quick: bool,

    /// Run only workloads whose name contains NAME (repeatable).
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Run only peers whose name contains NAME; native always runs (repeatable).
    #[arg(long, value_name = "NAME")]
    pub peer: Vec<String>,

    /// Rounds per workload, instead of each workload's own number.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,

    /// Files of the workloads that count them, instead of each workload's own number.
    #[arg(long)]
    pub files: Option<u32>,

    /// List the workloads and stop.
    #[arg(long)]
    pub list: bool,

    /// Exit with an error when a threshold is missed.
    #[arg(long)]
    pub strict: bool,

    /// Scratch and cache directory; its file system is the "disk" of the disk workloads.
    #[arg(long, default_value = "bench/out")]
    pub out: PathBuf,

    /// The file that the report is written to.
    #[arg(long, default_value = "bench/report.html")]
    pub report: PathBuf,

    /// Internal: answer empty requests on this mount point.
    #[arg(long, hide = true)]
    pub answer: Option<PathBuf>,

    /// Internal: answer empty requests over io_uring.
    #[arg(long, hide = true)]
    pub rings: bool,

    /// Internal: make many files in a volume below this directory.
    #[arg(long, hide = true, requires = "files")]
    pub in_volume: Option<PathBuf>,

    /// Internal: make many files in this directory itself.
    #[arg(long, hide = true, requires = "files")]
    pub plain: Option<PathBuf>,

    /// Internal: run on this core.
    #[arg(long, hide = true)]
    pub core: Option<usize>,
}
