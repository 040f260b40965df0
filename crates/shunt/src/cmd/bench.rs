//! `shunt bench`: compares a mount with the directory below it.

use std::io::{self, Write as _};
use std::path::Path;

use super::print;
use crate::args::BenchArgs;
use crate::bench::{self, Interrupt, Plan, Sides};
use crate::error::{Code, Failure, Result, failed, usage};

/// Block sizes without `--block-size`, in bytes.
const BLOCK_SIZES: [u64; 2] = [4096, 1 << 20];
const MAX_BLOCK_BYTES: u64 = 16 << 20;
const MIN_SIZE_BYTES: u64 = 64 << 10;
const MAX_SIZE_BYTES: u64 = 1 << 40;

pub fn run(args: &BenchArgs) -> Result<()> {
    let plan = plan(args)?;
    if args.drop_caches && !rustix::process::geteuid().is_root() {
        let message =
            "--drop-caches evicts caches of the whole machine: run it as root, or without this option";
        return Err(Failure::new(Code::Privilege, message));
    }
    let sides = Sides::find(&args.dir, args.against.as_deref())?;
    bench::check_space(&plan, &sides)?;
    if let Some(html) = &args.html {
        writable(html)?;
    }
    let interrupt = Interrupt::register()
        .map_err(|error| failed(format_args!("cannot install a signal handler: {error}")))?;
    let results = bench::measure(&plan, &sides, &interrupt)?;
    if !results.noisy.is_empty() {
        let (noisy, all) = (results.noisy.len(), results.cases.len());
        let _ = writeln!(
            io::stderr(),
            "shunt: rounds differ by more than 25 % in {noisy} of {all} cases: close other programs, or measure longer with --time"
        );
    }
    if let Some(html) = &args.html {
        std::fs::write(html, bench::page(&results)).map_err(|error| {
            let _ = std::fs::remove_file(html);
            cannot_write(html, &error)
        })?;
    }
    match args.json {
        true => print(format!("{}\n", serde_json::to_string_pretty(&results).map_err(failed)?)),
        false => print(bench::render(&results)),
    }
}

fn plan(args: &BenchArgs) -> Result<Plan> {
    let mut size = args.size.0;
    if !(MIN_SIZE_BYTES..=MAX_SIZE_BYTES).contains(&size) {
        return Err(usage("--size must be between 64K and 1T"));
    }
    let mut blocks: Vec<u64> = args.block_size.iter().map(|size| size.0).collect();
    if blocks.iter().any(|block| *block == 0 || *block > MAX_BLOCK_BYTES || !block.is_multiple_of(4096)) {
        return Err(usage("--block-size must be a multiple of 4K, up to 16M"));
    }
    if blocks.is_empty() {
        blocks.extend(BLOCK_SIZES);
        blocks.retain(|block| *block <= size);
    }
    blocks.sort_unstable();
    blocks.dedup();
    let largest = blocks.last().copied().unwrap_or(4096);
    if largest > size {
        return Err(usage("--block-size must not be larger than --size"));
    }
    // Whole blocks.
    size -= size % largest;
    let cases = Plan::cases(&blocks, args.drop_caches, &args.only);
    if cases.is_empty() {
        return Err(usage("no case has a name that contains the text of --only"));
    }
    Ok(Plan { cases, size, files: args.files, rounds: args.rounds, seconds: args.time })
}

/// Fails before the measurement if the page cannot be written afterwards. An existing file is replaced.
fn writable(html: &Path) -> Result<()> {
    let existed = html.symlink_metadata().is_ok();
    let open = std::fs::OpenOptions::new().append(true).create(true).open(html);
    open.map_err(|error| cannot_write(html, &error))?;
    if !existed {
        let _ = std::fs::remove_file(html);
    }
    Ok(())
}

fn cannot_write(html: &Path, error: &io::Error) -> Failure {
    failed(format_args!("cannot write {}: {error}; name another file with --html", html.display()))
}
