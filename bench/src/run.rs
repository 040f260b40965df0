//! One run of the benchmark: runs the chosen workloads in order and writes the results after each of them.

use anyhow::{Result, bail};

use crate::cli::Args;
use crate::context::Bench;
use crate::progress::say;
use crate::report::{self, Results};
use crate::{job, suite};

/// Runs the workloads that `args` select and writes the report.
///
/// # Errors
/// Without root, when the user interrupts, when a report cannot be written, or with `--strict` when a threshold is missed.
pub fn run(args: Args) -> Result<()> {
    let chosen = suite::choose(&args.only)?;
    if args.list {
        for workload in suite::ALL {
            println!("{:<16} {}", workload.name, workload.about);
        }
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        bail!("mounting, counting requests and dropping caches need root: run it as root");
    }
    job::watch()?;
    let bench = Bench::prepare(&args)?;
    let mut results = Results::new(bench.quick, bench.round_trips.clone());
    for workload in chosen {
        say(format_args!("{}: {}", workload.name, workload.about));
        match (workload.run)(&bench) {
            Ok(rows) => {
                report::table::print(&rows);
                results.rows.extend(rows);
            }
            Err(error) => {
                job::check()?;
                say(format_args!("{} failed: {error:#}", workload.name));
                results.failures.push(format!("{}: {error:#}", workload.name));
            }
        }
        // After each workload, so that an interrupted run keeps what it has.
        results.save(&bench.results_path())?;
    }
    drop(bench);
    report::html::write(&results, &args.report)?;
    println!("\n{}", results.verdict());
    say(format_args!("report: {}", args.report.display()));
    if args.strict && !results.all_pass() {
        bail!("a threshold was missed or could not be judged");
    }
    Ok(())
}
