//! The reconcile loop of a tree: mounts and unmounts volumes until the tree is as the config volume describes it, and again after
//! each change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shunt_fuse::mount::MountPoint;
use shunt_volume::id::VolumeName;
use shunt_volume::tree_config::{CONFIG, Files, Here, Tree};
use shunt_volumefs::TreeFs;

use super::plan::Plan;
use super::read::{self, Stamps};
use super::volume_process::{self, Volume, Wanted};
use crate::cmd::volume::api::{TreeState, TreeVolume};
use crate::error::{Result, failed};

/// Polling interval of the files of the config volume, most of which the kernel has cached.
const LOOK: Duration = Duration::from_secs(1);
/// Polling interval while volumes are being mounted or unmounted.
const STEP: Duration = Duration::from_millis(50);
/// How long the start of the tree waits for its first volumes.
const FIRST: Duration = Duration::from_secs(15);

/// The file in the cache directory of the config volume with the configuration that was last in effect.
const SAVED: &str = "tree.json";

#[derive(Default)]
struct Shared {
    told: Mutex<TreeState>,
    ends: Mutex<bool>,
    woken: Condvar,
}

/// The reconciler: see the [module](self).
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    pub fn new() -> Self {
        Self { shared: Arc::default(), thread: Mutex::default() }
    }

    /// The state of the tree.
    pub fn tell(&self) -> TreeState {
        self.shared.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Mounts all volumes, and starts the thread of the reconcile loop.
    ///
    /// # Errors
    /// The config volume cannot be mounted.
    pub fn start(&self, fs: Arc<TreeFs>, plan: Plan, mount: &MountPoint) -> Result<()> {
        let mut work = Work::new(fs, plan, mount.path(), self.shared.clone());
        work.begin()?;
        let thread = std::thread::Builder::new()
            .name("tree".into())
            .spawn(move || work.run())
            .map_err(|error| failed(format_args!("cannot start a thread: {error}")))?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Ends the loop after the tree was unmounted, and waits until each volume has committed everything.
    pub fn end(&self) {
        *self.shared.ends.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.woken.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = thread.map(JoinHandle::join);
    }
}

struct Work {
    fs: Arc<TreeFs>,
    plan: Plan,
    at: PathBuf,
    shared: Arc<Shared>,
    config: Volume,
    volumes: BTreeMap<VolumeName, Volume>,
    /// The stamps of the files that were read last, and the error in them.
    seen: Option<Stamps>,
    error: Option<String>,
}

impl Work {
    fn new(fs: Arc<TreeFs>, plan: Plan, at: &Path, shared: Arc<Shared>) -> Self {
        let config = Volume::new(plan.config_name().to_string()).quiet();
        let volumes = BTreeMap::new();
        Self { fs, plan, at: at.to_owned(), shared, config, volumes, seen: None, error: None }
    }

    fn begin(&mut self) -> Result<()> {
        self.config.want(Some(self.plan.config(&self.at)));
        self.settle(|work| work.config.is_settled());
        if let ("unmounted", Some(why)) = self.config.tell() {
            let why = failed(why);
            self.leave();
            return Err(why);
        }
        self.look();
        if self.seen.is_none() || self.error.is_some() {
            // Falls back to the configuration of the last run.
            let saved = std::fs::read(self.saved()).ok();
            let saved = saved.and_then(|bytes| serde_json::from_slice::<Files>(&bytes).ok());
            if let Some(tree) = saved.and_then(|files| Tree::parse(&files).ok()) {
                self.put_in_effect(&tree);
            }
        }
        self.settle(|work| work.volumes.values().all(Volume::is_settled));
        Ok(())
    }

    fn settle(&mut self, is_settled: impl Fn(&Self) -> bool) {
        let until = Instant::now() + FIRST;
        self.step();
        while !is_settled(self) && Instant::now() < until && !self.pause(STEP) {
            self.step();
        }
    }

    fn run(mut self) {
        let mut looked = Instant::now();
        loop {
            let moving = !self.config.is_settled() || !self.volumes.values().all(Volume::is_settled);
            if self.pause(if moving { STEP } else { LOOK }) {
                break;
            }
            if looked.elapsed() >= LOOK {
                self.look();
                looked = Instant::now();
            }
            self.step();
        }
        self.leave();
    }

    /// Waits for `length`; returns whether the tree ends.
    fn pause(&self, length: Duration) -> bool {
        let ends = self.shared.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.woken.wait_timeout_while(ends, length, |ends| !*ends);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reads the files if they changed. An error is logged once, and the configuration in effect stays.
    fn look(&mut self) {
        if self.config.tell().0 != "mounted" {
            return;
        }
        let top = self.at.join(CONFIG);
        let stamps = match Stamps::take(&top) {
            Ok(stamps) => stamps,
            Err(error) => return self.complain(format!("cannot read {}: {error}", top.display())),
        };
        if self.seen.as_ref() == Some(&stamps) {
            return;
        }
        let files = stamps.read(&top);
        let understood = files.and_then(|files| Tree::parse(&files).map(|tree| (tree, files)));
        // The files changed while they were read: read them again at the next look.
        if Stamps::take(&top).ok().as_ref() != Some(&stamps) {
            return;
        }
        self.seen = Some(stamps);
        match understood {
            Ok((tree, files)) => {
                self.error = None;
                tracing::info!("the tree is as {} says", self.plan.config_name());
                self.put_in_effect(&tree);
                self.save(&files);
            }
            Err(error) => self.complain(error.to_string()),
        }
    }

    fn complain(&mut self, error: String) {
        if self.error.as_ref() != Some(&error) {
            tracing::error!("the tree stays as it was: {error}");
            self.error = Some(error);
        }
    }

    fn put_in_effect(&mut self, tree: &Tree) {
        let accounts = read::accounts();
        let here: Here = tree.on(self.plan.node(), |name| accounts.user(name), |name| accounts.group(name));
        let mut wanted: BTreeMap<VolumeName, Wanted> = BTreeMap::new();
        for (name, member) in &here.volumes {
            if name == self.plan.config_name() {
                continue;
            }
            match self.plan.volume(&self.at, name, member, &here) {
                Ok(volume) => drop(wanted.insert(name.clone(), volume)),
                Err(failure) => tracing::error!("volume {name}: {failure}"),
            }
            self.volumes.entry(name.clone()).or_insert_with(|| Volume::new(name.to_string()));
        }
        for (name, volume) in &mut self.volumes {
            volume.want(wanted.remove(name));
        }
    }

    fn saved(&self) -> PathBuf {
        self.plan.cache(self.plan.config_name()).join(SAVED)
    }

    /// Saves the files for a start at which they cannot be read or are invalid.
    fn save(&self, files: &Files) {
        let bytes = serde_json::to_vec(files).map_err(std::io::Error::other);
        if let Err(error) = bytes.and_then(|bytes| volume_process::write(&self.saved(), &bytes)) {
            tracing::warn!("cannot write {}: {error}", self.saved().display());
        }
    }

    /// Advances each volume one step towards its requested state.
    fn step(&mut self) {
        self.show();
        self.config.step(&[]);
        let names: Vec<VolumeName> = self.volumes.keys().cloned().collect();
        for name in names {
            let Some(mut volume) = self.volumes.remove(&name) else { continue };
            let others: Vec<&Wanted> = self.volumes.values().filter_map(Volume::held).collect();
            volume.step(&others);
            if !volume.is_gone() {
                self.volumes.insert(name, volume);
            }
        }
        self.show();
        self.tell();
    }

    fn show(&self) {
        let config = [CONFIG.to_owned()];
        let places = self.volumes.values().flat_map(Volume::places);
        self.fs.show(places.chain([&config[..]]));
    }

    fn tell(&self) {
        let volumes = self.volumes.iter().map(|(name, volume)| {
            let (status, error) = volume.tell();
            let place = volume.places().next().unwrap_or_default().join("/");
            TreeVolume {
                name: name.to_string(),
                place,
                status: status.to_owned(),
                error: error.map(str::to_owned),
                ..TreeVolume::default()
            }
        });
        let told = TreeState {
            config: self.plan.config_name().to_string(),
            node: self.plan.node().to_string(),
            error: self.error.clone(),
            volumes: volumes.collect(),
        };
        *self.shared.told.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    fn leave(&mut self) {
        let config = std::mem::replace(&mut self.config, Volume::new(String::new()));
        let volumes = std::mem::take(&mut self.volumes);
        volumes.into_values().chain([config]).for_each(Volume::outlast);
    }
}
