//! Settings of a volume that every node has to know, also offline. They are extended attributes of the root directory, which are
//! synchronised with the tree and hidden from users. A change is a commit with the old value as precondition.

use crate::id::{NodeName, ObjectId};
use crate::object::Field;
use crate::store::{MetaStore, Mutation, Precondition, Rejected, StoreError, Transaction};

/// Maximum number of attempts, if other nodes keep changing the setting.
const MAX_ATTEMPTS: usize = 100;

/// Returns the value of a setting.
///
/// # Errors
/// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
pub fn get(meta: &dyn MetaStore, name: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(read(meta, name)?.0)
}

fn read(meta: &dyn MetaStore, name: &[u8]) -> Result<(Option<Vec<u8>>, Precondition), StoreError> {
    let root = meta.get(&[ObjectId::ROOT])?.pop().flatten();
    let root = root.ok_or_else(|| StoreError::Damaged("the root directory is missing".to_owned()))?;
    let field = Field::Xattr(name.to_vec());
    let seq = root.seq_of(&field);
    Ok((root.object.xattrs.get(name).cloned(), Precondition::Field(ObjectId::ROOT, field, seq)))
}

/// Changes a setting; `None` removes it. If another node changes it concurrently, `change` is called again with the new value.
///
/// # Errors
/// [`StoreError`] of `change` or of the engine; [`StoreError::Denied`] if others keep changing the setting.
pub fn set(
    meta: &dyn MetaStore,
    node: &NodeName,
    name: &[u8],
    change: &dyn Fn(Option<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<(), StoreError> {
    for _ in 0..MAX_ATTEMPTS {
        let (before, unchanged) = read(meta, name)?;
        let value = change(before.clone())?;
        if value == before {
            return Ok(());
        }
        let change = vec![Mutation::SetXattr(ObjectId::ROOT, name.to_vec(), value)];
        let item =
            Transaction { preconditions: vec![unchanged], mutations: change, ..Transaction::default() };
        match meta.commit(node, rand::random(), &[item])?.pop() {
            Some(Ok(_)) => return Ok(()),
            Some(Err(Rejected::Stale(_))) | None => {}
            Some(Err(refused)) => return Err(StoreError::Damaged(refused.to_string())),
        }
    }
    Err(StoreError::Denied("other nodes keep changing the settings: try again".to_owned()))
}
