//! Brings an encrypted volume to the format whose log is sealed.
//!
//! A holder of the key reads the unsealed log and authenticates it as a whole: the volume's descriptor then records the last
//! commit without a seal and the [chain](crate::store::seal) value there. The descriptor is replaced in one transaction, only
//! if no commit was added since, so an interrupted upgrade changes nothing.

use crate::address::MetaAddress;
use crate::crypto::VolumeKey;
use crate::id::{ObjectId, Seq, VolumeName};
use crate::open::{OpenError, open_meta};
use crate::store::StoreError;
use crate::store::admin::StoreAdmin;
use crate::store::seal::{RootAttributes, UnsealedChain};
use crate::volume::VolumeDescriptor;

/// Number of log entries read at once.
const PAGE_ENTRIES: usize = 1024;
/// Maximum number of attempts, if other nodes keep committing.
const MAX_ATTEMPTS: u32 = 100;

/// The result of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgraded {
    /// The log is sealed after this commit.
    Now(Seq),
    /// It had been sealed before, after this commit.
    Before(Seq),
}

/// Seals the log of a volume from now on. `progress` receives the number of commits that were read. Nodes that have the volume
/// mounted cannot commit any more until they mount it again.
///
/// # Errors
/// [`StoreError::Denied`] if the volume is not encrypted, its log was truncated, or others keep committing; errors of the
/// store; [`OpenError::Key`].
pub fn upgrade(
    meta: &MetaAddress,
    name: &VolumeName,
    secret: Option<&VolumeKey>,
    progress: &dyn Fn(u64),
) -> Result<Upgraded, OpenError> {
    let (admin, about) = open_meta(&meta.resolve(name)?, name)?;
    let described = VolumeDescriptor::from_bytes(&about)?;
    if described.name != *name {
        return Err(StoreError::NoVolume(name.clone()).into());
    }
    described.keys(secret)?;
    if let Some(sealed) = described.sealed {
        return Ok(Upgraded::Before(sealed.from));
    }
    let denied = |why: &str| Err(StoreError::Denied(why.to_owned()).into());
    let Some(secret) = secret.filter(|_| described.hides_names) else {
        return denied(
            "only a volume of format 2 that was created with --encrypt can be upgraded: create \
                a new volume with \
             --encrypt and copy the files",
        );
    };
    if admin.truncated_up_to()? > Seq(0) {
        return denied(
            "its log was truncated by `gc --history-days` and no longer proves the state of the \
                volume: create a new volume \
             with --encrypt and copy the files",
        );
    }
    let mut vouching = UnsealedChain::new(secret, described.id);
    for _ in 0..MAX_ATTEMPTS {
        read(&*admin, &mut vouching, progress)?;
        let top = admin.get(&[ObjectId::ROOT])?.pop().flatten();
        let top = top.ok_or_else(|| StoreError::Damaged("the root directory is missing".to_owned()))?;
        let sealed = vouching.seal(RootAttributes::from(&top.object));
        let mark = Some(secret.mark_of_sealed());
        let about = VolumeDescriptor { sealed: Some(sealed), mark, ..described.clone() }.to_bytes();
        if admin.replace_descriptor(sealed.from, &about)? {
            return Ok(Upgraded::Now(sealed.from));
        }
    }
    denied("other nodes keep changing it: unmount it on all nodes first")
}

/// Reads the log to its end.
fn read(
    admin: &dyn StoreAdmin,
    vouching: &mut UnsealedChain,
    progress: &dyn Fn(u64),
) -> Result<(), StoreError> {
    loop {
        let entries = admin.log_since(vouching.at(), PAGE_ENTRIES)?;
        if entries.is_empty() {
            return Ok(());
        }
        entries.iter().try_for_each(|entry| vouching.add(entry))?;
        progress(vouching.at().0);
    }
}
