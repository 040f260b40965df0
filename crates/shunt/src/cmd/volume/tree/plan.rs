//! Builds the command that mounts a volume from its description in the tree.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use shunt_fuse::mount::MountOptions;
use shunt_volume::address::MetaAddress;
use shunt_volume::gateway::Credentials;
use shunt_volume::id::{NodeName, VolumeName};
use shunt_volume::tree_config::{CONFIG, CacheMode, Member, NodeConfig, OwnerMap};

use super::volume_process::MountRequest;
use crate::args::{Size, VolumeTreeArgs};
use crate::cmd::volume::defaults;
use crate::cmd::volume::mount::owners::{GROUP, USER};
use crate::error::{Result, failed, usage};
use crate::xdg;

/// Files in the cache directory of a volume: its owner table, and the credentials for the gateway through which it is reached.
const OWNERS_FILE: &str = "owners";
const GATEWAY_CREDENTIALS_FILE: &str = "through.node";

/// The settings that all volumes share.
pub struct Plan {
    args: VolumeTreeArgs,
    node: NodeName,
    caches: PathBuf,
    /// Mount options of the tree, passed to each volume.
    shared: Vec<OsString>,
}

impl Plan {
    pub fn new(args: &VolumeTreeArgs) -> Result<Self> {
        let (_, joined) = defaults::address(args.meta.as_deref(), &args.name)?;
        let node = match (joined, args.node.clone()) {
            (Some(joined), None) => joined,
            (Some(joined), Some(node)) if joined == node => joined,
            (Some(joined), Some(_)) => {
                return Err(usage(format_args!(
                    "this machine joined volume {} as {joined}; omit --node",
                    args.name
                )));
            }
            (None, node) => node.map_or_else(defaults::own_name, Ok)?,
        };
        let caches = match &args.cache {
            Some(cache) => std::path::absolute(cache)
                .map_err(|error| usage(format_args!("cannot use --cache {}: {error}", cache.display())))?,
            None => xdg::cache().join("shunt/volumes"),
        };
        Ok(Self { shared: shared(args)?, args: args.clone(), node, caches })
    }

    pub fn node(&self) -> &NodeName {
        &self.node
    }

    pub fn config_name(&self) -> &VolumeName {
        &self.args.name
    }

    pub fn cache(&self, name: &VolumeName) -> PathBuf {
        self.caches.join(name.as_str())
    }

    /// The mount of the config volume, which is cached completely.
    pub fn config(&self, tree: &Path) -> MountRequest {
        let name = &self.args.name;
        let joined =
            defaults::address(self.args.meta.as_deref(), name).is_ok_and(|(_, joined)| joined.is_some());
        let mut args = self.arguments(name, joined);
        args.extend(["--cache-mode", "full"].map(OsString::from));
        args.push(name.as_str().into());
        self.mount_request(tree, name, vec![CONFIG.to_owned()], args)
    }

    /// The mount of another volume.
    pub fn volume(
        &self,
        tree: &Path,
        name: &VolumeName,
        member: &Member,
        here: &NodeConfig,
    ) -> Result<MountRequest> {
        let mut meta = member.store.clone().or_else(|| self.args.meta.clone());
        let (address, joined) = defaults::address(meta.as_deref(), name)?;
        let mut files = Vec::new();
        if let Some(gateway) = &member.gateway {
            let MetaAddress::Gateway(credentials) = &address else {
                return Err(failed(format_args!(
                    "this machine has not joined the volume; run `shunt volume join` first"
                )));
            };
            let credentials = Credentials::load(credentials).map_err(failed)?.with_address(gateway);
            let file = self.cache(name).join(GATEWAY_CREDENTIALS_FILE);
            files.push((file.clone(), serde_json::to_vec(&credentials).map_err(failed)?));
            meta = Some(format!("gateway:{}", file.display()));
        }
        let mut args = self.arguments(name, joined.is_some());
        let mode = match member.cache_mode {
            CacheMode::Full => "full",
            CacheMode::Cached => "cached",
            CacheMode::OnDemand => "on-demand",
        };
        args.extend(["--cache-mode", mode].map(OsString::from));
        if let Some(size) = &member.cache_size {
            size.parse::<Size>().map_err(|why| failed(format_args!("invalid cache-size: {why}")))?;
            args.extend(["--cache-size", size].map(OsString::from));
        }
        let mut owners = String::new();
        let maps = |people: &OwnerMap| !people.is_identity();
        if maps(&here.users) || maps(&here.groups) {
            owners = here.users.to_text(USER) + &here.groups.to_text(GROUP);
        }
        args.push(name.as_str().into());
        let mut request = self.mount_request(tree, name, member.path.names().to_vec(), args);
        request.meta = meta;
        request.files = files;
        request.owners.1 = owners;
        Ok(request)
    }

    fn arguments(&self, name: &VolumeName, joined: bool) -> Vec<OsString> {
        let cache = self.cache(name);
        let mut args = self.shared.clone();
        if !joined {
            args.extend(["--node", self.node.as_str()].map(OsString::from));
        }
        args.extend(["--owner-table".into(), cache.join(OWNERS_FILE).into(), "--cache".into(), cache.into()]);
        args
    }

    fn mount_request(
        &self,
        tree: &Path,
        name: &VolumeName,
        names: Vec<String>,
        args: Vec<OsString>,
    ) -> MountRequest {
        let at = names.iter().fold(tree.to_owned(), |at, name| at.join(name));
        let owners = (self.cache(name).join(OWNERS_FILE), String::new());
        MountRequest { names, at, args, meta: self.args.meta.clone(), files: Vec::new(), owners }
    }
}

/// The options of the tree that apply to each volume in it.
fn shared(args: &VolumeTreeArgs) -> Result<Vec<OsString>> {
    let mount = &args.mount;
    let mut shared: Vec<OsString> = vec!["--takeover".into(), "off".into()];
    let flags = [
        (mount.read_only, "--read-only"),
        (mount.allow_other, "--allow-other"),
        (mount.no_allow_other, "--no-allow-other"),
        (mount.log.log_json, "--log-json"),
    ];
    shared.extend(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag.into()));
    shared.extend((0..mount.log.verbose).map(|_| "-v".into()));
    if let Some(file) = &mount.log.log_file {
        let file = std::path::absolute(file)
            .map_err(|error| usage(format_args!("cannot use --log-file {}: {error}", file.display())))?;
        shared.extend(["--log-file".into(), file.into()]);
    }
    shared.extend(["--transport".into(), mount.transport.to_string().into()]);
    if let Some(threads) = mount.threads {
        shared.extend(["--threads".into(), threads.to_string().into()]);
    }
    for option in mount.options.iter().flat_map(|options| options.split(',')) {
        // Other options belong to the tree's own command, where they are applied already.
        if MountOptions::new().apply_str(option).is_ok_and(|others| others.is_empty()) {
            shared.extend(["-o".into(), option.into()]);
        }
    }
    Ok(shared)
}
