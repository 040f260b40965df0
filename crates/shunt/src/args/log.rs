//! The options of the log: destination, format and verbosity.

use std::path::PathBuf;

use clap::{ArgAction, Args};

/// The options of the log.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Log options")]
pub struct LogArgs {
    /// Log more: -v what is served, -vv every decision, -vvv every request. RUST_LOG overrides this
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,

    /// Log one JSON object per line
    #[arg(long)]
    pub log_json: bool,

    /// Append the log to this file instead of stderr
    #[arg(long, value_name = "PATH")]
    pub log_file: Option<PathBuf>,
}
