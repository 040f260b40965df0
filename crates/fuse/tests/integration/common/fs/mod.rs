//! The test file system: an in-memory tree controlled by a script.

mod serve;

use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use shunt_fuse::*;

use super::locks::Locks;
use super::tree::{Content, OpenAs, Tree};
use super::{Behaviour, Call, Log};

type Script = dyn Fn(&Call) -> Behaviour + Send + Sync;
type Answered = dyn Fn(&Request<'_>, &Call) + Send + Sync;
type Found = dyn Fn(&TestFs, NodeId) + Send + Sync;

pub struct TestFs {
    pub tree: Mutex<Tree>,
    pub log: Log,
    pub locks: Locks,
    pub expiry: Mutex<Expiry>,
    /// Default for files without an open mode of their own.
    pub open: Mutex<OpenAs>,
    pub session: OnceLock<Handle>,
    pub destroyed: AtomicBool,
    /// FLUSH releases POSIX locks. If unset, the server neglects that duty.
    pub flush_unlocks: AtomicBool,
    pub polled: Mutex<Vec<PollHandle>>,
    pub poll_events: Mutex<u32>,
    script: Mutex<Option<Arc<Script>>>,
    after: Mutex<Option<Arc<Answered>>>,
    found: Mutex<Option<Arc<Found>>>,
    /// Errors of refused backing files.
    pub refusals: Mutex<Vec<Errno>>,
}

impl TestFs {
    pub fn new() -> Self {
        Self {
            tree: Mutex::new(Tree::new()),
            log: Log::default(),
            locks: Locks::default(),
            expiry: Mutex::new(Expiry::FOREVER),
            open: Mutex::new(OpenAs::KeepCache),
            session: OnceLock::new(),
            destroyed: AtomicBool::new(false),
            flush_unlocks: AtomicBool::new(true),
            polled: Mutex::default(),
            poll_events: Mutex::new(0),
            script: Mutex::default(),
            after: Mutex::default(),
            found: Mutex::default(),
            refusals: Mutex::default(),
        }
    }

    /// Sets the script, which selects the behaviour of each request.
    pub fn script(&self, script: impl Fn(&Call) -> Behaviour + Send + Sync + 'static) {
        *self.script.lock() = Some(Arc::new(script));
    }

    /// Makes these operations fail.
    pub fn fail(&self, ops: &'static [Opcode], errno: Errno) {
        self.script(move |call| match ops.contains(&call.op) {
            true => Behaviour::Fail(errno),
            false => Behaviour::Go,
        });
    }

    /// Sets a callback for handlers that change a directory, called after the change and before the reply.
    pub fn before_answer(&self, call: impl Fn(&Request<'_>, &Call) + Send + Sync + 'static) {
        *self.after.lock() = Some(Arc::new(call));
    }

    /// Sets a callback for successful lookups, called after the reply was determined.
    pub fn after_lookup(&self, call: impl Fn(&Self, NodeId) + Send + Sync + 'static) {
        *self.found.lock() = Some(Arc::new(call));
    }

    pub fn no_script(&self) {
        *self.script.lock() = None;
    }

    pub fn add(&self, parent: NodeId, name: &str, mode: u32) -> NodeId {
        let mut tree = self.tree.lock();
        let node = tree.make(mode, 0, 0);
        tree.get(parent).unwrap().names.insert(name.into(), node);
        node
    }

    pub fn add_dir(&self, parent: NodeId, name: &str) -> NodeId {
        self.add(parent, name, FileType::Directory.mode() | 0o755)
    }

    pub fn add_file(&self, name: &str, content: impl Into<Content>) -> NodeId {
        let node = self.add(NodeId::ROOT, name, FileType::Regular.mode() | 0o644);
        self.tree.lock().get(node).unwrap().content = content.into();
        node
    }

    pub fn set_content(&self, node: NodeId, content: impl Into<Content>) {
        self.tree.lock().get(node).unwrap().content = content.into();
    }

    pub fn content(&self, node: NodeId) -> Vec<u8> {
        match &self.tree.lock().get(node).unwrap().content {
            Content::Bytes(bytes) => bytes.clone(),
            Content::Static(bytes) => bytes.to_vec(),
            Content::File(file) => {
                let mut bytes = vec![0; rustix::fs::fstat(file).unwrap().st_size as usize];
                let read = rustix::io::pread(file, &mut bytes, 0).unwrap();
                bytes.truncate(read);
                bytes
            }
        }
    }

    /// Removes a name without the kernel's knowledge.
    pub fn remove(&self, parent: NodeId, name: &str) {
        self.tree.lock().get(parent).unwrap().names.remove(name.as_bytes());
    }

    pub fn set_open(&self, node: NodeId, open: OpenAs) {
        self.tree.lock().get(node).unwrap().open = Some(open);
    }

    pub fn lookups(&self, node: NodeId) -> u64 {
        self.tree.lock().get(node).map_or(0, |node| node.lookups)
    }

    fn call(&self, request: &Request<'_>, op: Opcode, name: &[u8], args: String) -> Call {
        Call {
            op,
            node: request.node(),
            name: name.to_vec(),
            args,
            uid: request.uid(),
            gid: request.gid(),
            pid: request.pid(),
            groups: request.supplementary_groups().collect(),
        }
    }

    async fn begin(&self, request: &Request<'_>, op: Opcode, name: &[u8], args: String) -> Result<(), Errno> {
        let call = self.call(request, op, name, args);
        self.log.add(call.clone());
        let script = self.script.lock().clone();
        match script.map_or(Behaviour::Go, |script| script(&call)) {
            Behaviour::Go => {}
            Behaviour::Fail(errno) => return Err(errno),
            Behaviour::Block(time) => std::thread::sleep(time),
            Behaviour::BlockUntil(door) => door.block(),
            Behaviour::Wait(door) => door.pass().await,
            Behaviour::UntilInterrupted => {
                request.interrupted().await;
                assert!(request.is_interrupted());
                return Err(Errno::INTR);
            }
        }
        Ok(())
    }

    fn changed(&self, request: &Request<'_>, op: Opcode, name: &[u8]) {
        let after = self.after.lock().clone();
        if let Some(after) = after {
            after(request, &self.call(request, op, name, String::new()));
        }
    }

    fn entry(&self, tree: &mut Tree, node: NodeId) -> Result<Entry, Errno> {
        let attributes = tree.attributes(node)?;
        tree.get(node)?.lookups += 1;
        Ok(Entry::new(node, attributes, *self.expiry.lock()))
    }

    fn make(&self, request: &Request<'_>, parent: NodeId, name: &[u8], mode: u32) -> Result<NodeId, Errno> {
        let mut tree = self.tree.lock();
        if tree.child(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let node = tree.make(mode, request.uid(), request.gid());
        tree.get(parent)?.names.insert(name.to_vec(), node);
        Ok(node)
    }

    fn opened(&self, request: &Request<'_>, node: NodeId) -> Result<Opened, Errno> {
        let (open, content) = {
            let mut tree = self.tree.lock();
            let node = tree.get(node)?;
            (node.open.unwrap_or(*self.open.lock()), node.content.clone())
        };
        let handle = FileHandle(node.0 + 1000);
        let opened = match (open, content) {
            (OpenAs::Passthrough, Content::File(file)) => {
                let shared = match request.session().passthrough() {
                    Some(passthrough) => passthrough.share(node, file.as_fd()),
                    None => Err(Errno::OPNOTSUPP),
                };
                match shared {
                    Ok(backing) => Opened::passthrough(handle, backing),
                    Err(errno) => {
                        self.refusals.lock().push(errno);
                        Opened::cached(handle)
                    }
                }
            }
            (OpenAs::Cached | OpenAs::Passthrough, _) => Opened::cached(handle),
            (OpenAs::KeepCache, _) => Opened::cached(handle).keep_cache(),
            (OpenAs::Direct, _) => Opened::direct(handle),
            (OpenAs::Watched, _) => Opened::cached(handle).watched(),
            (OpenAs::NoFlush, _) => Opened::cached(handle).keep_cache().no_flush(),
        };
        // Also for files in memory, for which it is a detour.
        Ok(opened.zero_copy())
    }

    fn kill(&self, tree: &mut Tree, node: NodeId) -> Result<(), Errno> {
        let node = tree.get(node)?;
        let mode = &mut node.attributes.mode;
        if *mode & libc::S_IFMT == libc::S_IFDIR {
            return Ok(());
        }
        *mode &= !0o4000;
        if *mode & 0o010 != 0 {
            *mode &= !0o2000;
        }
        node.xattrs.remove(&b"security.capability"[..]);
        Ok(())
    }
}

impl Default for TestFs {
    fn default() -> Self {
        Self::new()
    }
}
