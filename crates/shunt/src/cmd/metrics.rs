//! `shunt metrics`: the exporter of the metrics of all mounts.

use std::sync::Arc;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::print;
use crate::cli::MetricsArgs;
use crate::error::{Result, failed};
use crate::metrics::{HostSource, Listener};
use crate::{inherited, log};

/// Answers scrapes until a signal ends it.
pub fn run(args: &MetricsArgs) -> Result<()> {
    inherited::reset();
    log::start(&args.log)?;
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| failed(format_args!("cannot install signal handlers: {error}")))?;
    let listener = Listener::bind(&args.listen)?;
    let address = listener.address();
    listener.serve(Arc::new(HostSource::default()))?;
    print(format!("shunt: metrics of all mounts at http://{address}/metrics\n"))?;
    signals.forever().next();
    Ok(())
}
