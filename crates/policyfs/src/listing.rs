//! Directory listings without hidden names.

use shunt_fuse::{Entry, Errno, NodeId, Request};
use shunt_mirror::ListingFilter;
use shunt_mirror::lower::Component;
use shunt_mirror::lower::listing::DirEntry;
use shunt_policy::{Op, Outcome};

use crate::PolicyFs;
use crate::caller::Asker;
use crate::content::Peeked;
use crate::decide::Spot;

/// The listing filter for one caller and one directory.
pub(crate) struct PolicyFilter<'a, 'b> {
    policed: &'a PolicyFs,
    request: &'a Request<'b>,
    asker: Asker<'a>,
    dir: NodeId,
    spot: Spot,
    hides: bool,
    /// Entries may be passed to the kernel, because each file has only one spelling.
    entries: bool,
}

impl<'a, 'b> PolicyFilter<'a, 'b> {
    pub(crate) fn new(policed: &'a PolicyFs, request: &'a Request<'b>, dir: NodeId) -> Result<Self, Errno> {
        let spot = policed.dir_spot(dir)?;
        let hides = spot.place.hides_names();
        let entries = policed.is_spelled_once(&spot.place, dir);
        let asker = Asker::new(request, &policed.programs);
        Ok(Self { policed, request, asker, dir, spot, hides, entries })
    }

    fn below(&self, name: &[u8]) -> Spot {
        let place = self.spot.place.enter(name);
        let class = place.class();
        let path = class.audits().then(|| {
            let dir = self.spot.path.as_deref().unwrap_or_default();
            let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
            [dir, slash, name].concat().into()
        });
        Spot { rules: self.spot.rules.clone(), place, class, path }
    }
}

impl ListingFilter for PolicyFilter<'_, '_> {
    fn shows(&mut self, entry: &DirEntry<'_>) -> Result<bool, Errno> {
        if !self.hides || entry.is_dots() {
            return Ok(true);
        }
        let class = self.spot.place.enter(entry.name.to_bytes()).class();
        if !class.hides() {
            return Ok(true);
        }
        let decide = |content: &dyn shunt_policy::Content| {
            class.decide(Op::Lookup, &self.asker, content).outcome != Outcome::Hide
        };
        if !class.asks_what() {
            return Ok(decide(&shunt_policy::NoContent));
        }
        let lower = self.policed.mirror.engine();
        let Ok(found) = lower.lookup(self.dir, Component::new(entry.name)?) else { return Ok(false) };
        let shows = decide(&Peeked::new(lower, found.id));
        lower.forget(found.id, 1);
        Ok(shows)
    }

    fn entry(&mut self, name: &[u8], entry: Entry) -> Result<Option<Entry>, Errno> {
        let spot = self.below(name);
        // A pinned name may lead to another inode than in the source.
        let pinned = self.policed.mirror.pins().get(self.dir, name).is_some();
        if pinned || !self.entries || !spot.class.is_name_constant() {
            // The kernel would share the entry with the next caller.
            self.policed.mirror.engine().forget(entry.node, 1);
            return Ok(None);
        }
        // If this fails, the name is looked up when it is used.
        Ok(self.policed.shown(self.request, &spot, entry).ok())
    }

    fn untold(&mut self, node: NodeId) {
        self.policed.forgotten(node, 1);
    }
}
