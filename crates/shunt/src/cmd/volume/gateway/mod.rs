//! The gateway that gives other machines access to a volume, and the registry of its nodes.

pub(super) mod join;
pub(super) mod nodes;
pub(super) mod serve;

use std::path::{Path, PathBuf};

use shunt_volume::gateway::NodeRegistry;

use crate::args::ServedArgs;
use crate::error::{Result, failed};
use crate::xdg;

/// The file of the registry.
fn registry_file(served: &ServedArgs) -> PathBuf {
    let default = || default_registry(&xdg::data().join("shunt/gateways"), &served.name.to_string());
    served.registry.clone().unwrap_or_else(default)
}

/// The default registry of a volume. An earlier release called the file `NAME.book`; it is used until there is a newer one.
fn default_registry(gateways: &Path, volume: &str) -> PathBuf {
    let (current, earlier) =
        (gateways.join(format!("{volume}.registry")), gateways.join(format!("{volume}.book")));
    if !current.exists() && earlier.exists() { earlier } else { current }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_of_an_earlier_release_is_used() {
        let gateways = tempfile::tempdir().unwrap();
        let at = |name: &str| gateways.path().join(name);
        let default = || default_registry(gateways.path(), "team");
        assert_eq!(default(), at("team.registry"));
        std::fs::write(at("team.book"), b"").unwrap();
        assert_eq!(default(), at("team.book"));
        std::fs::write(at("team.registry"), b"").unwrap();
        assert_eq!(default(), at("team.registry"));
    }
}
