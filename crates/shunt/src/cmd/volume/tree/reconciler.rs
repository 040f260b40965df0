//! The reconcile loop of a tree: mounts and unmounts volumes until the tree is as the config volume describes it, and again after
//! each change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shunt_fuse::mount::MountPoint;
use shunt_volume::id::VolumeName;
use shunt_volume::tree_config::{CONFIG, Files, NodeConfig, Tree};
use shunt_volumefs::TreeFs;

use super::plan::Plan;
use super::read::{self, Stamps};
use super::volume_process::{self, MountRequest, Volume};
use crate::cmd::volume::api::{TreeState, TreeVolume};
use crate::error::{Result, failed};

/// Polling interval of the files of the config volume, most of which the kernel has cached.
const CONFIG_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Polling interval while volumes are being mounted or unmounted.
const STEP_INTERVAL: Duration = Duration::from_millis(50);
/// How long the start of the tree waits for its first volumes.
const FIRST_MOUNTS_TIMEOUT: Duration = Duration::from_secs(15);

/// The file in the cache directory of the config volume with the configuration that was last in effect.
const SAVED_CONFIG_FILE: &str = "tree.json";

#[derive(Default)]
struct Shared {
    report: Mutex<TreeState>,
    is_stopping: Mutex<bool>,
    woken: Condvar,
}

/// The reconciler: see the [module](self).
pub struct Reconciler {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reconciler {
    pub fn new() -> Self {
        Self { shared: Arc::default(), thread: Mutex::default() }
    }

    /// The state of the tree.
    pub fn report(&self) -> TreeState {
        self.shared.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Mounts all volumes, and starts the thread of the reconcile loop.
    ///
    /// # Errors
    /// The config volume cannot be mounted.
    pub fn start(&self, fs: Arc<TreeFs>, plan: Plan, mount: &MountPoint) -> Result<()> {
        let mut work = ReconcileLoop::new(fs, plan, mount.path(), self.shared.clone());
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
        *self.shared.is_stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.woken.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = thread.map(JoinHandle::join);
    }
}

struct ReconcileLoop {
    fs: Arc<TreeFs>,
    plan: Plan,
    at: PathBuf,
    shared: Arc<Shared>,
    config: Volume,
    volumes: BTreeMap<VolumeName, Volume>,
    /// The stamps of the files that were read last, and the error in them.
    last_stamps: Option<Stamps>,
    error: Option<String>,
}

impl ReconcileLoop {
    fn new(fs: Arc<TreeFs>, plan: Plan, at: &Path, shared: Arc<Shared>) -> Self {
        let config = Volume::new(plan.config_name().to_string()).quiet();
        let volumes = BTreeMap::new();
        Self { fs, plan, at: at.to_owned(), shared, config, volumes, last_stamps: None, error: None }
    }

    fn begin(&mut self) -> Result<()> {
        self.config.request(Some(self.plan.config(&self.at)));
        self.wait_until(|work| work.config.is_settled());
        if let ("unmounted", Some(why)) = self.config.report() {
            let why = failed(why);
            self.unmount_all();
            return Err(why);
        }
        self.poll_config();
        if self.last_stamps.is_none() || self.error.is_some() {
            // Falls back to the configuration of the last run.
            let saved = std::fs::read(self.saved()).ok();
            let saved = saved.and_then(|bytes| serde_json::from_slice::<Files>(&bytes).ok());
            if let Some(tree) = saved.and_then(|files| Tree::parse(&files).ok()) {
                self.put_in_effect(&tree);
            }
        }
        self.wait_until(|work| work.volumes.values().all(Volume::is_settled));
        Ok(())
    }

    fn wait_until(&mut self, is_settled: impl Fn(&Self) -> bool) {
        let until = Instant::now() + FIRST_MOUNTS_TIMEOUT;
        self.step();
        while !is_settled(self) && Instant::now() < until && !self.pause(STEP_INTERVAL) {
            self.step();
        }
    }

    fn run(mut self) {
        let mut looked = Instant::now();
        loop {
            let moving = !self.config.is_settled() || !self.volumes.values().all(Volume::is_settled);
            if self.pause(if moving { STEP_INTERVAL } else { CONFIG_POLL_INTERVAL }) {
                break;
            }
            if looked.elapsed() >= CONFIG_POLL_INTERVAL {
                self.poll_config();
                looked = Instant::now();
            }
            self.step();
        }
        self.unmount_all();
    }

    /// Waits for `length`; returns whether the tree ends.
    fn pause(&self, length: Duration) -> bool {
        let ends = self.shared.is_stopping.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.woken.wait_timeout_while(ends, length, |ends| !*ends);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reads the files if they changed. An error is logged once, and the configuration in effect stays.
    fn poll_config(&mut self) {
        if self.config.report().0 != "mounted" {
            return;
        }
        let top = self.at.join(CONFIG);
        let stamps = match Stamps::take(&top) {
            Ok(stamps) => stamps,
            Err(error) => return self.report_error(format!("cannot read {}: {error}", top.display())),
        };
        if self.last_stamps.as_ref() == Some(&stamps) {
            return;
        }
        let files = stamps.read(&top);
        let understood = files.and_then(|files| Tree::parse(&files).map(|tree| (tree, files)));
        // The files changed while they were read: read them again at the next look.
        if Stamps::take(&top).ok().as_ref() != Some(&stamps) {
            return;
        }
        self.last_stamps = Some(stamps);
        match understood {
            Ok((tree, files)) => {
                self.error = None;
                tracing::info!("the configuration in volume {} is in effect", self.plan.config_name());
                self.put_in_effect(&tree);
                self.save(&files);
            }
            Err(error) => self.report_error(error.to_string()),
        }
    }

    fn report_error(&mut self, error: String) {
        if self.error.as_ref() != Some(&error) {
            tracing::error!("cannot apply the configuration, the previous one stays in effect: {error}");
            self.error = Some(error);
        }
    }

    fn put_in_effect(&mut self, tree: &Tree) {
        let accounts = read::accounts();
        let here: NodeConfig =
            tree.on(self.plan.node(), |name| accounts.user(name), |name| accounts.group(name));
        let mut requested: BTreeMap<VolumeName, MountRequest> = BTreeMap::new();
        for (name, member) in &here.volumes {
            if name == self.plan.config_name() {
                continue;
            }
            match self.plan.volume(&self.at, name, member, &here) {
                Ok(volume) => drop(requested.insert(name.clone(), volume)),
                Err(failure) => tracing::error!("cannot mount volume {name}: {failure}"),
            }
            self.volumes.entry(name.clone()).or_insert_with(|| Volume::new(name.to_string()));
        }
        for (name, volume) in &mut self.volumes {
            volume.request(requested.remove(name));
        }
    }

    fn saved(&self) -> PathBuf {
        self.plan.cache(self.plan.config_name()).join(SAVED_CONFIG_FILE)
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
        self.update_directories();
        self.config.step(&[]);
        let names: Vec<VolumeName> = self.volumes.keys().cloned().collect();
        for name in names {
            let Some(mut volume) = self.volumes.remove(&name) else { continue };
            let others: Vec<&MountRequest> =
                self.volumes.values().filter_map(Volume::current_mount).collect();
            volume.step(&others);
            if !volume.is_removed() {
                self.volumes.insert(name, volume);
            }
        }
        self.update_directories();
        self.publish_report();
    }

    fn update_directories(&self) {
        let config = [CONFIG.to_owned()];
        let mount_paths = self.volumes.values().flat_map(Volume::mount_paths);
        self.fs.set_directories(mount_paths.chain([&config[..]]));
    }

    fn publish_report(&self) {
        let volumes = self.volumes.iter().map(|(name, volume)| {
            let (status, error) = volume.report();
            let place = volume.mount_paths().next().unwrap_or_default().join("/");
            TreeVolume {
                name: name.to_string(),
                place,
                status: status.to_owned(),
                error: error.map(str::to_owned),
                ..TreeVolume::default()
            }
        });
        let report = TreeState {
            config: self.plan.config_name().to_string(),
            node: self.plan.node().to_string(),
            error: self.error.clone(),
            volumes: volumes.collect(),
        };
        *self.shared.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    fn unmount_all(&mut self) {
        let config = std::mem::replace(&mut self.config, Volume::new(String::new()));
        let volumes = std::mem::take(&mut self.volumes);
        volumes.into_values().chain([config]).for_each(Volume::wait_for_exit);
    }
}
