//! `cargo run -p xtask -- CHECK`: checks of the source tree that `make lint` runs in addition to rustfmt and clippy.
//!
//! `cycles` fails on modules of a crate that import each other. `names` fails on identifiers and comments that the
//! project's style forbids. `hello-size` fails if a small file system on `shunt-fuse` needs too many crates, and with `--build` if
//! they take too long to compile. None of them changes the sources.

mod comments;
mod crate_tree;
mod cycles;
mod hello_size;
mod imports;

use std::path::Path;
use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let passed = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cycles"] => cycles::check(root, false)?,
        ["cycles", "--edges"] => cycles::check(root, true)?,
        ["hello-size"] => hello_size::check(root, false)?,
        ["hello-size", "--build"] => hello_size::check(root, true)?,
        ["names"] => comments::check(root)?,
        _ => anyhow::bail!("usage: cargo run -p xtask -- (cycles [--edges] | names | hello-size [--build])"),
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
