//! Defaults of the options `--meta`, `--cache` and `--node`: the addresses of a volume's metadata, the file with this machine's
//! credentials, the cache directory, and the name of the node.

use std::path::PathBuf;

use shunt_volume::address::MetaAddress;
use shunt_volume::gateway::Credentials;
use shunt_volume::id::{NodeName, VolumeName};
use shunt_volume::open::OpenError;

use crate::error::{Result, failed, usage};
use crate::xdg;

/// The address of the metadata of a volume to be created or served.
pub fn meta(given: Option<&str>, name: &VolumeName) -> Result<MetaAddress> {
    match given {
        Some(address) => address
            .parse::<MetaAddress>()
            .map_err(OpenError::from)
            .and_then(|meta| meta.resolve(name).map_err(OpenError::from))
            .map_err(usage),
        None => Ok(MetaAddress::Sqlite(xdg::data().join("shunt/volumes").join(name.as_str()))),
    }
}

/// The address of the metadata of a volume to be mounted, and the name that its gateway gave this machine.
pub fn address(given: Option<&str>, name: &VolumeName) -> Result<(MetaAddress, Option<NodeName>)> {
    let credentials = credentials_of(name);
    let meta = match given {
        None if credentials.exists() => MetaAddress::Gateway(credentials),
        given => meta(given, name)?,
    };
    let node = match &meta {
        MetaAddress::Gateway(file) => Some(Credentials::load(file).map_err(failed)?.node),
        _ => None,
    };
    Ok((meta, node))
}

/// The file with this machine's credentials for a volume: `$XDG_CONFIG_HOME/shunt/volumes/NAME.node`.
pub fn credentials_of(name: &VolumeName) -> PathBuf {
    xdg::config().join(format!("shunt/volumes/{name}.node"))
}

/// The default cache directory: `$XDG_CACHE_HOME/shunt/volumes/NAME`, with the fallback of the XDG standard.
pub fn default_cache(name: &VolumeName) -> PathBuf {
    xdg::cache().join("shunt/volumes").join(name.as_str())
}

/// The name of this machine as a node: its host name, without the domain.
pub fn own_name() -> Result<NodeName> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let host = host.split('.').next().unwrap_or_default();
    host.parse().map_err(|error| {
        usage(format_args!(
            "cannot use the host name as the name of this machine: {error}; name it with --node NAME"
        ))
    })
}
