//! Ledger of promises: synced content exists somewhere, unless a user who saw it deleted or overwrote it.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::volume_soak::block_layout::Layout;
use crate::volume_soak::tagged_content::{Content, FoundContent};

/// A write and its fate.
#[derive(Clone, Debug)]
struct Written {
    line: u64,
    len: usize,
    node: usize,
    at: Instant,
    /// Synced.
    due: bool,
    /// Deleted or overwritten by a user who saw it.
    ended: bool,
    /// A user deleted or overwrote its file and may have seen it: it could have arrived between the look and the operation.
    doubted: bool,
    /// It may have been written in part.
    in_parts: bool,
    /// Possible layouts of a file of which it is the latest write.
    versions: Vec<Layout>,
}

/// All writes by token.
pub struct Ledger {
    written: Vec<Written>,
    lines: u64,
    /// Time since which each node has been disconnected.
    cut: Vec<Option<Instant>>,
    story: File,
    begun: Instant,
}

impl Ledger {
    /// Creates a ledger. Events are logged to a file, to investigate a loss.
    pub fn new(nodes: usize, story: &Path) -> Self {
        let story = File::create(story).expect("a file for the story");
        Self { written: Vec::new(), lines: 0, cut: vec![None; nodes], story, begun: Instant::now() }
    }

    pub fn log(&mut self, what: fmt::Arguments<'_>) {
        let _ = writeln!(self.story, "{:9.4} {what}", self.begun.elapsed().as_secs_f64());
    }

    /// Registers a new content, of a new or an existing file.
    pub fn begin(&mut self, node: usize, line: Option<u64>, len: usize) -> Content {
        let line = line.unwrap_or_else(|| {
            self.lines += 1;
            self.lines
        });
        let at = Instant::now();
        self.written.push(Written {
            line,
            len,
            node,
            at,
            due: false,
            ended: false,
            doubted: false,
            in_parts: true,
            versions: Vec::new(),
        });
        Content { token: self.written.len() as u64 - 1, line, len }
    }

    fn get(&mut self, content: &Content) -> Option<&mut Written> {
        self.written.get_mut(usize::try_from(content.token).ok()?)
    }

    /// Records that a content was written completely, with the resulting layout.
    pub fn whole(&mut self, content: &Content, version: Layout) {
        if let Some(written) = self.get(content) {
            written.in_parts = false;
            written.at = Instant::now();
        }
        self.may_be(version);
    }

    /// Records a possible layout of a file.
    pub fn may_be(&mut self, version: Layout) {
        let newest = version.newest().and_then(|token| self.written.get_mut(usize::try_from(token).ok()?));
        if let Some(written) = newest {
            written.versions.push(version);
        }
    }

    /// Records a sync. Returns true for the first one.
    pub fn synced(&mut self, content: &Content) -> bool {
        self.get(content).is_some_and(|written| !std::mem::replace(&mut written.due, true))
    }

    /// Records that a user who saw the content deletes or overwrites it.
    pub fn ends(&mut self, content: &Content) {
        if let Some(written) = self.get(content) {
            written.ended = true;
        }
    }

    /// Records that a node deleted or overwrote a file in which it had seen this content.
    pub fn ended_unseen(&mut self, node: usize, seen: &Content) {
        self.doubt(node, |written| written.line == seen.line);
    }

    /// Records that a node deleted or overwrote a file without a look.
    pub fn ended_another(&mut self, node: usize) {
        self.doubt(node, |_| true);
    }

    /// Marks writes that may have reached a node as doubted.
    fn doubt(&mut self, node: usize, of: impl Fn(&Written) -> bool) {
        let cut = |node: usize, written: &Written| self.cut[node].is_some_and(|since| written.at > since);
        let may_have_come =
            |written: &Written| !cut(node, written) && (written.node == node || !cut(written.node, written));
        let all: Vec<usize> = (0..self.written.len())
            .filter(|n| of(&self.written[*n]) && may_have_come(&self.written[*n]))
            .collect();
        all.into_iter().for_each(|n| self.written[n].doubted = true);
    }

    /// Records that a node is disconnected, or connected again.
    pub fn set_cut(&mut self, node: usize, is_cut: bool) {
        self.cut[node] = is_cut.then(Instant::now);
    }

    /// Returns the time since which a node has been disconnected.
    pub fn cut_since(&self, node: usize) -> Option<Instant> {
        self.cut[node]
    }

    fn written(&self, content: &Content) -> Option<&Written> {
        let written = self.written.get(usize::try_from(content.token).ok()?)?;
        (written.line == content.line && written.len == content.len).then_some(written)
    }

    /// Checks that a file may hold this: a version that a user wrote, or the blocks of an interrupted write.
    pub fn allows(&self, held: &FoundContent) -> Result<(), String> {
        let (contents, layout) = match held {
            FoundContent::Nothing => return Ok(()),
            FoundContent::Foreign(at) => return Err(format!("what nobody wrote, at {at}")),
            FoundContent::Blocks(contents, layout) => (contents, layout),
        };
        if contents.iter().any(|content| self.written(content).is_none()) {
            return Err(format!("what nobody wrote: {held:?}"));
        }
        match held.newest().and_then(|newest| self.written(&newest)) {
            Some(newest) if newest.in_parts || newest.versions.contains(layout) => Ok(()),
            newest => Err(format!("a version that nobody made: {held:?}, where that was {newest:?}")),
        }
    }

    /// Returns the promised contents that were not seen and are not in doubt, and the number of those in doubt.
    pub fn lost(&self, seen: &BTreeSet<u64>) -> (Vec<u64>, usize) {
        let away = |token: &u64| {
            let written = &self.written[*token as usize];
            written.due && !written.ended && !seen.contains(token)
        };
        let all: Vec<u64> = (0..self.written.len() as u64).filter(away).collect();
        let lost: Vec<u64> =
            all.iter().filter(|token| !self.written[**token as usize].doubted).copied().collect();
        let doubted = all.len() - lost.len();
        (lost, doubted)
    }

    /// Gives up doubted contents that were not seen.
    pub fn settle(&mut self, seen: &BTreeSet<u64>) {
        for (token, written) in self.written.iter_mut().enumerate() {
            written.ended |= written.doubted && !seen.contains(&(token as u64));
            written.doubted = false;
        }
    }
}

#[test]
fn only_versions_that_somebody_made_are_allowed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut ledger = Ledger::new(1, &dir.path().join("story"));
    let first = ledger.begin(0, None, 2000);
    let version = Layout::default().with(&first, 0..4);
    ledger.whole(&first, version.clone());
    let edit = ledger.begin(0, Some(first.line), 2000);
    let blocks = |version: &Layout| FoundContent::Blocks(vec![first, edit], version.clone());
    let (half, all) = (version.with(&edit, 1..2), version.with(&edit, 1..3));
    assert_eq!(ledger.allows(&blocks(&half)), Ok(()), "it may end before all of it is written");
    ledger.whole(&edit, all.clone());
    assert_eq!(ledger.allows(&blocks(&all)), Ok(()));
    assert!(ledger.allows(&blocks(&half)).is_err());
    let cut = FoundContent::Blocks(vec![first], version.cut(512));
    assert!(ledger.allows(&cut).is_err());
    ledger.may_be(version.cut(512));
    assert_eq!(ledger.allows(&cut), Ok(()));
}
