//! Arguments of `shunt bench`.

use std::path::PathBuf;

use clap::Args;

use super::Size;

#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Directory to compare with [default: the directory below DIR in the source of the mirror]
    #[arg(long, value_name = "DIR")]
    pub against: Option<PathBuf>,

    /// Size of the file that is read and written, of which each directory gets one: 64K to 1T
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub size: Size,

    /// Files of the metadata cases, in each directory: 10 to 1000000
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub files: u32,

    /// Block size of the data cases, a multiple of 4K up to 16M; may be repeated [default: 4K and 1M]
    #[arg(long, value_name = "SIZE")]
    pub block_size: Vec<Size>,

    /// Seconds of measurements in total, 1 to 86400; files are created and removed in addition
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub time: u64,

    /// Rounds, in each of which both directories run every case: 3 to 100
    #[arg(long, value_name = "NUMBER", default_value_t = 7, value_parser = clap::value_parser!(u32).range(3..=100))]
    pub rounds: u32,

    /// Only cases whose names contain this text, such as `read`, `direct` or `rename`; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,

    /// Measure cold metadata, too: drops the caches of names and attributes of the whole machine before each such step (root)
    #[arg(long)]
    pub drop_caches: bool,

    /// Print JSON: {version, mount, against, rounds, noisy, cases: [{name, unit, mount, against, ratio, verdict, ...}]}
    #[arg(long)]
    pub json: bool,

    /// Write a page with plots, one HTML file without references to others
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Directory in a mount
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
