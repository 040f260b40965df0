//! Many concurrent processes, each checked against its own model, and a daemon killed while they work.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shunt_test_support::{Peer, needs_mount, pace, rings};
use shunt_tests::{Fixture, Plan, Rng, fixture, mounts};

/// Expected state of a process's directory: every file whose write was acknowledged, and every directory.
#[derive(Default)]
struct Model {
    files: BTreeMap<PathBuf, Vec<u8>>,
    dirs: Vec<PathBuf>,
    /// Names that the last operation may have changed, because it failed or was never acknowledged.
    unsure: Vec<PathBuf>,
}

impl Model {
    fn pick(&self, rng: &mut Rng) -> Option<PathBuf> {
        let at = (!self.files.is_empty()).then(|| rng.below(self.files.len()))?;
        self.files.keys().nth(at).cloned()
    }

    fn fresh(&self, rng: &mut Rng) -> PathBuf {
        let dir = match rng.below(self.dirs.len() + 1) {
            0 => PathBuf::new(),
            n => self.dirs[n - 1].clone(),
        };
        dir.join(format!("n{}", rng.below(1 << 30)))
    }

    /// Executes one operation below `base`, and on success applies it to the model.
    fn step(&mut self, base: &Path, rng: &mut Rng) -> io::Result<()> {
        let old = self.pick(rng);
        let new = self.fresh(rng);
        self.unsure = old.iter().cloned().chain([new.clone()]).collect();
        match (rng.below(12), old) {
            (0..=2, _) | (_, None) => {
                let len = rng.below(30_000);
                let data = rng.bytes(len);
                fs::write(base.join(&new), &data)?;
                self.files.insert(new, data);
            }
            (3, _) if self.dirs.len() < 20 => {
                fs::create_dir(base.join(&new))?;
                self.dirs.push(new);
            }
            (3..=4, Some(old)) => {
                let file = File::options().write(true).open(base.join(&old))?;
                let (at, len) = (rng.below(20_000), 1 + rng.below(5000));
                let data = rng.bytes(len);
                file.write_all_at(&data, at as u64)?;
                let known = self.files.get_mut(&old).expect("picked");
                known.resize(known.len().max(at + len), 0);
                known[at..at + len].copy_from_slice(&data);
            }
            (5, Some(old)) => {
                let len = rng.below(10_000);
                File::options().write(true).open(base.join(&old))?.set_len(len as u64)?;
                self.files.get_mut(&old).expect("picked").resize(len, 0);
            }
            (6..=7, Some(old)) => {
                fs::rename(base.join(&old), base.join(&new))?;
                let data = self.files.remove(&old).expect("picked");
                self.files.insert(new, data);
            }
            (8, Some(old)) => {
                fs::remove_file(base.join(&old))?;
                self.files.remove(&old);
            }
            (9, Some(old)) => {
                // Replaces another file.
                let target = self.pick(rng).expect("not empty");
                self.unsure.push(target.clone());
                fs::rename(base.join(&old), base.join(&target))?;
                let data = self.files.remove(&old).expect("picked");
                self.files.insert(target, data);
            }
            (_, Some(old)) => {
                let seen = fs::read(base.join(&old))?;
                assert!(seen == self.files[&old], "{} does not hold what was written", old.display());
            }
        }
        self.unsure.clear();
        Ok(())
    }

    /// Compares the model with the directory. Names in `unsure` may be in either state.
    fn check(&self, base: &Path) {
        let mut there = BTreeMap::new();
        collect(base, Path::new(""), &mut there);
        for (name, data) in &self.files {
            if !self.unsure.contains(name) {
                let found = there
                    .get(name)
                    .unwrap_or_else(|| panic!("{} was acknowledged and is gone", name.display()));
                assert!(found == data, "{}: {} bytes, want {}", name.display(), found.len(), data.len());
            }
        }
        for name in there.keys() {
            assert!(
                self.files.contains_key(name) || self.unsure.contains(name),
                "{} should not be there",
                name.display()
            );
        }
        for name in &self.dirs {
            assert!(base.join(name).is_dir(), "{} was acknowledged and is gone", name.display());
        }
    }
}

fn collect(base: &Path, inner: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(base.join(inner)).unwrap() {
        let entry = entry.unwrap();
        let name = inner.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            collect(base, &name, found);
        } else {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

fn processes_with_models(plan: Plan) {
    fixture::perform(plan.patience(120), |s| {
        let peers: Vec<_> = (0..6u64)
            .map(|n| {
                let (base, lower) = (s.path(format!("p{n}")), s.lower(format!("p{n}")));
                Peer::start(move |_| {
                    fs::create_dir(&base).unwrap();
                    let (mut model, mut rng) = (Model::default(), Rng::new(100 + n));
                    for step in 0..1500 {
                        model
                            .step(&base, &mut rng)
                            .unwrap_or_else(|e| panic!("process {n}, step {step}: {e}"));
                    }
                    model.check(&base);
                    model.check(&lower);
                })
            })
            .collect();
        peers.into_iter().for_each(Peer::done);
    });
}

#[test]
fn six_processes_on_tmpfs() {
    processes_with_models(Plan::tmpfs());
}

#[test]
fn six_processes_on_ext4() {
    processes_with_models(Plan::ext4());
}

#[test]
fn six_processes_through_the_daemon() {
    processes_with_models(Plan::daemon());
}

#[test]
fn six_processes_without_caches() {
    processes_with_models(Plan::daemon().args(&["--cache", "none"]));
}

/// All processes use the same names in one directory: errors are fine, but only the expected ones.
#[test]
fn six_processes_in_one_directory() {
    fixture::perform(Plan::tmpfs(), |s| {
        let peers: Vec<_> = (0..6u64)
            .map(|n| {
                let base = s.mnt().to_owned();
                Peer::start(move |_| {
                    let mut rng = Rng::new(200 + n);
                    for _ in 0..2000 {
                        let (a, b) = (
                            base.join(format!("{}", rng.below(12))),
                            base.join(format!("{}", rng.below(12))),
                        );
                        let done = match rng.below(8) {
                            0 => fs::write(&a, b"x"),
                            1 => fs::create_dir(&a),
                            2 => fs::rename(&a, &b),
                            3 => fs::remove_file(&a),
                            4 => fs::remove_dir(&a),
                            5 => fs::hard_link(&a, &b),
                            6 => fs::read_dir(&base).and_then(|mut d| d.try_for_each(|e| e.map(drop))),
                            _ => fs::symlink_metadata(&a).map(drop),
                        };
                        let expected = [
                            libc::ENOENT,
                            libc::EEXIST,
                            libc::EISDIR,
                            libc::ENOTDIR,
                            libc::ENOTEMPTY,
                            libc::EPERM,
                            libc::EINVAL,
                        ];
                        if let Err(e) = done {
                            assert!(expected.contains(&e.raw_os_error().unwrap_or(0)), "{e}");
                        }
                    }
                })
            })
            .collect();
        peers.into_iter().for_each(Peer::done);
        // Both sides list the same names.
        let mut names: Vec<_> = fs::read_dir(s.mnt()).unwrap().map(|e| e.unwrap().file_name()).collect();
        let mut below: Vec<_> = fs::read_dir(s.src()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        below.sort();
        assert_eq!(names, below);
        for name in names {
            let (m, l) =
                (fs::symlink_metadata(s.path(&name)).unwrap(), fs::symlink_metadata(s.lower(&name)).unwrap());
            use std::os::unix::fs::MetadataExt as _;
            assert_eq!(
                (m.ino(), m.mode(), m.nlink(), m.len()),
                (l.ino(), l.mode(), l.nlink(), l.len()),
                "{name:?}"
            );
        }
    });
}

/// `kill -9` during the work: every process gets an error soon, no dead mount remains, and acknowledged changes are present.
fn killed(plan: Plan, seed: u64) {
    fixture::perform(plan.args(&["--takeover", "off"]), |s| {
        let mut peers: Vec<_> = (0..4u64).map(|n| worker(s, n, seed)).collect();
        peers.iter_mut().for_each(|p| assert!(p.link().receive().is_some()));
        std::thread::sleep(Duration::from_millis(300 + seed * 70));
        let start = Instant::now();
        assert!(mounts::signal(s.pid(), Signal::KILL));
        for peer in peers {
            peer.done_within(Duration::from_secs(5));
        }
        assert!(start.elapsed() < pace::seconds(5), "somebody hung: {:?}", start.elapsed());
        assert!(s.ends_within(Duration::from_secs(2)), "mounts left: {}", mounts::count(s.mnt()));
    });
}

/// Works until the mount fails, then checks that the source contains all acknowledged changes.
fn worker(s: &Fixture, n: u64, seed: u64) -> Peer {
    let (base, lower) = (s.path(format!("p{n}")), s.lower(format!("p{n}")));
    Peer::start(move |link| {
        fs::create_dir(&base).unwrap();
        let (mut model, mut rng) = (Model::default(), Rng::new(seed * 1000 + n));
        link.send(1);
        let deadline = Instant::now() + pace::seconds(20);
        let error = loop {
            match model.step(&base, &mut rng) {
                Ok(()) => assert!(Instant::now() < deadline, "the mount was killed, but goes on"),
                Err(e) => break e,
            }
        };
        // ENOENT: the mount was removed already, and the mount point is an empty directory.
        let expected = [libc::ENOTCONN, libc::ECONNABORTED, libc::EIO, libc::ENOENT, libc::ENODEV];
        // ECANCELED: the request was being sent to a ring whose thread had died.
        let over_rings = rings::over_rings() && error.raw_os_error() == Some(libc::ECANCELED);
        assert!(over_rings || expected.contains(&error.raw_os_error().unwrap_or(0)), "{error}");
        model.check(&lower);
    })
}

#[test]
fn killed_on_tmpfs() {
    needs_mount!();
    (1..4).for_each(|seed| killed(Plan::tmpfs(), seed));
}

#[test]
fn killed_on_ext4() {
    needs_mount!();
    killed(Plan::ext4(), 4);
}

#[test]
fn killed_with_data_through_the_daemon() {
    needs_mount!();
    (5..7).for_each(|seed| killed(Plan::daemon(), seed));
}
