//! A file system whose answers the kernel learns.

mod delegate;
mod handles;
mod open;
mod open_cache;
mod publish;

use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use shunt_fuse::{Created, Entry, Expiry, FileSystem, NodeId, Stale};

use crate::builtin::Tables;
use open::OpenNodes;
use open_cache::Known;

/// How a file system is extended.
#[derive(Debug, Clone)]
pub struct Extension {
    /// The program; [`builtin::PROGRAM`](crate::builtin::PROGRAM), or another one.
    pub program: Vec<u8>,
    /// Extended attributes change by requests of this mount alone, or the file system tells by invalidating the node.
    /// [`Extended::telling`] says so of single nodes.
    pub xattrs: bool,
    /// A file whose data was passed through at an open may be opened so again, for reading, without a word. Only for
    /// file systems that pass through whenever they can: the kernel refuses opens of one inode that differ.
    pub opens: bool,
    /// What reading a file that is passed through does to its access time.
    pub access_times: AccessTimes,
    /// What the kernel may keep for at least so long is stored until it changes. Less than [`Expiry::FOREVER`] is for a file
    /// system that tells of each change, and fears only that the kernel misses a notification: the tables miss none. The
    /// kernel keeps the program's answers so long.
    pub lasting: Expiry,
    /// Have the kernel keep no names and attributes itself, and ask every time. For programs whose answers depend on the
    /// caller, and to measure.
    pub ask_always: bool,
}

/// How reads past the daemon move access times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessTimes {
    /// Each may.
    Moved,
    /// By the rule of relatime (`mount(8)`), or not at all.
    Loosely,
    /// Never.
    Unmoved,
}

/// A file system before which a program answers in the kernel.
///
/// What `F` lets the kernel keep ([`Expiry`]) is stored for the program for as long, names only where they are
/// [`lasting`](Extension::lasting). It is believed until that time is over, a request of this mount changes it, or `F` has the kernel
/// forget it ([`Caches`](shunt_fuse::Caches)). Where the program cannot be attached (no module, no privilege, another
/// kernel) a line says so and `F` answers alone.
#[derive(Debug)]
pub struct Extended<F> {
    inner: Arc<F>,
    extension: Extension,
    learnt: Arc<Learnt>,
    telling: fn(&F, NodeId) -> bool,
    /// Why there is no program, where there is none.
    refusal: Mutex<Option<String>>,
    #[cfg(feature = "bpf")]
    program: Mutex<Option<crate::program::Program>>,
}

/// What is shared with whoever tells of changes.
#[derive(Debug, Default)]
struct Learnt {
    tables: RwLock<Option<Arc<Tables>>>,
    opens: OpenNodes,
    known: Known,
}

impl Learnt {
    fn tables(&self) -> Option<Arc<Tables>> {
        self.tables.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn put(&self, tables: Option<Arc<Tables>>) {
        self.known.attach(tables.clone());
        *self.tables.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = tables;
    }

    /// The kernel is told to forget.
    fn forget(&self, stale: Stale<'_>) {
        let Some(tables) = self.tables() else { return };
        match stale {
            Stale::Name(parent, name) => tables.name_changed(parent, name),
            Stale::Node(node) => {
                tables.node_changed(node);
                // It may have been removed: a file kept open would keep its room.
                self.known.let_go(node);
            }
            Stale::Everything => {
                tables.all_changed();
                self.known.let_all_go();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<F: FileSystem> Extended<F> {
    /// Puts the extension before `inner`.
    pub fn new(inner: impl Into<Arc<F>>, extension: Extension) -> Self {
        Self {
            inner: inner.into(),
            extension,
            learnt: Arc::default(),
            telling: |_, _| true,
            refusal: Mutex::default(),
            #[cfg(feature = "bpf")]
            program: Mutex::default(),
        }
    }

    /// Limits [`Extension::xattrs`] and [`Extension::opens`] to the nodes of which `telling` holds, asked each time.
    pub fn telling(mut self, telling: fn(&F, NodeId) -> bool) -> Self {
        self.telling = telling;
        self
    }

    /// The file system itself.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// What the program sees, where one is attached: for a file system that wants to store more than it is asked for.
    pub fn tables(&self) -> Option<Arc<Tables>> {
        self.learnt.tables()
    }

    /// Why no program is attached, if none is.
    pub fn refusal(&self) -> Option<String> {
        lock(&self.refusal).clone()
    }

    /// Backing files kept for opens by the program.
    pub fn known_files(&self) -> usize {
        self.learnt.known.len()
    }

    fn refused(&self, reason: String) {
        tracing::warn!("no extension in the kernel: {reason}");
        *lock(&self.refusal) = Some(reason);
    }

    /// From now on what the kernel must forget the program forgets.
    fn listen(&self, session: &shunt_fuse::Handle) {
        let learnt = Arc::downgrade(&self.learnt);
        session.caches().listen(move |stale| {
            if let Some(learnt) = learnt.upgrade() {
                learnt.forget(stale);
            }
        });
    }

    /// Attaches the program; done at the start of a session. A second time only after [`detach`](Self::detach).
    #[cfg(feature = "bpf")]
    pub fn attach(&self, session: &shunt_fuse::Handle) {
        use crate::builtin::Validity;

        let validity = match self.extension.ask_always {
            true => Validity::NONE,
            false => Validity::all(self.extension.lasting.time().as_secs()),
        };
        let prepare = |maps: &crate::program::Maps<'_>| {
            // A program may do without the tables, and only refuse requests or pass them on.
            let tables = match maps.has("attrs") {
                true => Some(Arc::new(Tables::new(|name, words| maps.memory(name, words))?)),
                false => None,
            };
            if let Some(tables) = &tables {
                tables.set_validity(validity);
            }
            Ok(tables)
        };
        match crate::program::Program::attach(&self.extension.program, session.device(), prepare) {
            Ok((program, tables)) => {
                self.learnt.put(tables);
                *lock(&self.program) = Some(program);
                *lock(&self.refusal) = None;
                tracing::info!("requests are answered in the kernel by an extension");
            }
            Err(error) => self.refused(error.to_string()),
        }
    }

    /// Puts another program in the place of one that runs. It goes on with the tables of the old one.
    ///
    /// # Errors
    /// The old program stays.
    #[cfg(feature = "bpf")]
    pub fn replace(
        &self,
        elf: &[u8],
        session: &shunt_fuse::Handle,
    ) -> Result<(), crate::program::ProgramError> {
        lock(&self.program).as_mut().map_or(Ok(()), |program| program.replace(elf, session.device()))
    }

    /// Takes the program away and puts it back without loading it anew, as tests do that want many such moments: to load
    /// it costs the kernel much more than all else.
    ///
    /// # Errors
    /// It is then away.
    #[doc(hidden)]
    #[cfg(feature = "bpf")]
    pub fn put_back(&self) -> Result<(), crate::program::ProgramError> {
        lock(&self.program).as_mut().map_or(Ok(()), crate::program::Program::put_back)
    }

    /// Attaches nothing: this build cannot.
    #[cfg(not(feature = "bpf"))]
    pub fn attach(&self, _session: &shunt_fuse::Handle) {
        self.refused("this build cannot load programs".to_owned());
    }

    /// Takes the program away. From here on the daemon is asked everything again.
    pub fn detach(&self) {
        #[cfg(feature = "bpf")]
        drop(lock(&self.program).take());
        self.learnt.put(None);
    }

    /// How long the kernel itself may keep what it was told.
    fn expiry(&self, wanted: Expiry) -> Expiry {
        if self.extension.ask_always { Expiry::NEVER_CACHED } else { wanted }
    }

    fn expiring(&self, mut entry: Entry) -> Entry {
        entry.entry_expiry = self.expiry(entry.entry_expiry);
        entry.attributes_expiry = self.expiry(entry.attributes_expiry);
        entry
    }

    fn created(&self, created: Created, flags: u32) -> Created {
        self.learnt.opens.opened(created.entry.node, &created.opened, flags);
        drop(self.change(|tables| tables.node_changed(created.entry.node)));
        Created { entry: self.expiring(created.entry), ..created }
    }

    /// Tells the tables, once whatever it stands for has happened or failed, or was given up.
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
        // Those in force now: who began to fill them meanwhile may have seen things as they were before.
        if let Some(tables) = self.fs.tables() {
            (self.what)(&tables);
        }
    }
}
