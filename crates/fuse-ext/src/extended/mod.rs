//! A wrapper around a file system that stores its replies in tables, from which a BPF program replies in the kernel. Every
//! invalidation of the kernel's caches invalidates the tables too. Without the program, the file system works as before.

mod delegate;
#[cfg(feature = "bpf")]
mod earlier;
mod handles;
mod open;
mod open_cache;
mod publish;

use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use shunt_fuse::{Created, Entry, Expiry, FileSystem, Invalidated, NodeId};

use crate::builtin::Tables;
#[cfg(feature = "bpf")]
pub use earlier::EarlierProgram;
use open::OpenNodes;
use open_cache::OpenCache;

/// The settings of an extended file system.
#[derive(Debug, Clone)]
pub struct Extension {
    /// The program, [`builtin::PROGRAM`](crate::builtin::PROGRAM) or another one; or the reason why there is none.
    pub program: Result<Vec<u8>, String>,
    /// Extended attributes change by requests of this mount only, or the file system invalidates the node when they change.
    /// [`Extended::with_cacheable_nodes`] limits this to single nodes.
    pub xattrs: bool,
    /// A file that was passed through at an open may be opened again for reading, by the program, without asking the daemon. Only
    /// for file systems that use passthrough whenever they can: the kernel refuses opens of one inode in different modes.
    pub opens: bool,
    /// The effect of reading a passed-through file on its access time.
    pub access_times: AccessTimes,
    /// Replies with at least this cache time are stored until they change. Set it below [`Expiry::FOREVER`] for a file system
    /// that reports every change and uses finite cache times only in case the kernel misses a notification: the tables miss none.
    /// It is also the kernel's cache time for the program's replies.
    pub lasting: Expiry,
    /// Disables the kernel's own cache of names and attributes, so that it asks every time. For programs whose replies depend on
    /// the caller, and for measurements.
    pub no_kernel_cache: bool,
}

/// How reads that bypass the daemon change access times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessTimes {
    /// Each read may change it.
    Moved,
    /// By the rule of relatime (`mount(8)`), or never.
    Loosely,
    /// Never.
    Unmoved,
}

/// A file system with a program in the kernel that replies before it.
///
/// Replies of `F` that the kernel may cache ([`Expiry`]) are stored for the program with the same expiry; names only where they
/// are [`lasting`](Extension::lasting). A stored reply is valid until it expires, a request of this mount changes it, or `F`
/// invalidates it ([`Caches`](shunt_fuse::Caches)). Where the program cannot be attached (no module, no privilege, another
/// kernel), a log line reports it and `F` answers every request.
#[derive(Debug)]
pub struct Extended<F> {
    inner: Arc<F>,
    extension: Extension,
    shared: Arc<SharedTables>,
    is_cacheable: fn(&F, NodeId) -> bool,
    /// The reason why no program is attached, if there is none.
    refusal: Mutex<Option<String>>,
    #[cfg(feature = "bpf")]
    program: Mutex<Option<crate::program::Program>>,
    #[cfg(feature = "bpf")]
    earlier: Mutex<EarlierProgram>,
}

/// State shared with the invalidation listener.
#[derive(Debug, Default)]
struct SharedTables {
    tables: RwLock<Option<Arc<Tables>>>,
    opens: OpenNodes,
    open_cache: OpenCache,
}

impl SharedTables {
    fn tables(&self) -> Option<Arc<Tables>> {
        self.tables.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn set_tables(&self, tables: Option<Arc<Tables>>) {
        self.open_cache.attach(tables.clone());
        *self.tables.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = tables;
    }

    /// Processes an invalidation.
    fn invalidate(&self, stale: Invalidated<'_>) {
        let tables = self.tables();
        let change = |what: &dyn Fn(&Tables)| tables.iter().for_each(|tables| what(tables));
        match stale {
            Invalidated::Name(parent, name) => change(&|tables| tables.name_changed(parent, name)),
            Invalidated::Node(node) => {
                change(&|tables| tables.node_changed(node));
                // The file may have been removed: an open backing file would keep its space allocated.
                self.open_cache.evict(node);
            }
            Invalidated::Everything => {
                change(&Tables::all_changed);
                self.open_cache.evict_all();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<F: FileSystem> Extended<F> {
    /// Wraps `inner`.
    pub fn new(inner: impl Into<Arc<F>>, extension: Extension) -> Self {
        Self {
            inner: inner.into(),
            extension,
            shared: Arc::default(),
            is_cacheable: |_, _| true,
            refusal: Mutex::default(),
            #[cfg(feature = "bpf")]
            program: Mutex::default(),
            #[cfg(feature = "bpf")]
            earlier: Mutex::default(),
        }
    }

    /// Continues after the program of an earlier daemon.
    #[cfg(feature = "bpf")]
    pub fn resuming(mut self, earlier: EarlierProgram) -> Self {
        self.earlier = Mutex::new(earlier);
        self
    }

    /// Limits [`Extension::xattrs`] and [`Extension::opens`] to the nodes for which `is_cacheable` returns true, called each time.
    pub fn with_cacheable_nodes(mut self, is_cacheable: fn(&F, NodeId) -> bool) -> Self {
        self.is_cacheable = is_cacheable;
        self
    }

    /// Returns the inner file system.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// Returns the tables, where a program is attached: for a file system that stores additional entries.
    pub fn tables(&self) -> Option<Arc<Tables>> {
        self.shared.tables()
    }

    /// Returns the reason why no program is attached, if there is none.
    pub fn refusal(&self) -> Option<String> {
        lock(&self.refusal).clone()
    }

    /// Returns the number of backing files kept for opens by the program.
    pub fn known_files(&self) -> usize {
        self.shared.open_cache.len()
    }

    fn refused(&self, reason: String) {
        tracing::warn!("no extension in the kernel: {reason}");
        *lock(&self.refusal) = Some(reason);
    }

    /// Registers the listener that invalidates the tables together with the kernel's caches.
    fn listen(&self, session: &shunt_fuse::Handle) {
        let learnt = Arc::downgrade(&self.shared);
        session.caches().listen(move |stale| {
            if let Some(learnt) = learnt.upgrade() {
                learnt.invalidate(stale);
            }
        });
    }

    /// Attaches the program; called at the start of a session. May be called again only after [`detach`](Self::detach).
    #[cfg(feature = "bpf")]
    pub fn attach(&self, session: &shunt_fuse::Handle) {
        use crate::builtin::Validity;
        use crate::program::{Maps, Program};

        let validity = match self.extension.no_kernel_cache {
            true => Validity::NONE,
            false => Validity::all(self.extension.lasting.time().as_secs()),
        };
        let prepare = |maps: &Maps<'_>| {
            // A program may not use the tables, and only refuse requests or pass them on.
            let tables = match maps.has("attrs") {
                true => Some(Arc::new(Tables::new(|name, words| maps.memory(name, words))?)),
                false => None,
            };
            if let Some(tables) = &tables {
                tables.set_validity(validity);
            }
            Ok(tables)
        };
        let mut earlier = lock(&self.earlier);
        let inheritance = earlier.inheritance();
        let attached = match &self.extension.program {
            Ok(program) => Program::attach_after(inheritance, program, session.device(), prepare)
                .map_err(|error| error.to_string()),
            Err(reason) => {
                drop(inheritance);
                Err(reason.clone())
            }
        };
        match attached {
            Ok((program, tables)) => {
                earlier.remember(&program, session);
                self.shared.set_tables(tables);
                *lock(&self.program) = Some(program);
                *lock(&self.refusal) = None;
                tracing::info!("extension attached: the kernel answers requests");
            }
            Err(reason) => {
                // The earlier program was detached.
                match earlier.counts() {
                    Some(Ok(counts)) => self.shared.open_cache.set_counts(counts),
                    Some(Err(error)) => tracing::warn!(
                        "cannot read how many files the earlier extension has open: their backing files are kept ({error})"
                    ),
                    None => {}
                }
                self.refused(reason);
            }
        }
    }

    /// Replaces the running program by another one, which continues with the same tables.
    ///
    /// # Errors
    /// The error of loading or attaching the new program; the old program stays attached.
    #[cfg(feature = "bpf")]
    pub fn replace(
        &self,
        elf: &[u8],
        session: &shunt_fuse::Handle,
    ) -> Result<(), crate::program::ProgramError> {
        lock(&self.program).as_mut().map_or(Ok(()), |program| program.replace(elf, session.device()))
    }

    /// Detaches the program and attaches it again without reloading it, for tests that need many such transitions: loading costs
    /// the kernel much more than everything else.
    ///
    /// # Errors
    /// The error of attaching; the program is then detached.
    #[doc(hidden)]
    #[cfg(feature = "bpf")]
    pub fn put_back(&self) -> Result<(), crate::program::ProgramError> {
        lock(&self.program).as_mut().map_or(Ok(()), crate::program::Program::put_back)
    }

    /// Attaches nothing: this build has no BPF support.
    #[cfg(not(feature = "bpf"))]
    pub(crate) fn attach(&self, _session: &shunt_fuse::Handle) {
        self.refused("this build cannot load programs".to_owned());
    }

    /// Detaches the program. From here on every request reaches the daemon.
    pub fn detach(&self) {
        #[cfg(feature = "bpf")]
        drop(lock(&self.program).take());
        self.shared.set_tables(None);
    }

    /// Returns the cache time for the kernel itself.
    fn expiry(&self, requested: Expiry) -> Expiry {
        if self.extension.no_kernel_cache { Expiry::NEVER_CACHED } else { requested }
    }

    fn expiring(&self, mut entry: Entry) -> Entry {
        entry.entry_expiry = self.expiry(entry.entry_expiry);
        entry.attributes_expiry = self.expiry(entry.attributes_expiry);
        entry
    }

    fn created(&self, created: Created, flags: u32) -> Created {
        self.shared.opens.opened(created.entry.node, &created.opened, flags);
        drop(self.change(|tables| tables.node_changed(created.entry.node)));
        Created { entry: self.expiring(created.entry), ..created }
    }

    /// Returns a guard that invalidates the tables when it is dropped, after the change has succeeded, failed or been cancelled.
    fn change<W: Fn(&Tables)>(&self, what: W) -> Change<'_, F, W> {
        Change { fs: self, what }
    }
}

struct Change<'a, F: FileSystem, W: Fn(&Tables)> {
    fs: &'a Extended<F>,
    what: W,
}

impl<F: FileSystem, W: Fn(&Tables)> Drop for Change<'_, F, W> {
    fn drop(&mut self) {
        // The current tables: a program attached meanwhile may have stored state from before the change.
        if let Some(tables) = self.fs.tables() {
            (self.what)(&tables);
        }
    }
}
