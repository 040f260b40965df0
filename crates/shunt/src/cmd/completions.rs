//! `shunt completions`: prints the completion script of a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use super::print;
use crate::cli::Cli;
use crate::error::Result;

pub fn run(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "shunt", &mut script);
    print(script)
}
