//! `shunt man`: prints the manual page, or writes the pages of all commands.

use std::fs;
use std::path::Path;

use clap::CommandFactory;

use super::print;
use crate::cli::Cli;
use crate::error::{Result, failed};

pub fn run(dir: Option<&Path>) -> Result<()> {
    match dir {
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
            rendered.map_err(|error| failed(format_args!("cannot render the page: {error}")))?;
            print(page)
        }
        Some(dir) => fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
            .map_err(|error| failed(format_args!("cannot write manual pages to {}: {error}", dir.display()))),
    }
}
