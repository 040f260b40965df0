//! The benchmark binary, from which every published number comes: workloads run on the native directory and on each peer,
//! interleaved in one run, and each threshold is judged at once.

mod bonnie;
mod cgroup;
mod chunks;
mod cli;
mod context;
mod engine;
mod fio;
mod image;
mod interleave;
mod job;
mod kernel_source;
mod model;
mod mounted;
mod peer;
mod peer_mount;
mod process;
mod progress;
mod report;
mod requests;
mod roundtrip;
mod run;
mod scratch;
mod stat;
mod suite;
mod tar;
mod workload;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    let files = args.files.unwrap_or_default();
    let done = match (&args.answer, &args.in_volume, &args.plain) {
        (Some(mount_point), ..) => roundtrip::serve(mount_point, args.core, args.rings),
        (_, Some(at), _) => workload::volume_many::in_volume(at, files),
        (.., Some(at)) => workload::volume_many::plain(at, files),
        _ => run::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shunt-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
