//! `shunt top`: shows what the mounts of this machine do now.

use std::io::{IsTerminal, stdout};

use super::print;
use crate::cli::TopArgs;
use crate::error::{Result, usage};
use crate::inherited;
use crate::top::{App, once, run as show};

pub fn run(args: &TopArgs) -> Result<()> {
    inherited::reset();
    let filter = args.filter.clone().unwrap_or_default();
    if args.once {
        let view = once::sample(args.interval, args.sort, args.reverse, &filter)?;
        return print(if args.json { once::json(&view)? } else { once::table(&view) });
    }
    if !stdout().is_terminal() {
        return Err(usage("standard output is not a terminal; use `shunt top --once`"));
    }
    show(App::new(args.sort, args.reverse, filter, args.interval))
}
