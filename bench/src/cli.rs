//! The command line of the benchmark.

use std::path::PathBuf;

/// Measures Shunt and its peers, and checks every threshold.
///
/// Needs root. Peers that are not installed are skipped with a message.
#[derive(Debug, clap::Parser)]
#[command(name = "shunt-bench", version)]
pub struct Args {
    /// `shunt` binary to measure.
    #[arg(long)]
    pub shunt: Option<PathBuf>,

    /// libfuse's `passthrough_hp` binary, which the harness does not build.
    #[arg(long, env = "PEER_PASSTHROUGH_HP")]
    pub passthrough_hp: Option<PathBuf>,

    /// Use small sizes and one round: tests the harness and yields no valid figures.
    #[arg(long)]
    pub quick: bool,

    /// Run only workloads whose name contains NAME (repeatable).
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Run only peers whose name contains NAME; native always runs (repeatable).
    #[arg(long, value_name = "NAME")]
    pub peer: Vec<String>,

    /// Rounds per workload, 1 to 100 (default: set by each workload).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,

    /// Number of files, for workloads whose size is a number of files (default: set by each workload).
    #[arg(long)]
    pub files: Option<u32>,

    /// List the workloads and exit.
    #[arg(long)]
    pub list: bool,

    /// Exit with an error if a threshold is missed or could not be checked.
    #[arg(long)]
    pub strict: bool,

    /// Directory for scratch files and downloads; its file system is the disk of the disk workloads.
    #[arg(long, default_value = "bench/out")]
    pub out: PathBuf,

    /// File to write the HTML report to.
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
