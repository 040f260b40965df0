//! A mirror by rules: who sees and does what.
//!
//! The rules are [`shunt_policy`]'s. What is decided when a name is looked up (whether it is there, and whether all of
//! the file is seen) and when a file is opened (whether it may be read or written) holds as long as it is open; reads
//! and writes of what needs no further checks go past the daemon as ever.
//!
//! # Under caching
//!
//! The kernel's names and inodes are shared by all users. A name whose meaning depends on the caller or on the contents
//! of the file is never cached, not even its absence, and listings tell it without its inode; every other name is cached
//! as the mirror caches it. Who sees less of a file sees another inode: [`policy_inodes`] tells how. An open is always asked for,
//! and decides again by whoever opens; one that comes by a name whose meaning changed is answered ESTALE, on which the
//! kernel looks the name up once more.
//!
//! # Names
//!
//! A rule speaks of paths, and a path is that of the directory where a name was looked up, as it is at that moment. What
//! would lose its rules by another name keeps its name: such renames and links fail with EXDEV, on which programs copy,
//! by reading what the caller may read. So do renames of directories between places that rules tell apart.

mod audit;
mod caller;
mod content;
mod decide;
mod fuse_ops;
mod grafts;
mod kernel_enforcer;
mod lease;
mod listing;
mod places;
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
use shunt_policy::Policy;

use crate::{Mirror, MirrorError, MirrorOptions};
pub use audit::AuditLog;
use grafts::Grafts;
use kernel_enforcer::Gated;
pub use kernel_enforcer::KernelEnforcer;
pub use lease::{Lease, Leases};
use places::Places;
use policy_inodes::Views;
use programs::Programs;
use redacted::RedactedFiles;
use spellings::Undecided;

/// How long the kernel believes attributes of a file that it may know by several inodes.
const SEVERAL: Expiry = Expiry::after(Duration::from_secs(1));

/// The first protocol that can expire every name at once.
const EXPIRES_ALL: u32 = 44;

/// Rules in force.
struct Rules {
    policy: Policy,
    generation: u64,
    places: Places,
}

/// A [`Mirror`] by rules.
pub struct PolicyFs {
    mirror: Mirror,
    rules: RwLock<Arc<Rules>>,
    views: Views,
    programs: Programs,
    redacted: RedactedFiles,
    gated: OnceLock<Gated>,
    /// Why the kernel checks nothing.
    unguarded: OnceLock<String>,
    grafts: Grafts,
    /// What tells another daemon of the policy in force.
    origin: Mutex<Vec<u8>>,
    /// Without links in it.
    source: PathBuf,
    audit: AuditLog,
    session: OnceLock<Handle>,
    expires_all: AtomicBool,
    undecided: Undecided,
}

impl PolicyFs {
    /// Opens the source. `origin` is what another daemon is to be told of the policy, should it [go on](Self::resume).
    ///
    /// # Errors
    /// As [`Mirror::open`].
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
            rules: RwLock::new(Arc::new(Rules { policy, generation: 0, places: Places::default() })),
            views: Views::default(),
            programs,
            redacted: RedactedFiles::default(),
            gated: OnceLock::new(),
            unguarded: OnceLock::new(),
            grafts: Grafts::default(),
            origin: Mutex::new(origin),
            source,
            audit,
            session: OnceLock::new(),
            expires_all: AtomicBool::new(false),
            undecided: Undecided::default(),
        }
    }

    /// The mirror below the rules.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// What a session asks of the kernel.
    pub fn config(&self) -> Config {
        // A file handle names an inode, not the path by which rules speak of it.
        // Targets of links are not cached: who may read one, and who not, is decided each time.
        self.mirror.config().without(Capabilities::EXPORT_SUPPORT | Capabilities::CACHE_SYMLINKS)
    }

    /// Puts other rules in force. Files that are open stay open as they are. Not to be called by a thread that serves the
    /// mount. `origin` is as in [`open`](Self::open).
    ///
    /// # Errors
    /// Opens are checked in the kernel alone, which cannot check these rules; one line.
    pub fn reload(&self, policy: Policy, origin: Vec<u8>) -> Result<(), &'static str> {
        if (self.opens_unasked() || self.believes_names()) && !policy.has_tables() {
            return Err(
                "the kernel checks this mount by itself, and cannot check all of these rules: mount \
                        again, or with `--lsm off`",
            );
        }
        self.programs.refresh(&policy);
        {
            let mut rules = self.rules.write();
            self.set_unsettled(true);
            let (generation, nodes) = self.views.retire_all();
            // From here on nothing is known to the next daemon by the old rules.
            *self.origin.lock() = origin;
            self.hold_origin();
            *rules = Arc::new(Rules { policy, generation, places: Places::default() });
            self.stale(nodes);
        }
        self.regate();
        if let Some(session) = self.session.get() {
            // Until it is so: it takes grafts away, which are put back then.
            session.caches().invalidate_all().wait().ok();
        }
        self.set_unsettled(false);
        Ok(())
    }

    /// Operations of which rules want a decision told fail with EIO when it cannot be written to the audit log.
    pub fn require_audit(&mut self) {
        self.audit.require();
    }

    /// Resolves the paths of programs in the rules again. Not to be called by a thread that serves the mount.
    pub fn refresh_programs(&self) {
        let policy = self.rules().policy.clone();
        self.programs.refresh(&policy);
    }

    /// Rules in force.
    pub fn rule_count(&self) -> usize {
        self.rules().policy.rules().len()
    }

    /// Files noted for the rules that speak of them, or because none does.
    pub fn noted(&self) -> usize {
        self.views.len()
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }

    /// How long a name is believed. Where not all can be expired when the rules change, not for long, unless each use of
    /// it is checked.
    fn bounded(&self, expiry: Expiry) -> Expiry {
        let expires_all = self.expires_all.load(Ordering::Relaxed);
        if expires_all || self.believes_names() { expiry } else { expiry.min(SEVERAL) }
    }

    /// Whether names are believed for ever on a kernel that cannot expire them all, as it checks what they lead to.
    fn believes_names(&self) -> bool {
        let expires_all = self.expires_all.load(Ordering::Relaxed);
        !expires_all && self.gated.get().is_some() && self.rules().policy.has_tables()
    }
}

impl std::fmt::Debug for PolicyFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyFs").field("mirror", &self.mirror).finish_non_exhaustive()
    }
}
