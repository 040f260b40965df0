//! The files that a daemon of a volume keeps having once it is locked in: all others it gives up.

use std::env::{split_paths, var_os};
use std::path::PathBuf;

use shunt_volume::address::{DataAddress, MetaAddress};
use shunt_volume::volume::VolumeDescriptor;

use super::gateway::credentials_of;
use crate::sandbox::Places;
use crate::xdg;

/// Variables by which libraries are told of files: certificates of authorities, and who this is to a store of objects.
const NAMED_BY: [&str; 5] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "PGPASSFILE",
];

/// What its stores take, and these directories.
pub fn places(
    meta: &MetaAddress,
    described: &VolumeDescriptor,
    kept: impl IntoIterator<Item = PathBuf>,
) -> Places {
    let mut places = Places { writable: kept.into_iter().collect(), readable: named() };
    match meta {
        MetaAddress::Sqlite(directory) => places.writable.push(directory.clone()),
        // Certificates are renewed in their place.
        MetaAddress::Gateway(file) if *file == credentials_of(&described.name) => {
            places.writable.push(xdg::directory_of(file).to_owned());
        }
        MetaAddress::Gateway(file) => places.readable.push(file.clone()),
        MetaAddress::Postgres(_) | MetaAddress::Map(_) => {}
    }
    if let DataAddress::Directory(directory) = &described.data {
        places.writable.push(directory.clone());
    }
    places
}

fn named() -> Vec<PathBuf> {
    let lists = NAMED_BY.iter().filter_map(var_os);
    let home = [xdg::config().join("shunt")];
    lists.flat_map(|list| split_paths(&list).collect::<Vec<_>>()).chain(home).collect()
}
