//! `cargo run -p xtask -- CHECK`: checks of the source tree that `make lint` runs beside rustfmt and clippy.
//!
//! `cycles` fails on modules of a crate that import each other. `names` fails on identifiers and comments that the
//! project's style forbids. Both read the sources of the working tree and change nothing.

mod comments;
mod crate_tree;
mod cycles;
mod imports;

use std::path::Path;
use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let passed = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cycles"] => cycles::check(root, false)?,
        ["cycles", "--edges"] => cycles::check(root, true)?,
        ["names"] => comments::check(root)?,
        _ => anyhow::bail!("usage: cargo run -p xtask -- (cycles [--edges] | names)"),
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
