//! Combines several volumes into one tree, as described by the files of a config volume.
//!
//! A config volume is an ordinary volume, so each node has a replica of it, also offline:
//!
//! | file | content |
//! |---|---|
//! | `volumes/NAME.toml` | volume NAME of the tree: its path, its store, how much of it is cached, and what differs `on` some nodes |
//! | `nodes/NAME.toml` | node NAME: its address if it serves volumes to others, its own numbers for users and groups |
//! | `users.toml` | names of users and groups, with their numbers in volumes |
//!
//! [`Tree::parse`] accepts all files or none: the configuration in effect is always one state of the files. [`Tree::on`]
//! returns the configuration of one node.

mod file;
mod id_map;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::id::{NodeName, VolumeName};
use file::{Account, Defaults, NodeFile, UsersFile, VolumeFile};
pub use id_map::{NOBODY, OwnerMap};

/// Files of a config volume by path, as text. Those not in the table are ignored.
pub type Files = BTreeMap<String, String>;

/// Maximum number of volumes in a tree.
pub(crate) const MAX_VOLUMES: usize = 1000;
/// Maximum number of nodes of a tree.
const MAX_NODES: usize = 100_000;
/// Maximum length of a volume's path in bytes: with the mount point it has to be a valid path.
const MAX_PATH_BYTES: usize = 2048;

/// An error in a config volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Path of the file in the volume.
    pub file: String,
    /// Number of the line, from 1.
    pub line: Option<usize>,
    /// The reason.
    pub why: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.why),
            None => write!(f, "{}: {}", self.file, self.why),
        }
    }
}

impl std::error::Error for ConfigError {}

/// How much of a volume a node caches. The aliases are the former names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// All files.
    #[serde(alias = "complete")]
    Full,
    /// Files that were used.
    #[default]
    Cached,
    /// Files that are open.
    #[serde(alias = "remote")]
    OnDemand,
}

/// The path of a volume in a tree: at least one name below the root directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountPath(Vec<String>);

impl MountPath {
    /// Returns its names.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    fn is_in(&self, other: &MountPath) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl FromStr for MountPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("`{text}` is not a valid place: {why}"));
        let names: Vec<String> = text.trim_matches('/').split('/').map(str::to_owned).collect();
        if text.len() > MAX_PATH_BYTES {
            return wrong("it has more than 2048 bytes");
        }
        for name in &names {
            match name.as_str() {
                "" | "." | ".." => return wrong("give names other than `.` and `..`, separated by /"),
                name if name.len() > 255 => return wrong("a name has at most 255 bytes"),
                name if name.contains('\0') => return wrong("a name must not contain NUL"),
                _ => {}
            }
        }
        // Reserved for the config volume.
        if names[0] == CONFIG {
            return wrong("`.tree` is reserved for the config volume");
        }
        Ok(Self(names))
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

/// Name of the config volume in its tree.
pub const CONFIG: &str = ".tree";

/// The configuration of a volume on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its path.
    pub path: MountPath,
    /// The address of its store; `None`: this machine's default.
    pub store: Option<String>,
    /// The address of the gateway to use, if it is not the one that was joined.
    pub gateway: Option<String>,
    /// How much is cached.
    pub cache_mode: CacheMode,
    /// Size in bytes, as on the command line.
    pub cache_size: Option<String>,
}

/// The configuration of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeConfig {
    /// The volumes.
    pub volumes: BTreeMap<VolumeName, Member>,
    /// The mapping of users.
    pub users: OwnerMap,
    /// The mapping of groups.
    pub groups: OwnerMap,
}

/// The parsed files of a config volume.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    volumes: BTreeMap<VolumeName, VolumeFile>,
    nodes: BTreeMap<NodeName, NodeFile>,
    people: UsersFile,
}

/// Returns NAME if the path is `DIR/NAME.toml`.
pub fn name_in<'a>(dir: &str, path: &'a str) -> Option<&'a str> {
    let name = path.strip_prefix(dir)?.strip_prefix('/')?.strip_suffix(".toml")?;
    // Temporary files of editors.
    (!name.starts_with(['.', '#']) && !name.contains('/')).then_some(name)
}

/// Checks the number of files by their paths, before they are read.
///
/// # Errors
/// [`ConfigError`] if there are too many.
pub fn check_count<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Result<(), ConfigError> {
    for (dir, max) in [("volumes", MAX_VOLUMES), ("nodes", MAX_NODES)] {
        if paths.clone().filter(|path| name_in(dir, path).is_some()).count() > max {
            return Err(complain(dir, format_args!("a tree has at most {max} {dir}")));
        }
    }
    Ok(())
}

impl Tree {
    /// Parses and checks all files.
    ///
    /// # Errors
    /// The first error: in a file by itself, or in combination with others.
    pub fn parse(files: &Files) -> Result<Self, ConfigError> {
        let mut tree = Self::default();
        check_count(files.keys().map(String::as_str))?;
        for (path, text) in files {
            let bad_name = |why: crate::id::BadName| complain(path, why);
            if path == "users.toml" {
                tree.people = file::parse(path, text)?;
                check_people(path, &tree.people)?;
            } else if let Some(name) = name_in("nodes", path) {
                tree.nodes.insert(name.parse().map_err(bad_name)?, file::parse(path, text)?);
            } else if let Some(name) = name_in("volumes", path) {
                tree.volumes.insert(name.parse().map_err(bad_name)?, file::parse(path, text)?);
            }
        }
        tree.check()?;
        Ok(tree)
    }

    fn check(&self) -> Result<(), ConfigError> {
        for (name, volume) in &self.volumes {
            let file = format!("volumes/{name}.toml");
            for (node, on) in &volume.on {
                self.check_node_exists(&file, node)?;
                if !on.on.is_empty() {
                    return Err(complain(&file, format_args!("`on.{node}` must not contain `on`")));
                }
            }
            for gate in [volume]
                .into_iter()
                .chain(volume.on.values())
                .filter_map(|settings| settings.through.as_ref())
            {
                self.check_node_exists(&file, gate)?;
                if self.nodes.get(gate).is_none_or(|gate| gate.address.is_none()) {
                    let why =
                        format_args!("cannot use {gate} as a gateway: nodes/{gate}.toml has no `address`");
                    return Err(complain(&file, why));
                }
            }
        }
        for (name, node) in &self.nodes {
            self.check_node(&format!("nodes/{name}.toml"), node)?;
        }
        // On each node with settings of its own, and on all others.
        let nodes: BTreeSet<&NodeName> = self.volumes.values().flat_map(|volume| volume.on.keys()).collect();
        for node in nodes.into_iter().map(Some).chain([None]) {
            self.volumes_on(node)?;
        }
        Ok(())
    }

    fn check_node_exists(&self, file: &str, node: &NodeName) -> Result<(), ConfigError> {
        match self.nodes.contains_key(node) {
            true => Ok(()),
            false => Err(complain(file, format_args!("unknown node {node}: create nodes/{node}.toml"))),
        }
    }

    fn check_node(&self, file: &str, node: &NodeFile) -> Result<(), ConfigError> {
        let unknown =
            |what: &str, name: &str| complain(file, format_args!("users.toml does not list {what} {name}"));
        if let Some(name) = node.users.keys().find(|name| !self.people.users.contains_key(*name)) {
            return Err(unknown("user", name));
        }
        if let Some(name) = node.groups.keys().find(|name| !self.people.groups.contains_key(*name)) {
            return Err(unknown("group", name));
        }
        check_ids(file, &node.users)?;
        check_ids(file, &node.groups)
    }

    fn volumes_on(&self, node: Option<&NodeName>) -> Result<BTreeMap<VolumeName, Member>, ConfigError> {
        let mut volumes = BTreeMap::new();
        for (name, volume) in &self.volumes {
            if let Some(member) = self.member(name, volume, node)? {
                volumes.insert(name.clone(), member);
            }
        }
        let mut paths: Vec<(&VolumeName, &MountPath)> =
            volumes.iter().map(|(name, member)| (name, &member.path)).collect();
        // Sorted, a path directly precedes those below it.
        paths.sort_by_key(|(_, path)| *path);
        for pair in paths.windows(2) {
            let [(one, outer), (other, inner)] = pair else { continue };
            if inner.is_in(outer) {
                let on = node.map_or(String::new(), |node| format!(" on {node}"));
                let file = format!("volumes/{other}.toml");
                return Err(complain(
                    &file,
                    format_args!("place {inner}{on} overlaps the place of volume {one}"),
                ));
            }
        }
        Ok(volumes)
    }

    fn member(
        &self,
        name: &VolumeName,
        volume: &VolumeFile,
        node: Option<&NodeName>,
    ) -> Result<Option<Member>, ConfigError> {
        let candidates = [node.and_then(|node| volume.on.get(node)), Some(volume)];
        let settings = || candidates.iter().copied().flatten();
        if !settings().find_map(|settings| settings.shown).unwrap_or(true) {
            return Ok(None);
        }
        let path = settings().find_map(|settings| settings.place.as_deref()).unwrap_or(name.as_str());
        let path = path.parse().map_err(|why| complain(&format!("volumes/{name}.toml"), why))?;
        let through = settings().find_map(|settings| settings.through.as_ref());
        // The gateway's own node does not use itself.
        let through = through.filter(|gate| Some(*gate) != node);
        Ok(Some(Member {
            path,
            store: settings().find_map(|settings| settings.store.clone()),
            gateway: through.and_then(|gate| self.nodes.get(gate)?.address.clone()),
            cache_mode: settings().find_map(|settings| settings.cache_mode).unwrap_or_default(),
            cache_size: settings().find_map(|settings| settings.cache_size.clone()),
        }))
    }

    /// Returns the configuration of a node: `user` and `group` look up its own numbers for names.
    pub fn on(
        &self,
        node: &NodeName,
        user: impl Fn(&str) -> Option<u32>,
        group: impl Fn(&str) -> Option<u32>,
    ) -> NodeConfig {
        // They were checked for all nodes.
        let volumes = self.volumes_on(Some(node)).unwrap_or_default();
        let none = NodeFile::default();
        let own = self.nodes.get(node).unwrap_or(&none);
        let Defaults { user: default_user, group: default_group } = &own.default;
        let number = |who: &Account, account: &dyn Fn(&str) -> Option<u32>| match who {
            Account::Number(number) => Some(*number),
            Account::Name(name) => account(name),
        };
        let default_user = default_user.as_ref().map(|who| number(who, &user).unwrap_or(NOBODY));
        let default_group = default_group.as_ref().map(|who| number(who, &group).unwrap_or(NOBODY));
        NodeConfig {
            volumes,
            users: OwnerMap::new(&self.people.users, &own.users, default_user, user),
            groups: OwnerMap::new(&self.people.groups, &own.groups, default_group, group),
        }
    }
}

fn complain(file: &str, why: impl fmt::Display) -> ConfigError {
    ConfigError { file: file.to_owned(), line: None, why: why.to_string() }
}

fn check_people(file: &str, people: &UsersFile) -> Result<(), ConfigError> {
    for known in [&people.users, &people.groups] {
        check_ids(file, known)?;
        let mut names = BTreeMap::new();
        for (name, number) in known {
            if let Some(other) = names.insert(number, name) {
                return Err(complain(file, format_args!("{other} and {name} have the same number {number}")));
            }
        }
    }
    Ok(())
}

fn check_ids(file: &str, ids: &BTreeMap<String, u32>) -> Result<(), ConfigError> {
    match ids.iter().find(|(_, id)| **id > id_map::MAX_ID) {
        Some((name, id)) => {
            Err(complain(file, format_args!("{id} of {name} is reserved: choose a lower number")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
