//! The gateway that gives other machines access to a volume, and the registry of its nodes.

pub(super) mod join;
pub(super) mod nodes;
pub(super) mod serve;

use std::path::PathBuf;

use shunt_volume::gateway::NodeRegistry;

use crate::args::ServedArgs;
use crate::error::{Result, failed};
use crate::xdg;

/// The file of the registry.
fn registry_file(served: &ServedArgs) -> PathBuf {
    let usual = || xdg::data().join(format!("shunt/gateways/{}.registry", served.name));
    served.registry.clone().unwrap_or_else(usual)
}

/// Opens the registry; with `make` it is created if it does not exist.
fn open_registry(served: &ServedArgs, make: bool) -> Result<NodeRegistry> {
    let file = registry_file(served);
    if make {
        xdg::make_directory_of(&file).map_err(failed)?;
    } else if !file.exists() {
        return Err(failed(format_args!(
            "cannot open the registry {}: it does not exist; run `shunt volume serve {}` first, or use --registry FILE",
            file.display(),
            served.name
        )));
    }
    NodeRegistry::open(&file)
        .map_err(|error| failed(format_args!("cannot open the registry {}: {error}", file.display())))
}
