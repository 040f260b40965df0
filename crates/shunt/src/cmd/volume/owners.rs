//! `--uid-map` and `--gid-map` of a volume.

use shunt_mirror::IdMap;
use shunt_volumefs::Owners;

use crate::args::{VolumeMountArgs, ids};
use crate::error::Result;

struct Mapped {
    users: IdMap,
    groups: IdMap,
}

/// What the options say; `None`: nothing.
pub fn mapped(args: &VolumeMountArgs) -> Result<Option<Box<dyn Owners>>> {
    let users = ids::map("--uid-map", &args.uid_map)?;
    let groups = ids::map("--gid-map", &args.gid_map)?;
    let maps = !users.is_identity() || !groups.is_identity();
    Ok(maps.then(|| Box::new(Mapped { users, groups }) as Box<dyn Owners>))
}

impl Owners for Mapped {
    fn shown_user(&self, stored: u32) -> u32 {
        self.users.show(stored)
    }

    fn shown_group(&self, stored: u32) -> u32 {
        self.groups.show(stored)
    }

    fn stored_user(&self, shown: u32) -> u32 {
        self.users.store(shown)
    }

    fn stored_group(&self, shown: u32) -> u32 {
        self.groups.store(shown)
    }
}
