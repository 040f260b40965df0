//! Enforcement of rules in the kernel.
//!
//! Rules that depend on user and group alone ([`RuleSet::table`]) can be checked where the kernel checks permissions.
//! The check follows the name lookup, so names that some callers do not see can be cached for all callers. Where the
//! kernel also keeps all pages itself, opens need no request either. A [`KernelEnforcer`] does the checks; it learns of
//! an inode before the kernel does.
//!
//! Requests that change something and listings still reach the daemon, which checks them as well.

use std::collections::HashMap;
use std::io;

use parking_lot::Mutex;
use shunt_fuse::{Errno, Expiry, NodeId};
use shunt_mirror::CacheMode;
use shunt_policy::{RuleSet, Table};

use crate::{PolicyFs, SEVERAL};

/// An in-kernel policy check.
pub trait KernelEnforcer: Send + Sync {
    /// Defines a class, which inodes may have from now on. 0 and the largest number are not used for classes.
    ///
    /// # Errors
    /// The table is full.
    fn class(&self, number: u32, table: &Table) -> io::Result<()>;

    /// Removes a class that no inode has any more.
    fn end_class(&self, number: u32);

    /// Assigns a class to an inode.
    ///
    /// # Errors
    /// The table is full.
    fn inode(&self, node: u64, class: u32) -> io::Result<()>;

    /// Marks an inode whose rules changed: callers that reach it by a cached name look it up again.
    ///
    /// # Errors
    /// The table is full.
    fn stale(&self, node: u64) -> io::Result<()>;

    /// Removes an inode that no rule matches, or that the kernel forgot.
    fn forget(&self, node: u64);
}

#[derive(Default)]
struct Tables {
    numbers: HashMap<RuleSet, Option<u32>>,
    last: u32,
}

/// An enforcer with the state that was passed to it.
pub(crate) struct Gated {
    gate: Box<dyn KernelEnforcer>,
    tables: Mutex<Tables>,
    /// The inodes it knows, with their classes. Locked while it is updated, and while forgotten inodes are checked.
    inodes: Mutex<HashMap<NodeId, u32>>,
    /// The kernel opens files without a request.
    unasked: bool,
}

impl Gated {
    /// Returns the number of a class, or `None` if the kernel cannot check it.
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
    /// Installs the kernel enforcer, or records why there is none. Must be called once, after the enforcer is attached
    /// to this mount and before the mount is used.
    pub fn guard(&self, gate: Result<Box<dyn KernelEnforcer>, String>) {
        let gate = match gate {
            Ok(gate) => gate,
            Err(reason) => return drop(self.unguarded.set(reason)),
        };
        let session = self.session.get();
        self.mirror.set_always_opens(!self.rules().policy.has_tables());
        let unasked = session.is_some_and(|session| self.mirror.serves_without_open(session));
        if !unasked {
            self.mirror.set_always_opens(true);
        }
        let gated = Gated { gate, tables: Mutex::default(), inodes: Mutex::default(), unasked };
        if self.gated.set(gated).is_ok() {
            // The kernel cached its current names and inodes before the enforcer knew of them.
            let policy = self.rules().policy.clone();
            let origin = self.origin.lock().clone();
            let _ = self.reload(policy, origin);
        }
    }

    /// Describes where the rules are checked.
    pub fn checks(&self) -> String {
        match (self.gated.get(), self.unguarded.get()) {
            (Some(gated), _) if gated.unasked => "checked in the kernel, opens too".to_owned(),
            (Some(_), _) => "checked in the kernel where user and group decide".to_owned(),
            (None, Some(reason)) => format!("checked by the daemon: {reason}"),
            (None, None) => "checked by the daemon".to_owned(),
        }
    }

    /// Reports whether the kernel opens files without a request.
    pub(crate) fn opens_unasked(&self) -> bool {
        self.gated.get().is_some_and(|gated| gated.unasked)
    }

    /// Reports whether the kernel checks the rules of a class.
    pub(crate) fn is_gated(&self, class: &RuleSet) -> bool {
        self.gated.get().is_some_and(|gated| class.is_free() || gated.number(class).is_some())
    }

    /// Registers an inode with the enforcer. Called before the kernel receives the inode.
    ///
    /// # Errors
    /// ENFILE if the table is full.
    pub(crate) fn note(&self, node: NodeId, class: &RuleSet) -> Result<(), Errno> {
        let Some(gated) = self.gated.get() else { return Ok(()) };
        let mut inodes = gated.inodes.lock();
        let number = if class.is_free() { None } else { gated.number(class) };
        // The daemon checks the class as well, so the inode can do without the kernel check.
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

    /// Removes an inode from the enforcer if the kernel dropped its last reference.
    pub(crate) fn unnote(&self, node: NodeId, inner: NodeId) {
        let Some(gated) = self.gated.get() else { return };
        let mut inodes = gated.inodes.lock();
        let held = if node == inner { self.mirror.engine().holds(inner) } else { self.views.holds(node) };
        if !held && inodes.remove(&node).is_some() {
            gated.gate.forget(node.0);
        }
    }

    /// Marks nodes whose rules changed.
    pub(crate) fn stale(&self, nodes: Vec<NodeId>) {
        let Some(gated) = self.gated.get() else { return };
        let mut inodes = gated.inodes.lock();
        for node in nodes {
            inodes.insert(node, u32::MAX);
            if gated.gate.stale(node.0).is_err() {
                tracing::error!(
                    "cannot mark an inode in the kernel: the table of rules is full; the kernel checks it by the old rules"
                );
            }
        }
    }

    /// Registers directories under the new rules and removes the classes of the old ones.
    pub(crate) fn regate(&self) {
        let Some(gated) = self.gated.get() else { return };
        let mut nodes = Vec::new();
        self.mirror.engine().for_each_node(|node| nodes.push(node));
        for node in nodes {
            let is_dir =
                self.mirror.engine().kind(node).is_ok_and(|kind| kind == rustix::fs::FileType::Directory);
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

    /// Returns the attribute expiry of a file that the kernel knows by a node id of its own.
    pub(crate) fn of_view(&self, inner: NodeId, expiry: Expiry) -> Expiry {
        let alone = self.mirror.caching().mode == CacheMode::Exclusive && !self.views.is_several(inner);
        if alone { expiry } else { expiry.min(SEVERAL) }
    }
}
