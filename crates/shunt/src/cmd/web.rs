//! `shunt web`: a page for browsers, with all mounts.

use std::io::{self, Write as _};

use super::print;
use crate::args::WebArgs;
use crate::error::Result;
use crate::web::{Server, Settings};
use crate::{inherited, log};

/// Serves the page until a signal ends it.
pub fn run(args: &WebArgs) -> Result<()> {
    inherited::reset();
    log::start(&args.log)?;
    let settings = Settings {
        allow_changes: args.allow_changes,
        registries: args.registries.iter().map(|(volume, file)| (volume.to_string(), file.clone())).collect(),
    };
    let server = Server::bind(&args.listen, settings, |link| {
        // The page works without the next link.
        let _ = writeln!(io::stdout(), "shunt: link for another browser: {link}");
    })?;
    print(format!("shunt: open {}\n", server.link()))?;
    server.run()
}
