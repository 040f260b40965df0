//! Rules that the kernel checks by itself.
//!
//! What depends on user and group alone ([`RuleSet::table`]) can be checked where the kernel checks permissions. Then names
//! that some callers do not see are cached for all, since the check comes after the name; and where the kernel keeps all
//! pages itself, opens need nobody either. A [`KernelEnforcer`] does the checks. It is told of an inode before the kernel is.
//!
//! Requests that change something reach the daemon as ever, and so do listings: they are judged here as well.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use shunt_fuse::{Errno, Expiry, NodeId};
use shunt_policy::{RuleSet, Table};

use super::{PolicyFs, SEVERAL};
use crate::CacheMode;

/// What checks in the kernel.
pub trait KernelEnforcer: Send + Sync {
    /// Inodes may be of this class from now on. 0 and the largest are no numbers of classes.
    ///
    /// # Errors
    /// There is no room.
    fn class(&self, number: u32, table: &Table) -> io::Result<()>;

    /// No inode is of this class any more.
    fn end_class(&self, number: u32);

    /// An inode is of this class from now on.
    ///
    /// # Errors
    /// There is no room.
    fn inode(&self, node: u64, class: u32) -> io::Result<()>;

    /// An inode whose rules changed: who comes by a name looks it up again.
    ///
    /// # Errors
    /// There is no room.
    fn stale(&self, node: u64) -> io::Result<()>;

    /// An inode is nothing to the rules, or gone.
    fn forget(&self, node: u64);
}

#[derive(Default)]
struct Tables {
    numbers: HashMap<RuleSet, Option<u32>>,
    last: u32,
}

/// A gate, and what it was told.
pub(super) struct Gated {
    gate: Box<dyn KernelEnforcer>,
    tables: Mutex<Tables>,
    /// Inodes that it knows, and their classes. Held while it is told, and while what is forgotten is looked for.
    inodes: Mutex<HashMap<NodeId, u32>>,
    /// The kernel does not ask for opens.
    unasked: bool,
}

impl Gated {
    /// The number of a class; none where it cannot be checked there.
    fn number(&self, class: &RuleSet) -> Option<u32> {
        let mut tables = self.tables.lock();
        if let Some(known) = tables.numbers.get(class) {
            return *known;
        }
        let number = class.table().and_then(|table| {
            let number = tables.last.checked_add(1).filter(|number| *number != u32::MAX)?;
            self.gate.class(number, &table).ok()?;
            tables.last = number;
            Some(number)
        });
        tables.numbers.insert(class.clone(), number);
        number
    }
}

impl PolicyFs {
    /// Has the kernel check what it can, or notes why it does not. To be called once the gate is at the door of this mount,
    /// before anybody uses it, and once.
    pub fn guard(&self, gate: Result<Box<dyn KernelEnforcer>, String>) {
        let gate = match gate {
            Ok(gate) => gate,
            Err(reason) => return drop(self.unguarded.set(reason)),
        };
        let session = self.session.get();
        self.mirror.always_opens.store(!self.rules().policy.has_tables(), Ordering::Release);
        let unasked = session.is_some_and(|session| self.mirror.opens_nothing(session));
        if !unasked {
            self.mirror.always_opens.store(true, Ordering::Release);
        }
        let gated = Gated { gate, tables: Mutex::default(), inodes: Mutex::default(), unasked };
        if self.gated.set(gated).is_ok() {
            // What the kernel was told already, it was told without the gate's knowing.
            let policy = self.rules().policy.clone();
            let origin = self.origin.lock().clone();
            let _ = self.reload(policy, origin);
        }
    }

    /// Who checks the rules.
    pub fn checks(&self) -> String {
        match (self.gated.get(), self.unguarded.get()) {
            (Some(gated), _) if gated.unasked => "checked in the kernel, opens too".to_owned(),
            (Some(_), _) => "checked in the kernel where user and group decide".to_owned(),
            (None, Some(reason)) => format!("checked by the daemon: {reason}"),
            (None, None) => "checked by the daemon".to_owned(),
        }
    }

    /// Whether the kernel opens files without asking.
    pub(super) fn opens_unasked(&self) -> bool {
        self.gated.get().is_some_and(|gated| gated.unasked)
    }

    /// Whether the kernel checks the rules of a class.
    pub(super) fn is_gated(&self, class: &RuleSet) -> bool {
        self.gated.get().is_some_and(|gated| class.is_free() || gated.number(class).is_some())
    }

    /// Before the kernel is told of an inode.
    ///
    /// # Errors
    /// ENFILE: there is no room for it.
    pub(super) fn note(&self, node: NodeId, class: &RuleSet) -> Result<(), Errno> {
        let Some(gated) = self.gated.get() else { return Ok(()) };
        let mut inodes = gated.inodes.lock();
        let number = if class.is_free() { None } else { gated.number(class) };
        // Checked by the daemon as well, it may go without.
        let needed = gated.unasked || !class.is_name_constant();
        match number {
            Some(number) if inodes.get(&node) == Some(&number) => {}
            Some(number) => match gated.gate.inode(node.0, number) {
                Ok(()) => _ = inodes.insert(node, number),
                Err(_) if needed || inodes.contains_key(&node) => return Err(Errno::NFILE),
                Err(_) => {}
            },
            None if gated.unasked && !class.is_free() => return Err(Errno::NFILE),
            None if inodes.remove(&node).is_some() => gated.gate.forget(node.0),
            None => {}
        }
        Ok(())
    }

    /// The kernel gave references back.
    pub(super) fn unnote(&self, node: NodeId, inner: NodeId) {
        let Some(gated) = self.gated.get() else { return };
        let mut inodes = gated.inodes.lock();
        let held = if node == inner { self.mirror.lower.holds(inner) } else { self.views.holds(node) };
        if !held && inodes.remove(&node).is_some() {
            gated.gate.forget(node.0);
        }
    }

    /// The rules of these are others by now.
    pub(super) fn stale(&self, nodes: Vec<NodeId>) {
        let Some(gated) = self.gated.get() else { return };
        let mut inodes = gated.inodes.lock();
        for node in nodes {
            inodes.insert(node, u32::MAX);
            if gated.gate.stale(node.0).is_err() {
                tracing::error!("no room in the kernel for rules; an inode is checked by old ones");
            }
        }
    }

    /// Directories go on by the new rules; classes of the old ones end.
    pub(super) fn regate(&self) {
        let Some(gated) = self.gated.get() else { return };
        let mut nodes = Vec::new();
        self.mirror.lower.for_each_node(|node| nodes.push(node));
        for node in nodes {
            let is_dir =
                self.mirror.lower.kind(node).is_ok_and(|kind| kind == rustix::fs::FileType::Directory);
            if is_dir && let Ok(spot) = self.dir_spot(node) {
                let _ = self.note(node, &spot.class);
            }
        }
        let rules = self.rules();
        let mut tables = gated.tables.lock();
        let root = rules.policy.root().class();
        tables.numbers.retain(|class, number| {
            let keep = class.is_akin(&root);
            if let (false, Some(number)) = (keep, *number) {
                gated.gate.end_class(number);
            }
            keep
        });
    }

    /// How long attributes are believed of a file that is told by an id of its own.
    pub(super) fn of_view(&self, inner: NodeId, expiry: Expiry) -> Expiry {
        let alone = self.mirror.cache == CacheMode::Exclusive && !self.views.is_several(inner);
        if alone { expiry } else { expiry.min(SEVERAL) }
    }
}
