//! A mirror with an access policy: rules decide which caller sees and does what.
//!
//! The rules are [`shunt_policy`]'s. Visibility and redaction are decided when a name is looked up, read and write
//! access when a file is opened. The decision of an open holds as long as the file is open. Reads and writes that need
//! no further checks still use passthrough.
//!
//! # Caching
//!
//! All users share the kernel's dentries and inodes. A name whose meaning depends on the caller or on the contents of
//! the file is never cached, not even as a negative entry, and listings omit its inode. All other names are cached as
//! the mirror caches them. A caller with a redacted view of a file gets a different inode: see `policy_inodes`. Every
//! open sends a request, which decides again for its caller. If the meaning of the name changed since, the reply is
//! ESTALE and the kernel repeats the lookup.
//!
//! # Names
//!
//! A rule matches paths. The path of a name is that of the directory in which it was looked up, at that moment. A
//! rename or link that would free a file from its rules fails with EXDEV; programs then copy by reading what the caller
//! may read. Renames of directories between parents with different rules fail likewise.

mod audit;
mod caller;
mod content;
mod decide;
mod fuse_ops;
mod grafts;
mod kernel_enforcer;
mod lease;
mod listing;
mod match_states;
mod policy_inodes;
mod programs;
mod records;
mod redacted;
mod renames;
mod spellings;
mod takeover;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use shunt_fuse::{Capabilities, Config, Expiry, Handle};
use shunt_mirror::{Mirror, MirrorError, MirrorOptions};
use shunt_policy::Policy;

pub use audit::AuditLog;
use grafts::Grafts;
use kernel_enforcer::EnforcerState;
pub use kernel_enforcer::KernelEnforcer;
pub use lease::{Lease, Leases};
use match_states::MatchStates;
use policy_inodes::Views;
use programs::Programs;
use redacted::RedactedFiles;
use spellings::AmbiguousDirs;

/// Attribute cache lifetime of a file that the kernel may know by several inodes.
const SHARED_FILE_ATTR_TTL: Expiry = Expiry::after(Duration::from_secs(1));

/// The policy in force, with its generation.
struct Rules {
    policy: Policy,
    generation: u64,
    match_states: MatchStates,
}

/// A [`Mirror`] filtered by a policy.
pub struct PolicyFs {
    mirror: Mirror,
    rules: RwLock<Arc<Rules>>,
    views: Views,
    programs: Programs,
    redacted: RedactedFiles,
    enforcer: OnceLock<EnforcerState>,
    /// The reason why the kernel checks no rules.
    enforcer_error: OnceLock<String>,
    grafts: Grafts,
    /// Serialised origin of the policy in force, for a daemon that takes over.
    origin: Mutex<Vec<u8>>,
    /// The source path with symbolic links resolved.
    source: PathBuf,
    audit: AuditLog,
    session: OnceLock<Handle>,
    expires_all: AtomicBool,
    ambiguous_dirs: AmbiguousDirs,
}

impl PolicyFs {
    /// Opens the source. `origin` describes the policy to a daemon that [takes over](Self::resume).
    ///
    /// # Errors
    /// The errors of [`Mirror::open`].
    pub fn open(
        options: MirrorOptions,
        policy: Policy,
        origin: Vec<u8>,
        audit: AuditLog,
    ) -> Result<Self, MirrorError> {
        let source = std::fs::canonicalize(&options.source).unwrap_or_else(|_| options.source.clone());
        let mirror = Mirror::open(MirrorOptions { always_opens: true, ..options })?;
        let programs = Programs::default();
        programs.refresh(&policy);
        Ok(Self::new(mirror, source, policy, origin, audit, programs))
    }

    fn new(
        mirror: Mirror,
        source: PathBuf,
        policy: Policy,
        origin: Vec<u8>,
        audit: AuditLog,
        programs: Programs,
    ) -> Self {
        Self {
            mirror,
            rules: RwLock::new(Arc::new(Rules {
                policy,
                generation: 0,
                match_states: MatchStates::default(),
            })),
            views: Views::default(),
            programs,
            redacted: RedactedFiles::default(),
            enforcer: OnceLock::new(),
            enforcer_error: OnceLock::new(),
            grafts: Grafts::default(),
            origin: Mutex::new(origin),
            source,
            audit,
            session: OnceLock::new(),
            expires_all: AtomicBool::new(false),
            ambiguous_dirs: AmbiguousDirs::default(),
        }
    }

    /// The mirror below the policy.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The capabilities and settings that a session requests from the kernel.
    pub fn config(&self) -> Config {
        // No EXPORT_SUPPORT: a file handle names an inode, not the path that rules match. No CACHE_SYMLINKS: each read
        // of a link target is checked against the caller's permission.
        self.mirror.config().without(Capabilities::EXPORT_SUPPORT | Capabilities::CACHE_SYMLINKS)
    }

    /// Replaces the policy. Open files stay open under their old decisions. A thread that serves the mount must not
    /// call this. `origin` is as in [`open`](Self::open).
    ///
    /// # Errors
    /// Opens are checked in the kernel alone, which cannot check these rules; one line.
    pub fn reload(&self, policy: Policy, origin: Vec<u8>) -> Result<(), &'static str> {
        if (self.opens_in_kernel() || self.caches_names_forever()) && !policy.has_tables() {
            return Err(
                "the kernel alone checks this mount and cannot check all of these rules; mount again, or with `--lsm off`",
            );
        }
        self.programs.refresh(&policy);
        {
            let mut rules = self.rules.write();
            self.set_unsettled(true);
            let (generation, nodes) = self.views.retire_all();
            // From here on the next daemon finds nothing recorded under the old rules.
            *self.origin.lock() = origin;
            self.hold_origin();
            *rules = Arc::new(Rules { policy, generation, match_states: MatchStates::default() });
            self.stale(nodes);
        }
        self.register_all();
        if let Some(session) = self.session.get() {
            // Waits for completion. The expiry detaches grafts, which are mounted again later.
            session.caches().invalidate_all().wait().ok();
        }
        self.set_unsettled(false);
        Ok(())
    }

    /// Makes operations that rules want audited fail with EIO if the audit log cannot be written.
    pub fn require_audit(&mut self) {
        self.audit.require();
    }

    /// Resolves the program paths of the rules again. A thread that serves the mount must not call this.
    pub fn refresh_programs(&self) {
        let policy = self.rules().policy.clone();
        self.programs.refresh(&policy);
    }

    /// Number of rules in force.
    pub fn rule_count(&self) -> usize {
        self.rules().policy.rules().len()
    }

    /// Number of inodes tracked under the policy, with or without rules.
    pub fn noted(&self) -> usize {
        self.views.len()
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }

    /// Limits the cache lifetime of a name. It is short if the kernel cannot expire all names when the rules change,
    /// unless the kernel checks each use.
    fn bounded(&self, expiry: Expiry) -> Expiry {
        let expires_all = self.expires_all.load(Ordering::Relaxed);
        if expires_all || self.caches_names_forever() { expiry } else { expiry.min(SHARED_FILE_ATTR_TTL) }
    }

    /// Reports whether names are cached without expiry on a kernel that cannot expire them all, because the kernel checks the
    /// inodes that they lead to.
    fn caches_names_forever(&self) -> bool {
        let expires_all = self.expires_all.load(Ordering::Relaxed);
        !expires_all && self.enforcer.get().is_some() && self.rules().policy.has_tables()
    }
}

impl std::fmt::Debug for PolicyFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyFs").field("mirror", &self.mirror).finish_non_exhaustive()
    }
}
