//! Every published number comes from this binary: workloads run on the native directory and on each
//! peer, interleaved in one run, and each bar is judged on the spot.

mod area;
mod bench;
mod cgroup;
mod cli;
mod fio;
mod image;
mod interleave;
mod job;
mod kernel_source;
mod model;
mod mounted;
mod peer;
mod process;
mod progress;
mod report;
mod requests;
mod roundtrip;
mod stage;
mod stat;
mod tar;
mod workload;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    let done = match &args.answer {
        Some(mount_point) => roundtrip::serve(mount_point, args.core, args.rings),
        None => bench::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shunt-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
