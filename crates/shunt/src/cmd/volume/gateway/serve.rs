//! `shunt volume serve`: the gateway that gives other machines access to a volume.

use std::sync::Arc;

use shunt_volume::address::MetaAddress;
use shunt_volume::gateway::{Credentials, Gateway, Role};
use shunt_volume::id::{NodeName, VolumeName};
use shunt_volume::open;
use shunt_volume::store::StoreError;
use shunt_volume::volume::Volume;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{open_registry, registry_file};
use crate::args::ServeArgs;
use crate::cmd::print;
use crate::cmd::volume::defaults::{self, address};
use crate::cmd::volume::sandbox::accessible_paths;
use crate::error::{Result, failed};
use crate::metrics::{GatewaySource, Listener};
use crate::xdg;
use crate::{inherited, log, sandbox, service_manager};

/// Serves a volume until a signal ends it.
pub fn serve(args: &ServeArgs) -> Result<()> {
    inherited::reset();
    service_manager::connect();
    if args.sandbox_probe {
        sandbox::probe_on_entry();
    }
    let name = &args.served.name;
    log::start(&args.log)?;
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| failed(format_args!("cannot install signal handlers: {error}")))?;
    let metrics = args.metrics.as_deref().map(Listener::bind).transpose()?;
    let meta = served(args.meta.as_deref(), name)?;
    let cannot = |error: &dyn std::fmt::Display| failed(format_args!("cannot serve volume {name}: {error}"));
    let volume = open::open_to_serve(&meta, name).map_err(|error| cannot(&error))?;
    let way = match &meta {
        MetaAddress::Gateway(file) => {
            let Credentials { node, address, .. } =
                Credentials::load(file).map_err(|error| cannot(&error))?;
            may_serve(&volume, &node).map_err(|error| cannot(&error))?;
            format!(", through the gateway {address}")
        }
        _ => String::new(),
    };
    let registry = Arc::new(open_registry(&args.served, true)?);
    let gateway = Gateway::new(&volume, registry.clone()).map_err(|error| cannot(&error))?;
    let statistics = gateway.statistics();
    let serving = gateway
        .listen(&args.listen)
        .map_err(|error| failed(format_args!("cannot listen on {}: {error}", args.listen)))?;
    let port = serving.address().port();
    let address = args.address.clone().unwrap_or_else(|| {
        let host = rustix::system::uname();
        format!("{}:{port}", host.nodename().to_string_lossy())
    });
    registry.set_address(&address).map_err(|error| cannot(&error))?;
    let line =
        format!("volume {name} is served at {}, advertised to nodes as {address}{way}", serving.address());
    print(format!("shunt: {line}\n"))?;
    let directory = xdg::directory_of(&registry_file(&args.served)).to_owned();
    if let Some(listener) = metrics {
        listener.serve(Arc::new(GatewaySource { volume: name.to_string(), statistics }))?;
    }
    sandbox::enter_gateway(&accessible_paths(&meta, &volume.described, [directory]));
    service_manager::ready(&line);
    signals.forever().next();
    service_manager::stopping();
    serving.stop().map_err(|error| cannot(&error))
}

/// The address of the metadata of the served volume: a local store if it exists, else the gateway that this machine joined.
fn served(given: Option<&str>, name: &VolumeName) -> Result<MetaAddress> {
    let here = defaults::meta(given, name)?;
    match &here {
        MetaAddress::Sqlite(dir) if given.is_none() && !dir.exists() => Ok(address(None, name)?.0),
        _ => Ok(here),
    }
}

/// Checks that the next gateway lets this machine make requests in the names of its own nodes. While that gateway is unreachable,
/// it retries.
fn may_serve(volume: &Volume, node: &NodeName) -> std::result::Result<(), String> {
    match volume.meta.gateway_path() {
        Ok(_) => Ok(()),
        Err(StoreError::Unreachable(why)) => {
            tracing::warn!("cannot reach the next gateway: {why}; requests fail until it is reachable");
            Ok(())
        }
        Err(StoreError::NotGateway(why)) => Err(format!(
            "{why}; on the machine of that gateway, run `shunt volume nodes role {} {node} {}`",
            volume.described.name,
            Role::Gateway
        )),
        Err(error) => Err(error.to_string()),
    }
}
