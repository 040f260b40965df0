//! What is set for a volume and has to be known on every node, also off the network: attributes of the top directory, which
//! come with the tree. Users see none of them.

use crate::id::{NodeName, ObjectId};
use crate::object::Field;
use crate::store::{MetaStore, Mutation, Precondition, Rejected, StoreError, Transaction};

/// A change that others cross again and again is given up.
const TRIES: usize = 100;

/// The value of one.
///
/// # Errors
/// Those of the store.
pub fn get(meta: &dyn MetaStore, name: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(read(meta, name)?.0)
}

fn read(meta: &dyn MetaStore, name: &[u8]) -> Result<(Option<Vec<u8>>, Precondition), StoreError> {
    let root = meta.get(&[ObjectId::ROOT])?.pop().flatten();
    let root = root.ok_or_else(|| StoreError::Damaged("it has no top directory".to_owned()))?;
    let field = Field::Xattr(name.to_vec());
    let seq = root.seq_of(&field);
    Ok((root.object.xattrs.get(name).cloned(), Precondition::Field(ObjectId::ROOT, field, seq)))
}

/// Changes one; `None`: it is not set. Where others change it at the same time, `change` is asked again.
///
/// # Errors
/// Those of the closure and of the store.
pub fn set(
    meta: &dyn MetaStore,
    node: &NodeName,
    name: &[u8],
    change: &dyn Fn(Option<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<(), StoreError> {
    for _ in 0..TRIES {
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
    Err(StoreError::Denied("others change it all the time".to_owned()))
}
