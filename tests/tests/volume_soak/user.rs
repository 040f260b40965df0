//! Somebody who works on a machine, whatever happens to it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, XattrFlags};
use rustix::io::Errno;
use shunt_tests::Rng;

use crate::content::{Content, Held, length};
use crate::ledger::Ledger;
use crate::world::{NODES, World, lock};

/// Few, so that machines come to the same.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const DEPTH: usize = 3;
/// With more, more is taken away than made.
const MANY: usize = 120;
const OLD: Duration = Duration::from_millis(400);
pub const ATTRIBUTE: &str = "user.soak";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
}

/// One that stays open.
struct Handle {
    file: File,
    path: PathBuf,
}

pub struct User<'a> {
    world: &'a World,
    node: usize,
    rng: Rng,
    open: Vec<Handle>,
    known: Vec<(PathBuf, Kind)>,
    looked: Option<Instant>,
}

/// What users have to live with.
const USUAL: [Errno; 10] = [
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTEMPTY,
    Errno::PERM,
    Errno::BUSY,
    Errno::NETUNREACH,
    Errno::ISDIR,
    Errno::NOTDIR,
    Errno::INVAL,
    Errno::NODATA,
];

impl<'a> User<'a> {
    pub fn new(world: &'a World, node: usize, seed: u64) -> Self {
        let rng = Rng::new(seed * 100 + 50 + node as u64);
        Self { world, node, rng, open: Vec::new(), known: Vec::new(), looked: None }
    }

    /// Goes on until it is told to stop.
    pub fn work(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let life = self.life();
            let begun = Instant::now();
            let done = self.act();
            let took = begun.elapsed();
            let same_life = life.is_some() && life == self.life();
            if same_life {
                self.world.counts.slowest_ms.at_least(took.as_millis() as u64);
            }
            match done {
                Ok(()) => self.world.counts.operations.add(1),
                Err(error) => self.failed(&error, same_life),
            }
            std::thread::sleep(Duration::from_millis(self.rng.below(12) as u64));
        }
        for handle in std::mem::take(&mut self.open) {
            self.tell(format_args!("closes {:?}", handle.path));
        }
    }

    fn life(&self) -> Option<u64> {
        self.world.nodes[self.node].life()
    }

    fn failed(&mut self, error: &io::Error, same_life: bool) {
        self.looked = None;
        let errno = Errno::from_io_error(error);
        if !same_life {
            // What was open is of a mount that is gone.
            self.open.clear();
            std::thread::sleep(Duration::from_millis(50));
        } else if errno.is_none_or(|errno| !USUAL.contains(&errno)) {
            let what = lock(&self.world.ledger).last().to_owned();
            self.world.note(format!("{} got {error} ({what})", NODES[self.node]));
        }
    }

    fn tell(&self, what: std::fmt::Arguments<'_>) {
        self.world.tell(format_args!("{}: {what}", NODES[self.node]));
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        lock(&self.world.ledger)
    }

    fn look(&mut self) -> io::Result<()> {
        if self.looked.is_some_and(|when| when.elapsed() < OLD) {
            return Ok(());
        }
        self.known.clear();
        let work = self.world.nodes[self.node].work();
        let mut below = vec![work];
        while let Some(directory) = below.pop() {
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                let (path, kind) = (entry.path(), entry.file_type()?);
                // Of a conflict.
                if entry.file_name().to_str().is_none_or(|name| NODES.contains(&name)) {
                    continue;
                }
                let kind = match (kind.is_dir(), kind.is_file()) {
                    (true, _) => Kind::Directory,
                    (_, true) => Kind::File,
                    _ => Kind::Link,
                };
                if kind == Kind::Directory {
                    below.push(path.clone());
                }
                self.known.push((path, kind));
            }
        }
        self.looked = Some(Instant::now());
        Ok(())
    }

    fn pick(&mut self, kind: impl Fn(Kind) -> bool) -> io::Result<PathBuf> {
        let all: Vec<&PathBuf> = self.known.iter().filter(|one| kind(one.1)).map(|one| &one.0).collect();
        match all.len() {
            0 => Err(Errno::NOENT.into()),
            count => Ok(all[self.rng.below(count)].clone()),
        }
    }

    fn file(&mut self) -> io::Result<PathBuf> {
        self.pick(|kind| kind == Kind::File)
    }

    /// Somewhere, perhaps taken.
    fn place(&mut self) -> PathBuf {
        let work = self.world.nodes[self.node].work();
        let mut parent = self.pick(|kind| kind == Kind::Directory).unwrap_or_else(|_| work.clone());
        if self.rng.below(3) == 0
            || parent.strip_prefix(&work).map_or(0, |path| path.components().count()) >= DEPTH
        {
            parent = work;
        }
        parent.join(NAMES[self.rng.below(NAMES.len())])
    }

    fn some_length(&mut self) -> usize {
        length(match self.rng.below(20) {
            0..6 => 32 + self.rng.below(480),
            6..15 => self.rng.below(20_000),
            15..19 => self.rng.below(200_000),
            _ => self.rng.below(3 << 20),
        })
    }

    fn act(&mut self) -> io::Result<()> {
        self.look()?;
        let less = self.known.len() > MANY && self.rng.below(2) == 0;
        let what = if less { 80 + self.rng.below(10) } else { self.rng.below(100) };
        match what {
            0..16 => self.create(),
            16..22 => {
                let place = self.place();
                self.tell(format_args!("mkdir {place:?}"));
                fs::create_dir(place)
            }
            22..40 => self.rewrite(),
            40..48 => self.replace(),
            48..52 => self.cut(),
            52..56 => {
                let path = self.pick(|kind| kind != Kind::Link)?;
                let mode = 0o700 | self.rng.below(0o100) as u32;
                self.tell(format_args!("chmod {mode:o} {path:?}"));
                fs::set_permissions(path, fs::Permissions::from_mode(mode))
            }
            56..59 => self.attribute(),
            59..72 => self.rename(),
            72..76 => {
                let (from, to) = (self.file()?, self.place());
                self.tell(format_args!("link {from:?} {to:?}"));
                fs::hard_link(from, to)
            }
            76..78 => {
                let place = self.place();
                self.tell(format_args!("symlink {place:?}"));
                symlink(NAMES[self.rng.below(NAMES.len())], place)
            }
            78..81 => {
                let path = self.pick(|kind| kind == Kind::Link)?;
                self.tell(format_args!("unlink {path:?}"));
                fs::remove_file(path)
            }
            81..86 => self.unlink(),
            86..88 => {
                let path = self.pick(|kind| kind == Kind::Directory)?;
                self.tell(format_args!("rmdir {path:?}"));
                fs::remove_dir(path)
            }
            88..92 => self.written_late(),
            _ => self.sync_what_is_there(),
        }
    }

    /// What a file holds: nothing that nobody wrote, and none in part that was not written or cut in part.
    fn seen(&self, file: &File, path: &Path) -> io::Result<Held> {
        let mut bytes = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let held = Held::of(&bytes);
        if let Err(what) = self.ledger().allows(&held) {
            self.world.note(format!("{} sees in {path:?} {what}", NODES[self.node]));
        }
        Ok(held)
    }

    /// The same of one that is about to be no more there.
    fn seen_at(&self, path: &Path) -> io::Result<Held> {
        self.seen(&File::open(path)?, path)
    }

    /// Somebody is about to do away with it.
    fn ends(&self, held: &Held) {
        held.contents().iter().for_each(|content| self.ledger().ends(content));
    }

    /// Somebody has done away with a file that held this when it was looked at.
    fn ended(&self, held: &Held) {
        held.contents().iter().for_each(|content| self.ledger().ended_unseen(self.node, content));
    }

    /// All of a file, in a way that leaves only whole blocks of one or the other content at any time.
    fn put(&mut self, file: &File, path: &Path, before: &Held) -> io::Result<Content> {
        let (line, len) = (before.contents().first().map(|content| content.line), self.some_length());
        let content = self.ledger().begin(self.node, line, len);
        self.tell(format_args!("puts {content:?} into {path:?} over {before:?}"));
        if file.metadata()?.len() as usize > len {
            file.set_len(len as u64)?;
        }
        file.write_all_at(&content.bytes(), 0)?;
        self.ledger().whole(&content);
        Ok(content)
    }

    fn sync(&self, file: &File, content: &Content) -> io::Result<()> {
        file.sync_all()?;
        // One without a name goes with its last close.
        let has_name = file.metadata()?.nlink() > 0;
        self.tell(format_args!("synced {}, has a name: {has_name}", content.token));
        if has_name && self.ledger().synced(content) {
            self.world.counts.synced.add(1);
            self.world.counts.synced_bytes.add(content.len as u64);
        }
        Ok(())
    }

    fn put_and_perhaps_sync(&mut self, file: File, path: PathBuf, before: &Held) -> io::Result<()> {
        self.ends(before);
        let content = self.put(&file, &path, before)?;
        if self.rng.below(3) > 0 {
            self.sync(&file, &content)?;
        }
        if self.rng.below(8) == 0 {
            self.open.push(Handle { file, path });
        }
        Ok(())
    }

    fn create(&mut self) -> io::Result<()> {
        let path = self.place();
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        self.put_and_perhaps_sync(file, path, &Held::Nothing)
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let file = File::options().read(true).write(true).open(&path)?;
        let before = self.seen(&file, &path)?;
        self.put_and_perhaps_sync(file, path, &before)
    }

    /// Through a file that was opened some time ago.
    fn written_late(&mut self) -> io::Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let n = self.rng.below(self.open.len());
        let Handle { file, path } = self.open.swap_remove(n);
        if self.rng.below(3) == 0 {
            self.tell(format_args!("closes {path:?}"));
            return Ok(());
        }
        let before = self.seen(&file, &path)?;
        self.put_and_perhaps_sync(file, path, &before)
    }

    /// As editors save: another file takes the place.
    fn replace(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let new = path.with_file_name(format!("{}.new", NODES[self.node]));
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&new)?;
        let before = self.seen(&file, &new)?;
        self.ends(&before);
        let content = self.put(&file, &new, &before)?;
        self.sync(&file, &content)?;
        drop(file);
        let old = self.seen_at(&path)?;
        if old == Held::Nothing {
            return Ok(());
        }
        self.ends(&old);
        self.tell(format_args!("{new:?} takes the place of {path:?} with {old:?}"));
        let done = fs::rename(new, path);
        self.ended(&old);
        done
    }

    fn cut(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let file = File::options().read(true).write(true).open(&path)?;
        let before = self.seen(&file, &path)?;
        let old = file.metadata()?.len() as usize;
        let len = length(self.rng.below(old + 1));
        if len >= old {
            return Ok(());
        }
        self.tell(format_args!("cuts {path:?} with {before:?} at {len}"));
        for content in before.contents() {
            self.ledger().ends(content);
            self.ledger().cut_short(content);
        }
        file.set_len(len as u64)
    }

    fn attribute(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let value = [b'0' + self.rng.below(4) as u8];
        self.tell(format_args!("xattr {value:?} {path:?}"));
        match value {
            [b'0'] => rustix::fs::removexattr(&path, ATTRIBUTE)?,
            _ => rustix::fs::setxattr(&path, ATTRIBUTE, &value, XattrFlags::empty())?,
        }
        Ok(())
    }

    fn rename(&mut self) -> io::Result<()> {
        let (from, to) = (self.pick(|_| true)?, self.place());
        let how = match self.rng.below(6) {
            0 => RenameFlags::NOREPLACE,
            1 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let over = match fs::symlink_metadata(&to) {
            Ok(there) if there.is_file() && how.is_empty() => Some(self.seen_at(&to)?),
            _ => None,
        };
        // Nobody can say whose it is.
        if over == Some(Held::Nothing) {
            return Ok(());
        }
        let how = if over.is_none() && how.is_empty() { RenameFlags::NOREPLACE } else { how };
        over.iter().for_each(|over| self.ends(over));
        self.tell(format_args!("rename {from:?} {to:?} {how:?} over {over:?}"));
        let done = rustix::fs::renameat_with(CWD, &from, CWD, &to, how);
        over.iter().for_each(|over| self.ended(over));
        Ok(done?)
    }

    fn unlink(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let held = self.seen_at(&path)?;
        if held == Held::Nothing {
            return Ok(());
        }
        self.ends(&held);
        self.tell(format_args!("unlink {path:?} with {held:?}"));
        let done = fs::remove_file(path);
        self.ended(&held);
        done
    }

    /// What is there, whoever wrote it.
    fn sync_what_is_there(&mut self) -> io::Result<()> {
        let path = self.file()?;
        let file = File::open(&path)?;
        match self.seen(&file, &path)? {
            Held::Whole(content) => self.sync(&file, &content),
            _ => Ok(()),
        }
    }
}
