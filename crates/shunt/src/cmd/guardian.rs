//! `shunt __guardian`: see [`shunt_fuse::guardian`].

use std::process::ExitCode;

pub fn run() -> ExitCode {
    shunt_fuse::guardian::main()
}
