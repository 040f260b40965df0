//! Conflict copies: in a volume configured for them, a conflict is resolved as it arises. This node's version keeps the path,
//! the other one gets a name next to it. Both are ordinary files from then on, and are synchronised to all nodes.

use crate::id::NodeName;
use crate::merge::staged_tree::{MergeResult, StagedTree};
use crate::merge::{Conflict, ConflictKind, DentryKey, PlanError, ROOT};
use crate::store::validate::MAX_NAME_BYTES;

/// Attribute of the root directory that configures conflict copies. Hidden from users.
pub const ATTRIBUTE: &[u8] = b"system.shunt.conflicts";
/// Value of the attribute for conflict copies.
pub const KEEP_BOTH_VALUE: &[u8] = b"beside";

/// Maximum length of a suffix after a dot that counts as an extension.
const MAX_EXTENSION_BYTES: usize = 12;

/// Returns the name for another node's version, next to this node's: `.theirs-` and the node before the extension, and from the
/// second on `~` and a number. A name that gets too long is truncated before that.
pub(crate) fn remote_copy_name(name: &[u8], is_directory: bool, node: &NodeName, n: u32) -> Vec<u8> {
    let number = if n > 1 { format!("~{n}") } else { String::new() };
    let middle = format!(".theirs-{node}{number}");
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|dot| {
        let behind = &name[dot + 1..];
        // A leading dot does not begin an extension.
        !is_directory
            && *dot > 0
            && (1..=MAX_EXTENSION_BYTES).contains(&behind.len())
            && behind.iter().all(u8::is_ascii_alphanumeric)
    });
    let (stem, extension) = name.split_at(dot.unwrap_or(name.len()));
    let room = MAX_NAME_BYTES.saturating_sub(middle.len() + extension.len());
    [&stem[..stem.len().min(room)], middle.as_bytes(), extension].concat()
}

impl StagedTree<'_> {
    /// Resolves the conflicts that have just arisen, if the volume is configured for conflict copies.
    pub(super) fn keep_both_versions(&mut self) -> MergeResult {
        let fresh = self.new_conflicts();
        if fresh.is_empty() {
            return Ok(());
        }
        let is_set = |root: &crate::object::VersionedObject| {
            root.object.xattrs.get(ATTRIBUTE).is_some_and(|value| value == KEEP_BOTH_VALUE)
        };
        if !self.base(ROOT)?.is_some_and(|root| is_set(&root)) {
            return Ok(());
        }
        for (at, conflict) in fresh {
            self.keep_both_of(&at, &conflict)?;
        }
        Ok(())
    }

    fn keep_both_of(&mut self, at: &DentryKey, conflict: &Conflict) -> MergeResult {
        let remote = self.link(at)?;
        if conflict.local == remote {
            self.set_conflict(at, None);
            return Ok(());
        }
        if let Some(local) = conflict.local
            && self.is_directory(local)?
            && (at.parent == local || self.is_below(at.parent, local)?)
        {
            // It cannot be moved into itself: the store's location stays, and only the local move is lost.
            self.set_conflict(at, None);
            return Ok(());
        }
        if let Some(remote) = remote {
            let copy_name = self.free_beside(at, remote, &conflict.remote_node)?;
            self.set_link(at, None);
            self.set_link(&copy_name, Some(remote));
        }
        self.set_conflict(at, None);
        let Some(local) = conflict.local else { return Ok(()) };
        // A file may have two names, a directory only one.
        if conflict.kind == ConflictKind::Moved && self.is_directory(local)? {
            for old in self.names(crate::merge::Tree::Local, local)? {
                self.set_link(&old, None);
            }
        }
        self.set_link(at, Some(local));
        Ok(())
    }

    fn free_beside(
        &self,
        at: &DentryKey,
        remote: crate::merge::Ino,
        node: &NodeName,
    ) -> MergeResult<DentryKey> {
        let is_directory = self.is_directory(remote)?;
        for n in 1..10_000 {
            let candidate =
                DentryKey { parent: at.parent, name: remote_copy_name(&at.name, is_directory, node, n) };
            if self.link(&candidate)?.is_none()
                && self.base_link(&candidate)?.is_none()
                && self.conflict(&candidate)?.is_none()
            {
                return Ok(candidate);
            }
        }
        Err(PlanError::Cannot("too many conflict copies in the directory"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_keep_their_extension() {
        let node: NodeName = "desk".parse().unwrap();
        let of =
            |name: &str, n| String::from_utf8(remote_copy_name(name.as_bytes(), false, &node, n)).unwrap();
        assert_eq!(of("plan.txt", 1), "plan.theirs-desk.txt");
        assert_eq!(of("plan.txt", 2), "plan.theirs-desk~2.txt");
        assert_eq!(of("a.tar.gz", 1), "a.tar.theirs-desk.gz");
        for whole in ["plan", ".bashrc", "ends.", "what is. this", "a.averylongending"] {
            assert_eq!(of(whole, 1), format!("{whole}.theirs-desk"));
        }
        assert_eq!(remote_copy_name(b"dir.d", true, &node, 1), b"dir.d.theirs-desk");
        let long = remote_copy_name(&[b'x'; 255], false, &node, 3);
        assert_eq!((long.len(), &long[241..]), (255, &b".theirs-desk~3"[..]));
        let long = remote_copy_name(&[&[b'x'; 250][..], b".txt"].concat(), false, &node, 1);
        assert_eq!((long.len(), &long[239..]), (255, &b".theirs-desk.txt"[..]));
    }
}
