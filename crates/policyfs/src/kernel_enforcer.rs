//! Enforcement of rules in the kernel.
//!
//! Rules that depend on user and group alone ([`RuleSet::table`]) can be checked where the kernel checks permissions.
//! The check follows the name lookup, so names that some callers do not see can be cached for all callers. Where the
//! kernel also keeps all pages itself, opens need no request either. A [`KernelEnforcer`] does the checks; it learns of
//! an inode before the kernel does.
//!
//! A change that a table refuses makes no request. The kernel cannot know the rules of a new name, only whether the rules
//! of its directory refuse every name alike. All other changes and listings reach the daemon, which checks them as well.

use std::collections::HashMap;
use std::io;

use parking_lot::Mutex;
use shunt_fuse::{Errno, Expiry, NodeId};
use shunt_mirror::CacheMode;
use shunt_policy::{ChildRules, RuleSet, Table};

use crate::decide::ResolvedName;
use crate::{PolicyFs, SHARED_FILE_ATTR_TTL};

/// Limit on the classes of directories that refuse new names: they save requests, and must leave room in the kernel's table of
/// 65,536 classes for those that rules need.
const MAX_DIRECTORY_CLASSES: usize = 8192;

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
    /// Directories with the same rules have another class if the rules of new names in them differ.
    directory_numbers: HashMap<(RuleSet, ChildRules), Option<u32>>,
    last: u32,
}

/// An enforcer with the state that was passed to it.
pub(crate) struct EnforcerState {
    enforcer: Box<dyn KernelEnforcer>,
    tables: Mutex<Tables>,
    /// The inodes it knows, with their classes. Locked while it is updated, and while forgotten inodes are checked.
    inodes: Mutex<HashMap<NodeId, u32>>,
    /// The kernel opens files without a request.
    opens_in_kernel: bool,
}

impl EnforcerState {
    /// Returns the number of a class, or `None` if the kernel cannot check it.
    fn number(&self, class: &RuleSet) -> Option<u32> {
        let mut tables = self.tables.lock();
        if let Some(number) = tables.numbers.get(class) {
            return *number;
        }
        let number = class.table().and_then(|table| self.define(&mut tables, &table));
        tables.numbers.insert(class.clone(), number);
        number
    }

    /// Like [`number`](Self::number); also `None` for a class without rules, which needs no check.
    fn number_if_ruled(&self, class: &RuleSet) -> Option<u32> {
        if class.is_free() { None } else { self.number(class) }
    }

    /// Returns the number of the class of a directory in which the creation of names is refused, or `None` if the kernel
    /// cannot refuse it to anybody.
    fn directory_number(&self, class: &RuleSet, children: ChildRules) -> Option<u32> {
        if children.is_free() {
            return None;
        }
        let key = (class.clone(), children);
        let mut tables = self.tables.lock();
        if let Some(number) = tables.directory_numbers.get(&key) {
            return *number;
        }
        let table = class.directory_table(&key.1).filter(Table::refuses_creation);
        let is_full = tables.directory_numbers.len() >= MAX_DIRECTORY_CLASSES;
        if is_full && table.is_some() {
            return None;
        }
        let number = table.and_then(|table| self.define(&mut tables, &table));
        tables.directory_numbers.insert(key, number);
        number
    }

    fn define(&self, tables: &mut Tables, table: &Table) -> Option<u32> {
        let number = tables.last.checked_add(1).filter(|number| *number != u32::MAX)?;
        self.enforcer.class(number, table).ok()?;
        tables.last = number;
        Some(number)
    }
}

impl PolicyFs {
    /// Installs the kernel enforcer, or records why there is none. Must be called once, after the enforcer is attached
    /// to this mount and before the mount is used.
    pub fn set_kernel_enforcer(&self, enforcer: Result<Box<dyn KernelEnforcer>, String>) {
        let enforcer = match enforcer {
            Ok(enforcer) => enforcer,
            Err(reason) => return drop(self.enforcer_error.set(reason)),
        };
        let session = self.session.get();
        self.mirror.set_always_opens(!self.rules().policy.has_tables());
        let opens_in_kernel = session.is_some_and(|session| self.mirror.serves_without_open(session));
        if !opens_in_kernel {
            self.mirror.set_always_opens(true);
        }
        let state =
            EnforcerState { enforcer, tables: Mutex::default(), inodes: Mutex::default(), opens_in_kernel };
        if self.enforcer.set(state).is_ok() {
            // The kernel cached its current names and inodes before the enforcer knew of them.
            let policy = self.rules().policy.clone();
            let origin = self.origin.lock().clone();
            let _ = self.reload(policy, origin);
        }
    }

    /// Describes where the rules are enforced.
    pub fn checks(&self) -> String {
        match (self.enforcer.get(), self.enforcer_error.get()) {
            (Some(state), _) if state.opens_in_kernel => "enforced in the kernel, including opens".to_owned(),
            (Some(_), _) => "enforced in the kernel where user and group decide".to_owned(),
            (None, Some(reason)) => format!("enforced by the daemon: {reason}"),
            (None, None) => "enforced by the daemon".to_owned(),
        }
    }

    /// Reports whether the kernel opens files without a request.
    pub(crate) fn opens_in_kernel(&self) -> bool {
        self.enforcer.get().is_some_and(|state| state.opens_in_kernel)
    }

    /// Reports whether the kernel checks the rules of a class.
    pub(crate) fn is_enforced(&self, class: &RuleSet) -> bool {
        self.enforcer.get().is_some_and(|state| class.is_free() || state.number(class).is_some())
    }

    /// Registers a file with the enforcer. Called before the kernel receives the inode.
    ///
    /// # Errors
    /// ENFILE if the table is full.
    pub(crate) fn register(&self, node: NodeId, class: &RuleSet) -> Result<(), Errno> {
        let Some(state) = self.enforcer.get() else { return Ok(()) };
        Self::assign(state, node, class, state.number_if_ruled(class))
    }

    /// Registers a directory with the enforcer. Called before the kernel receives the inode.
    ///
    /// # Errors
    /// ENFILE if the table is full.
    pub(crate) fn register_dir(&self, node: NodeId, resolved: &ResolvedName) -> Result<(), Errno> {
        let Some(state) = self.enforcer.get() else { return Ok(()) };
        let class = &resolved.class;
        let number = state
            .directory_number(class, resolved.state.child_rules())
            // The daemon refuses every name in a directory that ignores case, with another error.
            .filter(|_| self.is_spelled_once(&resolved.state, node));
        Self::assign(state, node, class, number.or_else(|| state.number_if_ruled(class)))
    }

    fn assign(
        state: &EnforcerState,
        node: NodeId,
        class: &RuleSet,
        number: Option<u32>,
    ) -> Result<(), Errno> {
        let mut inodes = state.inodes.lock();
        // The daemon checks the class as well, so the inode can do without the kernel check.
        let needed = !class.is_free() && (state.opens_in_kernel || !class.is_name_constant());
        match number {
            Some(number) if inodes.get(&node) == Some(&number) => {}
            Some(number) => match state.enforcer.inode(node.0, number) {
                Ok(()) => _ = inodes.insert(node, number),
                Err(_) if needed => return Err(Errno::NFILE),
                // The rules of before must not stay in force.
                Err(_) if inodes.remove(&node).is_some() => state.enforcer.forget(node.0),
                Err(_) => {}
            },
            None if state.opens_in_kernel && !class.is_free() => return Err(Errno::NFILE),
            None if inodes.remove(&node).is_some() => state.enforcer.forget(node.0),
            None => {}
        }
        Ok(())
    }

    /// Removes an inode from the enforcer if the kernel dropped its last reference.
    pub(crate) fn unregister(&self, node: NodeId, inner: NodeId) {
        let Some(state) = self.enforcer.get() else { return };
        let mut inodes = state.inodes.lock();
        let is_referenced =
            if node == inner { self.mirror.engine().holds(inner) } else { self.views.holds(node) };
        if !is_referenced && inodes.remove(&node).is_some() {
            state.enforcer.forget(node.0);
        }
    }

    /// Marks nodes whose rules changed.
    pub(crate) fn stale(&self, nodes: Vec<NodeId>) {
        let Some(state) = self.enforcer.get() else { return };
        let mut inodes = state.inodes.lock();
        for node in nodes {
            inodes.insert(node, u32::MAX);
            if state.enforcer.stale(node.0).is_err() {
                tracing::error!(
                    "cannot mark inode {} as stale in the kernel enforcer: its table is full; the kernel applies the \
                     previous rules to it: mount again, or use fewer rules",
                    node.0
                );
            }
        }
    }

    /// Registers directories under the new rules and removes the classes of the old ones.
    pub(crate) fn register_all(&self) {
        let Some(state) = self.enforcer.get() else { return };
        let mut nodes = Vec::new();
        self.mirror.engine().for_each_node(|node| nodes.push(node));
        for node in nodes {
            let is_dir =
                self.mirror.engine().kind(node).is_ok_and(|kind| kind == rustix::fs::FileType::Directory);
            if is_dir && let Ok(resolved) = self.resolve_dir(node) {
                let _ = self.register_dir(node, &resolved);
            }
        }
        let rules = self.rules();
        let root = rules.policy.root().class();
        let keep = |class: &RuleSet, number: Option<u32>| {
            let keep = class.is_akin(&root);
            if let (false, Some(number)) = (keep, number) {
                state.enforcer.end_class(number);
            }
            keep
        };
        let mut tables = state.tables.lock();
        tables.numbers.retain(|class, number| keep(class, *number));
        tables.directory_numbers.retain(|(class, _), number| keep(class, *number));
    }

    /// Returns the attribute expiry of a file that the kernel knows by a node id of its own.
    pub(crate) fn of_view(&self, inner: NodeId, expiry: Expiry) -> Expiry {
        let alone = self.mirror.caching().mode == CacheMode::Exclusive && !self.views.is_several(inner);
        if alone { expiry } else { expiry.min(SHARED_FILE_ATTR_TTL) }
    }
}
