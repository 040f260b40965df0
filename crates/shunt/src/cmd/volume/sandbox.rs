//! The files that the daemon of a volume can still open once it is sandboxed.

use std::env::{split_paths, var_os};
use std::path::PathBuf;

use shunt_volume::address::{DataAddress, MetaAddress};
use shunt_volume::volume::VolumeDescriptor;

use super::defaults::credentials_of;
use crate::sandbox::AccessiblePaths;
use crate::xdg;

/// Variables that name files for libraries: certificates of authorities, and credentials for object stores.
const FILE_VARIABLES: [&str; 9] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "SERVICE_ACCOUNT",
    "PGPASSFILE",
];

/// The files and directories of the volume's stores, and the directories in `kept`.
pub fn accessible_paths(
    meta: &MetaAddress,
    described: &VolumeDescriptor,
    kept: impl IntoIterator<Item = PathBuf>,
) -> AccessiblePaths {
    let mut paths = AccessiblePaths { writable: kept.into_iter().collect(), readable: named() };
    match meta {
        MetaAddress::Sqlite(directory) => paths.writable.push(directory.clone()),
        // Renewed certificates replace the file in its directory.
        MetaAddress::Gateway(file) if *file == credentials_of(&described.name) => {
            paths.writable.push(xdg::directory_of(file).to_owned());
        }
        MetaAddress::Gateway(file) => paths.readable.push(file.clone()),
        MetaAddress::Postgres(_) | MetaAddress::Map(_) => {}
    }
    match &described.data {
        DataAddress::Directory(directory) => paths.writable.push(directory.clone()),
        // The application default credentials of the user.
        DataAddress::Gcs(..) => {
            paths.readable.extend(var_os("HOME").map(|home| PathBuf::from(home).join(".config/gcloud")))
        }
        DataAddress::Beside | DataAddress::S3(..) | DataAddress::Azure(..) | DataAddress::Http(_) => {}
    }
    paths
}

fn named() -> Vec<PathBuf> {
    let lists = FILE_VARIABLES.iter().filter_map(var_os);
    let home = [xdg::config().join("shunt")];
    lists.flat_map(|list| split_paths(&list).collect::<Vec<_>>()).chain(home).collect()
}
