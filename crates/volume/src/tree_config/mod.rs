//! Several volumes in one tree, as the files of a config volume describe it.
//!
//! A config volume is a volume as any other, so each node has it, off the network too:
//!
//! | file | says |
//! |---|---|
//! | `volumes/NAME.toml` | that volume NAME is in the tree: where, in which store, how much of it is kept, what is different `on` some nodes |
//! | `nodes/NAME.toml` | that there is a node NAME: its address if it serves volumes to others, its own numbers for users and groups |
//! | `users.toml` | names of users and groups, with their numbers in volumes |
//!
//! [`Tree::parse`] takes all of them or none: what is in effect is always one state of the files. [`Tree::on`] is what a node
//! makes of it.

mod file;
mod id_map;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::id::{NodeName, VolumeName};
use file::{Defaults, NodeFile, UsersFile, VolumeFile, Who};
pub use id_map::{NOBODY, OwnerMap};

/// Files of a config volume by path, as text. Others than those of the table are not looked at.
pub type Files = BTreeMap<String, String>;

/// Volumes in a tree.
pub const MAX_VOLUMES: usize = 1000;
/// Nodes of a tree.
const MAX_NODES: usize = 100_000;
/// Bytes of a place: with the mount point, a path that the kernel takes.
const MAX_PLACE_BYTES: usize = 2048;

/// What is wrong with a config volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// In which file, from the top of the volume.
    pub file: String,
    /// In which line, from 1.
    pub line: Option<usize>,
    /// What.
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

/// How much of a volume a node keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// All.
    Complete,
    /// What was used.
    #[default]
    Cached,
    /// What is open.
    Remote,
}

/// Where a volume is in a tree: names below the top directory, at least one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(Vec<String>);

impl Place {
    /// Its names.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    fn is_in(&self, other: &Place) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("`{text}` is no place in a tree: {why}"));
        let names: Vec<String> = text.trim_matches('/').split('/').map(str::to_owned).collect();
        if text.len() > MAX_PLACE_BYTES {
            return wrong("it is longer than 2048 bytes");
        }
        for name in &names {
            match name.as_str() {
                "" | "." | ".." => return wrong("say names, with a / between them"),
                name if name.len() > 255 => return wrong("a name has at most 255 bytes"),
                name if name.contains('\0') => return wrong("a name has no zero byte"),
                _ => {}
            }
        }
        // The config volume is there.
        if names[0] == CONFIG {
            return wrong("the volume that describes the tree is there");
        }
        Ok(Self(names))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

/// Where the config volume is in its tree.
pub const CONFIG: &str = ".tree";

/// A volume, as a node has it in its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Where.
    pub place: Place,
    /// The address of its store; `None`: as this machine has it for all.
    pub store: Option<String>,
    /// The address of the gateway to reach it through, where it is not the one that was joined.
    pub through: Option<String>,
    /// How much is kept.
    pub role: Role,
    /// Bytes, as a command line says them.
    pub cache_size: Option<String>,
}

/// What a node makes of a config volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Here {
    /// Its volumes.
    pub volumes: BTreeMap<VolumeName, Member>,
    /// Its users.
    pub users: OwnerMap,
    /// Its groups.
    pub groups: OwnerMap,
}

/// What the files of a config volume say.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    volumes: BTreeMap<VolumeName, VolumeFile>,
    nodes: BTreeMap<NodeName, NodeFile>,
    people: UsersFile,
}

/// The path of what is called NAME in `DIR/NAME.toml`, if it is one.
pub fn name_in<'a>(dir: &str, path: &'a str) -> Option<&'a str> {
    let name = path.strip_prefix(dir)?.strip_prefix('/')?.strip_suffix(".toml")?;
    // What editors leave while they write.
    (!name.starts_with(['.', '#']) && !name.contains('/')).then_some(name)
}

/// Whether a tree can have so many files, of which these are the paths: before they are read.
///
/// # Errors
/// It cannot.
pub fn check_count<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Result<(), ConfigError> {
    for (dir, most) in [("volumes", MAX_VOLUMES), ("nodes", MAX_NODES)] {
        if paths.clone().filter(|path| name_in(dir, path).is_some()).count() > most {
            return Err(complain(dir, format_args!("a tree has at most {most} {dir}")));
        }
    }
    Ok(())
}

impl Tree {
    /// Reads all files.
    ///
    /// # Errors
    /// The first that makes no sense: by itself, or beside the others.
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
                self.known(&file, node)?;
                if !on.on.is_empty() {
                    return Err(complain(&file, format_args!("`on.{node}` has no `on` in it")));
                }
            }
            for gate in
                [volume].into_iter().chain(volume.on.values()).filter_map(|said| said.through.as_ref())
            {
                self.known(&file, gate)?;
                if self.nodes.get(gate).is_none_or(|gate| gate.address.is_none()) {
                    let why = format_args!("nobody goes through {gate}: nodes/{gate}.toml has no `address`");
                    return Err(complain(&file, why));
                }
            }
        }
        for (name, node) in &self.nodes {
            self.check_node(&format!("nodes/{name}.toml"), node)?;
        }
        // On each node that something is different on, and on all others.
        let nodes: BTreeSet<&NodeName> = self.volumes.values().flat_map(|volume| volume.on.keys()).collect();
        for node in nodes.into_iter().map(Some).chain([None]) {
            self.volumes_on(node)?;
        }
        Ok(())
    }

    fn known(&self, file: &str, node: &NodeName) -> Result<(), ConfigError> {
        match self.nodes.contains_key(node) {
            true => Ok(()),
            false => Err(complain(file, format_args!("there is no node {node}: make nodes/{node}.toml"))),
        }
    }

    fn check_node(&self, file: &str, node: &NodeFile) -> Result<(), ConfigError> {
        let unknown =
            |what: &str, name: &str| complain(file, format_args!("users.toml knows no {what} {name}"));
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
        let mut places: Vec<(&VolumeName, &Place)> =
            volumes.iter().map(|(name, member)| (name, &member.place)).collect();
        // In their order, what is in a place comes right behind it.
        places.sort_by_key(|(_, place)| *place);
        for pair in places.windows(2) {
            let [(one, outer), (other, inner)] = pair else { continue };
            if inner.is_in(outer) {
                let on = node.map_or(String::new(), |node| format!(" on {node}"));
                let file = format!("volumes/{other}.toml");
                return Err(complain(
                    &file,
                    format_args!("its place {inner}{on} is in that of volume {one}"),
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
        let said = [node.and_then(|node| volume.on.get(node)), Some(volume)];
        let said = || said.iter().copied().flatten();
        if !said().find_map(|said| said.shown).unwrap_or(true) {
            return Ok(None);
        }
        let place = said().find_map(|said| said.place.as_deref()).unwrap_or(name.as_str());
        let place = place.parse().map_err(|why| complain(&format!("volumes/{name}.toml"), why))?;
        let through = said().find_map(|said| said.through.as_ref());
        // Who serves it does not come to it through itself.
        let through = through.filter(|gate| Some(*gate) != node);
        Ok(Some(Member {
            place,
            store: said().find_map(|said| said.store.clone()),
            through: through.and_then(|gate| self.nodes.get(gate)?.address.clone()),
            role: said().find_map(|said| said.role).unwrap_or_default(),
            cache_size: said().find_map(|said| said.cache_size.clone()),
        }))
    }

    /// What a node makes of it: `user` and `group` tell its own numbers for names, if it has any.
    pub fn on(
        &self,
        node: &NodeName,
        user: impl Fn(&str) -> Option<u32>,
        group: impl Fn(&str) -> Option<u32>,
    ) -> Here {
        // They were checked for all nodes.
        let volumes = self.volumes_on(Some(node)).unwrap_or_default();
        let none = NodeFile::default();
        let own = self.nodes.get(node).unwrap_or(&none);
        let Defaults { user: default_user, group: default_group } = &own.default;
        let number = |who: &Who, account: &dyn Fn(&str) -> Option<u32>| match who {
            Who::Number(number) => Some(*number),
            Who::Name(name) => account(name),
        };
        let default_user = default_user.as_ref().map(|who| number(who, &user).unwrap_or(NOBODY));
        let default_group = default_group.as_ref().map(|who| number(who, &group).unwrap_or(NOBODY));
        Here {
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
                return Err(complain(file, format_args!("{other} and {name} both are {number}")));
            }
        }
    }
    Ok(())
}

fn check_ids(file: &str, ids: &BTreeMap<String, u32>) -> Result<(), ConfigError> {
    match ids.iter().find(|(_, id)| **id > id_map::MAX_ID) {
        Some((name, id)) => Err(complain(file, format_args!("{id} of {name} is no number of anybody"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
