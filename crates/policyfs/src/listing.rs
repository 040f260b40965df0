//! Directory listings without hidden names.

use shunt_fuse::{Entry, Errno, NodeId, Request};
use shunt_mirror::ListingFilter;
use shunt_mirror::lower::Component;
use shunt_mirror::lower::listing::DirEntry;
use shunt_policy::{Op, Outcome};

use crate::PolicyFs;
use crate::caller::RequestCaller;
use crate::content::LazyContent;
use crate::decide::ResolvedName;

/// The listing filter for one caller and one directory.
pub(crate) struct PolicyFilter<'a, 'b> {
    fs: &'a PolicyFs,
    request: &'a Request<'b>,
    caller: RequestCaller<'a>,
    dir: NodeId,
    resolved: ResolvedName,
    hides: bool,
    /// Entries may be passed to the kernel, because each file has only one spelling.
    entries: bool,
}

impl<'a, 'b> PolicyFilter<'a, 'b> {
    pub(crate) fn new(fs: &'a PolicyFs, request: &'a Request<'b>, dir: NodeId) -> Result<Self, Errno> {
        let resolved = fs.resolve_dir(dir)?;
        let hides = resolved.state.hides_names();
        let entries = fs.is_spelled_once(&resolved.state, dir);
        let caller = RequestCaller::new(request, &fs.programs);
        Ok(Self { fs, request, caller, dir, resolved, hides, entries })
    }

    fn below(&self, name: &[u8]) -> ResolvedName {
        let state = self.resolved.state.enter(name);
        let class = state.class();
        let path = class.audits().then(|| {
            let dir = self.resolved.path.as_deref().unwrap_or_default();
            let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
            [dir, slash, name].concat().into()
        });
        ResolvedName { rules: self.resolved.rules.clone(), state, class, path }
    }
}

impl ListingFilter for PolicyFilter<'_, '_> {
    fn shows(&mut self, entry: &DirEntry<'_>) -> Result<bool, Errno> {
        if !self.hides || entry.is_dots() {
            return Ok(true);
        }
        let class = self.resolved.state.enter(entry.name.to_bytes()).class();
        if !class.hides() {
            return Ok(true);
        }
        let decide = |content: &dyn shunt_policy::Content| {
            class.decide(Op::Lookup, &self.caller, content).outcome != Outcome::Hide
        };
        if !class.depends_on_content() {
            return Ok(decide(&shunt_policy::NoContent));
        }
        let lower = self.fs.mirror.engine();
        let Ok(found) = lower.lookup(self.dir, Component::new(entry.name)?) else { return Ok(false) };
        let shows = decide(&LazyContent::new(lower, found.id));
        lower.forget(found.id, 1);
        Ok(shows)
    }

    fn entry(&mut self, name: &[u8], entry: Entry) -> Result<Option<Entry>, Errno> {
        let resolved = self.below(name);
        // A pinned name may lead to another inode than in the source.
        let pinned = self.fs.mirror.pins().get(self.dir, name).is_some();
        if pinned || !self.entries || !resolved.class.is_name_constant() {
            // The kernel would share the entry with the next caller.
            self.fs.mirror.engine().forget(entry.node, 1);
            return Ok(None);
        }
        // If this fails, the name is looked up when it is used.
        Ok(self.fs.shown(self.request, &resolved, entry).ok())
    }

    fn drop_lookup(&mut self, node: NodeId) {
        self.fs.forgotten(node, 1);
    }
}
