//! The owner maps of a volume: `--uid-map` and `--gid-map`, and the table that a tree writes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use shunt_fuse::mount::MountOptions;
use shunt_mirror::IdMap;
use shunt_volume::tree_config::{NOBODY, OwnerMap};
use shunt_volumefs::Owners;

use crate::args::{VolumeMountArgs, ids};
use crate::error::{Result, failed};

/// The words that begin a table's lines of users, and of groups.
pub const USER: &str = "user";
pub const GROUP: &str = "group";

struct Mapped {
    users: IdMap,
    groups: IdMap,
}

/// The map of the options; `None` if it is the identity.
pub fn mapped(args: &VolumeMountArgs) -> Result<Option<Box<dyn Owners>>> {
    let users = ids::map("--uid-map", &args.uid_map)?;
    let groups = ids::map("--gid-map", &args.gid_map)?;
    ids::refuse_root(
        &users,
        &groups,
        &args.mount.mount_options(MountOptions::new())?,
        args.mapped_root_suid,
    )?;
    let maps = !users.is_identity() || !groups.is_identity();
    Ok(maps.then(|| Box::new(Mapped { users, groups }) as Box<dyn Owners>))
}

/// Shows an id as nobody if its local number stands for another id: no two ids share a number, so neither owner gains access to
/// the other's files.
fn shown(map: &IdMap, stored: u32) -> u32 {
    let shown = map.show(stored);
    if map.store(shown) == stored { shown } else { NOBODY }
}

impl Owners for Mapped {
    fn shown_user(&self, stored: u32) -> u32 {
        shown(&self.users, stored)
    }

    fn shown_group(&self, stored: u32) -> u32 {
        shown(&self.groups, stored)
    }

    fn stored_user(&self, shown: u32) -> u32 {
        self.users.store(shown)
    }

    fn stored_group(&self, shown: u32) -> u32 {
        self.groups.store(shown)
    }
}

/// A table in a file, which can be reloaded.
#[derive(Clone)]
pub struct Table {
    file: PathBuf,
    people: Arc<RwLock<(OwnerMap, OwnerMap)>>,
}

impl Table {
    pub fn read(file: &Path) -> Result<Self> {
        Ok(Self { file: file.to_owned(), people: Arc::new(RwLock::new(read(file)?)) })
    }

    /// Reloads the file. An invalid one changes nothing.
    pub fn reload(&self) -> Result<()> {
        let people = read(&self.file)?;
        *self.people.write().unwrap_or_else(PoisonError::into_inner) = people;
        Ok(())
    }

    fn of<T>(&self, ask: impl Fn(&(OwnerMap, OwnerMap)) -> T) -> T {
        ask(&self.people.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read(file: &Path) -> Result<(OwnerMap, OwnerMap)> {
    let cannot = |why: &dyn std::fmt::Display| failed(format_args!("cannot read {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| cannot(&error))?;
    let people = |prefix| OwnerMap::from_text(prefix, &text).ok_or_else(|| cannot(&"not an owner table"));
    Ok((people(USER)?, people(GROUP)?))
}

impl Owners for Table {
    fn shown_user(&self, stored: u32) -> u32 {
        self.of(|(users, _)| users.to_local(stored))
    }

    fn shown_group(&self, stored: u32) -> u32 {
        self.of(|(_, groups)| groups.to_local(stored))
    }

    fn stored_user(&self, shown: u32) -> u32 {
        self.of(|(users, _)| users.store(shown))
    }

    fn stored_group(&self, shown: u32) -> u32 {
        self.of(|(_, groups)| groups.store(shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_the_volume_are_never_one_here() {
        let mapped = Mapped { users: "1000:2000".parse().unwrap(), groups: "5:0,0:5".parse().unwrap() };
        assert_eq!([1000, 2000, 7].map(|stored| mapped.shown_user(stored)), [2000, NOBODY, 7]);
        assert_eq!([2000, 7].map(|shown| mapped.stored_user(shown)), [1000, 7]);
        // Local user 1000 has no counterpart in the volume, so it does not map back to itself.
        assert_ne!(mapped.shown_user(mapped.stored_user(1000)), 1000);
        assert_eq!([5, 0].map(|stored| mapped.shown_group(stored)), [0, 5]);
    }
}
