//! Persistent records of [`policy_inodes`](crate::policy_inodes) for the next daemon: two memory files that the
//! guardian holds.
//!
//! One file has a record of four words for each node, after a header of eight words:
//!
//! | word | meaning |
//! |---|---|
//! | 0 | the node, 0 for an unused record. Written last, cleared first |
//! | 1 | the engine's node |
//! | 2 | lookups |
//! | 3 | [`FREE`], or the number of its class (0: the rules changed), and above bit 32 that of its redaction (0: none) |
//!
//! A second file has these classes and redactions as text, numbered from 1, each preceded by its kind and length. It
//! only grows. A node without a record is unknown to the next daemon, which makes the kernel look its name up again.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::MemfdFlags;
use shunt_fuse::NodeId;
use shunt_fuse::takeover::Map;
use shunt_policy::{Policy, Redaction, RuleSet};

const MAGIC: u64 = u64::from_le_bytes(*b"shunt\0vw");
/// Limit on recorded nodes.
const MAX_RECORDS: usize = 1 << 20;
const HEADER_WORDS: usize = 8;
const RECORD_WORDS: usize = 4;
/// Header word: number of records in use, including released ones.
const USED_RECORDS_WORD: usize = 1;
/// Header word: 1 while the kernel may cache replies of earlier rules.
const STALE_REPLIES_WORD: usize = 2;

/// Code of a node that no rule matches.
const FREE: u64 = u32::MAX as u64;

/// Limit on the size of classes and redactions in bytes.
const MAX_BYTES: u64 = 16 << 20;
const CLASS: u32 = 1;
const REDACTION: u32 = 2;

/// Index of a node's record; `None` if it has none.
pub(crate) type RecordIndex = Option<u32>;

/// The rules of a node, to be recorded.
#[derive(Clone, Copy)]
pub(crate) enum RecordedRules<'a> {
    /// No rule matches it.
    Free,
    /// These rules match it.
    Ruled(&'a RuleSet, Option<&'a Arc<Redaction>>),
}

/// A node that an earlier daemon recorded.
pub(crate) struct Restored {
    pub(crate) record: RecordIndex,
    pub(crate) node: NodeId,
    pub(crate) inner: NodeId,
    pub(crate) lookups: u64,
    pub(crate) rules: RestoredRules,
}

/// The rules of a recorded node.
pub(crate) enum RestoredRules {
    Free,
    /// Without a class if the rules changed since.
    Ruled(Option<RuleSet>, Option<Arc<Redaction>>),
}

/// The two memory files.
pub(crate) struct Records {
    map: Map,
    free: Vec<u32>,
    texts: Texts,
}

impl Records {
    pub(crate) fn create() -> io::Result<Self> {
        let map = Map::create(HEADER_WORDS + MAX_RECORDS * RECORD_WORDS)?;
        map[0].store(MAGIC, Ordering::Relaxed);
        Ok(Self { map, free: Vec::new(), texts: Texts::create()? })
    }

    /// Opens the records of another daemon with the same policy.
    pub(crate) fn open(map: OwnedFd, texts: OwnedFd, policy: &Policy) -> io::Result<(Self, Vec<Restored>)> {
        let map = Map::open(map, HEADER_WORDS + MAX_RECORDS * RECORD_WORDS)?;
        if map[0].load(Ordering::Relaxed) != MAGIC {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the takeover records have another version",
            ));
        }
        let (texts, decoded) = Texts::open(texts, policy)?;
        let mut records = Self { map, free: Vec::new(), texts };
        let mut all = Vec::new();
        for record in 0..records.high() {
            match records.read(record, &decoded) {
                Some(restored) => all.push(restored),
                None => {
                    records.word(record, 0).store(0, Ordering::Relaxed);
                    records.free.push(record);
                }
            }
        }
        Ok((records, all))
    }

    pub(crate) fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.map.as_fd(), self.texts.file.as_fd()]
    }

    fn high(&self) -> u32 {
        self.map[USED_RECORDS_WORD].load(Ordering::Acquire).min(MAX_RECORDS as u64) as u32
    }

    fn word(&self, record: u32, word: usize) -> &std::sync::atomic::AtomicU64 {
        &self.map[HEADER_WORDS + record as usize * RECORD_WORDS + word]
    }

    fn read(&self, record: u32, decoded: &DecodedTexts) -> Option<Restored> {
        let word = |word| self.word(record, word).load(Ordering::Relaxed);
        let (node, inner, lookups, rules) = (NodeId(word(0)), NodeId(word(1)), word(2), word(3));
        let rules = match rules {
            FREE => RestoredRules::Free,
            _ => {
                let (class, redaction) = (rules as u32, (rules >> 32) as u32);
                let redaction = match redaction {
                    0 => None,
                    // An unknown redaction must not be mistaken for none.
                    number => Some(decoded.redactions.get(&number)?.clone()),
                };
                RestoredRules::Ruled(decoded.classes.get(&class).cloned(), redaction)
            }
        };
        (node.0 != 0).then_some(Restored { record: Some(record), node, inner, lookups, rules })
    }

    fn code(&mut self, rules: RecordedRules<'_>) -> Option<u64> {
        Some(match rules {
            RecordedRules::Free => FREE,
            RecordedRules::Ruled(class, redaction) => {
                let redaction = match redaction {
                    None => 0,
                    Some(redaction) => self.texts.redaction(redaction)?,
                };
                u64::from(self.texts.class(class).unwrap_or(0)) | u64::from(redaction) << 32
            }
        })
    }

    pub(crate) fn add(
        &mut self,
        node: NodeId,
        inner: NodeId,
        lookups: u64,
        rules: RecordedRules<'_>,
    ) -> RecordIndex {
        let code = self.code(rules)?;
        let record = match self.free.pop() {
            Some(record) => record,
            None => {
                let high = self.high();
                if high as usize == MAX_RECORDS {
                    return None;
                }
                self.map[USED_RECORDS_WORD].store(u64::from(high) + 1, Ordering::Release);
                high
            }
        };
        for (word, value) in [(1, inner.0), (2, lookups), (3, code)] {
            self.word(record, word).store(value, Ordering::Relaxed);
        }
        self.word(record, 0).store(node.0, Ordering::Release);
        Some(record)
    }

    pub(crate) fn remove(&mut self, record: RecordIndex) {
        if let Some(record) = record {
            self.word(record, 0).store(0, Ordering::Release);
            self.free.push(record);
        }
    }

    pub(crate) fn count(&self, record: RecordIndex, lookups: u64) {
        if let Some(record) = record {
            self.word(record, 2).store(lookups, Ordering::Release);
        }
    }

    /// Marks a node whose rules changed.
    pub(crate) fn retire(&self, record: RecordIndex) {
        if let Some(record) = record {
            // The redaction is kept, because it applies to files that are still open.
            let code = self.word(record, 3);
            let redaction = if code.load(Ordering::Relaxed) == FREE { 0 } else { !u64::from(u32::MAX) };
            code.fetch_and(redaction, Ordering::AcqRel);
        }
    }

    /// Forgets all class numbers when the policy changes.
    pub(crate) fn end_classes(&mut self) {
        self.texts.classes.clear();
    }

    /// Reports whether the kernel may cache replies of earlier rules.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.map[STALE_REPLIES_WORD].load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_unsettled(&self, unsettled: bool) {
        self.map[STALE_REPLIES_WORD].store(unsettled.into(), Ordering::Release);
    }
}

/// Classes and redactions by number.
#[derive(Default)]
struct DecodedTexts {
    classes: HashMap<u32, RuleSet>,
    redactions: HashMap<u32, Arc<Redaction>>,
}

/// The file of serialised classes and redactions.
struct Texts {
    file: File,
    end: u64,
    count: u32,
    classes: HashMap<RuleSet, u32>,
    redactions: HashMap<Arc<Redaction>, u32>,
}

impl Texts {
    fn new(file: File) -> Self {
        Self { file, end: 0, count: 0, classes: HashMap::new(), redactions: HashMap::new() }
    }

    fn create() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("shunt-views", MemfdFlags::CLOEXEC)?;
        Ok(Self::new(File::from(file)))
    }

    fn open(file: OwnedFd, policy: &Policy) -> io::Result<(Self, DecodedTexts)> {
        let mut texts = Self::new(File::from(file));
        let mut decoded = DecodedTexts::default();
        while let Some((kind, text)) = texts.next()? {
            texts.count += 1;
            match kind {
                CLASS => {
                    // A class of an earlier policy, to which no record refers.
                    if let Some(class) = policy.class(&text) {
                        texts.classes.insert(class.clone(), texts.count);
                        decoded.classes.insert(texts.count, class);
                    }
                }
                _ => {
                    if let Some(redaction) = Redaction::restore(&text).map(Arc::new) {
                        texts.redactions.insert(redaction.clone(), texts.count);
                        decoded.redactions.insert(texts.count, redaction);
                    }
                }
            }
        }
        Ok((texts, decoded))
    }

    /// Reads the next entry; `None` at the end or at a truncated entry, to which no record refers.
    fn next(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        let mut head = [0; 8];
        let mut at = self.end;
        if read(&self.file, &mut head, at)? < head.len() {
            return Ok(None);
        }
        at += head.len() as u64;
        let [kind, length] =
            [&head[..4], &head[4..]].map(|word| word.try_into().map_or(0, u32::from_le_bytes));
        if ![CLASS, REDACTION].contains(&kind) || at + u64::from(length) > MAX_BYTES {
            return Ok(None);
        }
        let mut text = vec![0; length as usize];
        if read(&self.file, &mut text, at)? < text.len() {
            return Ok(None);
        }
        self.end = at + u64::from(length);
        Ok(Some((kind, text)))
    }

    fn add(&mut self, kind: u32, text: &[u8]) -> Option<u32> {
        let length = u32::try_from(text.len()).ok().filter(|length| *length > 0)?;
        let bytes = [&kind.to_le_bytes()[..], &length.to_le_bytes(), text].concat();
        let end = self.end + bytes.len() as u64;
        if end > MAX_BYTES {
            return None;
        }
        self.file.write_all_at(&bytes, self.end).ok()?;
        (self.end, self.count) = (end, self.count + 1);
        Some(self.count)
    }

    fn class(&mut self, class: &RuleSet) -> Option<u32> {
        if let Some(number) = self.classes.get(class) {
            return Some(*number);
        }
        let number = self.add(CLASS, &class.save())?;
        self.classes.insert(class.clone(), number);
        Some(number)
    }

    fn redaction(&mut self, redaction: &Arc<Redaction>) -> Option<u32> {
        if let Some(number) = self.redactions.get(redaction) {
            return Some(*number);
        }
        let number = self.add(REDACTION, &redaction.save())?;
        self.redactions.insert(redaction.clone(), number);
        Some(number)
    }
}

/// Reads until the buffer is full or the file ends.
fn read(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(length) => done += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
