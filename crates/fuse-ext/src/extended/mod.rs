//! A file system whose answers the kernel learns.

mod delegate;
mod open;

use std::sync::{Arc, RwLock};

use shunt_fuse::{Created, Entry, Expiry, FileSystem, Name, NodeId};

use crate::Version;
use crate::builtin::{Moment, Tables};
use open::OpenNodes;

/// How a file system is extended.
#[derive(Debug, Clone)]
pub struct Extension {
    /// The program; [`builtin::PROGRAM`](crate::builtin::PROGRAM), or another one with the same tables.
    pub program: Vec<u8>,
    /// Extended attributes change by requests of this mount alone.
    pub xattrs: bool,
    /// Have the kernel keep no names and attributes itself, and ask every time. For programs whose answers depend on the
    /// caller, and to measure.
    pub ask_always: bool,
}

/// A file system before which a program answers in the kernel.
///
/// What `F` answers with [`Expiry::FOREVER`] may be believed until a request of this mount changes it; that is stored
/// for the program. What `F` gives a shorter time is never stored. Where the program cannot be attached (no module, no
/// privilege, another kernel) a line says so and `F` answers alone.
#[derive(Debug)]
pub struct Extended<F> {
    inner: Arc<F>,
    extension: Extension,
    tables: RwLock<Option<Arc<Tables>>>,
    opens: OpenNodes,
    #[cfg(feature = "bpf")]
    program: std::sync::Mutex<Option<crate::program::Program>>,
}

impl<F: FileSystem> Extended<F> {
    /// Puts the extension before `inner`.
    pub fn new(inner: impl Into<Arc<F>>, extension: Extension) -> Self {
        Self {
            inner: inner.into(),
            extension,
            tables: RwLock::default(),
            opens: OpenNodes::default(),
            #[cfg(feature = "bpf")]
            program: std::sync::Mutex::new(None),
        }
    }

    /// The file system itself.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// What the program sees, where one is attached: for a file system that wants to store more than it is asked for.
    pub fn tables(&self) -> Option<Arc<Tables>> {
        self.tables.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn put(&self, tables: Option<Arc<Tables>>) {
        *self.tables.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = tables;
    }

    /// Attaches the program; done at the start of a session. A second time only after [`detach`](Self::detach).
    #[cfg(feature = "bpf")]
    pub fn attach(&self, session: &shunt_fuse::Handle) {
        use crate::builtin::Validity;

        let validity = if self.extension.ask_always { Validity::NONE } else { Validity::FOREVER };
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
                self.put(tables);
                *self.program.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(program);
                tracing::info!("requests are answered in the kernel by an extension");
            }
            Err(error) => tracing::warn!("no extension in the kernel: {error}"),
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
        let mut program = self.program.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        program.as_mut().map_or(Ok(()), |program| program.replace(elf, session.device()))
    }

    /// Attaches nothing: this build cannot.
    #[cfg(not(feature = "bpf"))]
    pub fn attach(&self, _session: &shunt_fuse::Handle) {
        tracing::warn!("no extension in the kernel: this build cannot load programs");
    }

    /// Takes the program away. From here on the daemon is asked everything again.
    pub fn detach(&self) {
        #[cfg(feature = "bpf")]
        drop(self.program.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take());
        self.put(None);
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

    fn created(&self, created: Created) -> Created {
        self.opens.opened(created.entry.node, &created.opened);
        drop(self.change(|tables| tables.node_changed(created.entry.node)));
        Created { entry: self.expiring(created.entry), ..created }
    }

    /// The kernel reads and writes the file itself meanwhile, and nobody tells.
    fn may_store_attributes(&self, node: NodeId, expiry: Expiry) -> bool {
        expiry == Expiry::FOREVER && !self.opens.passed_through(node)
    }

    /// Tells the tables, once whatever it stands for has happened or failed, or was given up.
    fn change<W: Fn(&Tables)>(&self, what: W) -> Change<'_, F, W> {
        Change { fs: self, what }
    }

    /// Stores what a lookup found.
    fn found(&self, parent: NodeId, name: Name<'_>, since: &Since, entry: &Entry) {
        let name = name.as_bytes();
        // These are only to make sense of file handles, and name no entry of the directory.
        if entry.entry_expiry != Expiry::FOREVER || matches!(name, b"." | b"..") {
            return;
        }
        if entry.node == NodeId(0) {
            since.tables.store_absent(parent, name, since.name);
            return;
        }
        if self.may_store_attributes(entry.node, entry.attributes_expiry) {
            since.tables.store_found(entry.node, since.moment, &entry.attributes);
        }
        since.tables.store_name(parent, name, since.name, entry.node, entry.generation);
    }
}

/// How things stood before a lookup.
struct Since {
    tables: Arc<Tables>,
    name: Version,
    moment: Moment,
}

impl Since {
    fn now(tables: Arc<Tables>, parent: NodeId, name: Name<'_>) -> Self {
        Self { name: tables.name_version(parent, name.as_bytes()), moment: tables.moment(), tables }
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
