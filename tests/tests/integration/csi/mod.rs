//! The CSI plugin, `shunt csi`: over its socket, with real mounts.

mod lifecycle;
mod restarts;
mod sanity;
mod volumes;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shunt_csi::client::{ControllerClient, NodeClient, connect};
use shunt_csi::proto::{
    AccessMode, AccessType, CreateVolumeRequest, DeleteVolumeRequest, Mode, MountVolume,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, Volume, VolumeCapability,
};
use shunt_test_support::cmd::within;
use shunt_test_support::pace;
use shunt_tests::{binary, mounts};
use tempfile::TempDir;
use tonic::{Code, Status};

/// A node: its plugin, and the directories of an orchestrator. Dropping it removes what the plugin has mounted.
struct Node {
    dir: TempDir,
    cgroups: Option<Cgroups>,
    plugin: Option<Child>,
    program: PathBuf,
    provisioner: bool,
    runtime: tokio::runtime::Runtime,
}

impl Node {
    /// A node whose plugin can provision volumes.
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("csi").tempdir().unwrap();
        for name in ["pods", "base", "run"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let program = small_program(dir.path());
        Self { cgroups: Cgroups::new(dir.path()), dir, plugin: None, program, provisioner: true, runtime }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("run/csi.sock")
    }

    /// The command of the plugin, in the cgroup that stands for its container.
    fn command(&self) -> Command {
        let mut words: Vec<String> = Vec::new();
        let mut command = match &self.cgroups {
            Some(cgroups) => {
                words.extend(["--detach".to_owned(), "cgroup".to_owned(), "--cgroup".to_owned()]);
                words.push(cgroups.mounts().display().to_string());
                let mut command = Command::new("sh");
                command.arg("-c").arg(r#"echo $$ > "$0/cgroup.procs"; exec "$@""#).arg(cgroups.plugin());
                command.arg(&self.program);
                command
            }
            None => {
                words.extend(["--detach".to_owned(), "session".to_owned()]);
                Command::new(&self.program)
            }
        };
        command.arg("csi").arg("--endpoint").arg(format!("unix://{}", self.socket().display()));
        command.args(["--node-id", "node-1", "--state-dir"]).arg(self.path("state")).args(words);
        if self.provisioner {
            command.arg("--provision-dir").arg(self.path("base"));
        }
        command
    }

    /// Starts the plugin, and waits until it serves.
    #[track_caller]
    fn start(&mut self) {
        let command = self.command();
        self.start_as(command);
    }

    #[track_caller]
    fn start_as(&mut self, mut command: Command) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("plugin.log")).unwrap();
        command.env("RUST_LOG", "info").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut plugin = command.spawn().unwrap();
        let mut line = String::new();
        let _ = BufReader::new(plugin.stdout.take().unwrap()).read_line(&mut line);
        self.plugin = Some(plugin);
        assert!(line.contains("serves the node node-1"), "{line:?}: {}", self.log());
    }

    /// The log of the plugins.
    fn log(&self) -> String {
        fs::read_to_string(self.path("plugin.log")).unwrap_or_default()
    }

    /// Ends the plugin by a signal.
    fn signal(&mut self, signal: Signal) {
        let mut plugin = self.plugin.take().expect("it runs");
        mounts::signal(plugin.id(), signal);
        let ended = within(pace::seconds(20), || plugin.try_wait().unwrap().is_some());
        assert!(ended, "the plugin does not end: {}", self.log());
    }

    /// Ends all processes of the plugin's container, as the end of a container does.
    fn end_container(&mut self) {
        match &self.cgroups {
            Some(cgroups) => {
                fs::write(cgroups.plugin().join("cgroup.kill"), "1").unwrap();
                self.plugin.take().expect("it runs").wait().unwrap();
            }
            None => self.signal(Signal::KILL),
        }
    }

    fn nodes<T>(
        &self,
        call: impl AsyncFnOnce(NodeClient<tonic::transport::Channel>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let socket = self.socket();
        self.runtime.block_on(async {
            let channel = connect(&socket).await.map_err(|error| Status::unavailable(error.to_string()))?;
            call(NodeClient::new(channel)).await
        })
    }

    fn controllers<T>(
        &self,
        call: impl AsyncFnOnce(ControllerClient<tonic::transport::Channel>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let socket = self.socket();
        self.runtime.block_on(async {
            let channel = connect(&socket).await.map_err(|error| Status::unavailable(error.to_string()))?;
            call(ControllerClient::new(channel)).await
        })
    }

    fn create(
        &self,
        name: &str,
        parameters: &[(&str, &str)],
        secrets: &[(&str, &str)],
    ) -> Result<Volume, Status> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            volume_capabilities: vec![capability(Mode::SingleNodeWriter)],
            parameters: map(parameters),
            secrets: map(secrets),
            ..CreateVolumeRequest::default()
        };
        self.controllers(async |mut client| client.create_volume(request).await)
            .map(|response| response.into_inner().volume.expect("a volume"))
    }

    fn delete(&self, volume_id: &str) -> Result<(), Status> {
        let request =
            DeleteVolumeRequest { volume_id: volume_id.to_owned(), ..DeleteVolumeRequest::default() };
        self.controllers(async |mut client| client.delete_volume(request).await).map(drop)
    }

    /// A mirror of a new directory of the node, not provisioned.
    fn mirror(&self, name: &str) -> Volume {
        let source = self.path(&format!("source-{name}"));
        fs::create_dir_all(&source).unwrap();
        Volume {
            volume_id: name.to_owned(),
            volume_context: map(&[("kind", "mirror"), ("source", source.to_str().unwrap())]),
            ..Volume::default()
        }
    }

    fn staging(&self, volume: &Volume) -> PathBuf {
        self.path(&format!("pods/{}-staging", volume.volume_id))
    }

    fn target(&self, volume: &Volume) -> PathBuf {
        self.path(&format!("pods/{}", volume.volume_id))
    }

    fn stage(&self, volume: &Volume, secrets: &[(&str, &str)]) -> Result<(), Status> {
        let request = NodeStageVolumeRequest {
            volume_id: volume.volume_id.clone(),
            staging_target_path: text(&self.staging(volume)),
            volume_capability: Some(capability(Mode::SingleNodeWriter)),
            volume_context: volume.volume_context.clone(),
            secrets: map(secrets),
            ..NodeStageVolumeRequest::default()
        };
        self.nodes(async |mut client| client.node_stage_volume(request).await).map(drop)
    }

    fn publish_at(&self, volume: &Volume, target: &Path, readonly: bool) -> Result<(), Status> {
        let request = NodePublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            staging_target_path: text(&self.staging(volume)),
            target_path: text(target),
            volume_capability: Some(capability(Mode::SingleNodeWriter)),
            volume_context: volume.volume_context.clone(),
            readonly,
            ..NodePublishVolumeRequest::default()
        };
        self.nodes(async |mut client| client.node_publish_volume(request).await).map(drop)
    }

    fn publish(&self, volume: &Volume) -> Result<(), Status> {
        self.publish_at(volume, &self.target(volume), false)
    }

    fn unpublish_at(&self, volume: &Volume, target: &Path) -> Result<(), Status> {
        let request =
            NodeUnpublishVolumeRequest { volume_id: volume.volume_id.clone(), target_path: text(target) };
        self.nodes(async |mut client| client.node_unpublish_volume(request).await).map(drop)
    }

    fn unpublish(&self, volume: &Volume) -> Result<(), Status> {
        self.unpublish_at(volume, &self.target(volume))
    }

    fn unstage(&self, volume: &Volume) -> Result<(), Status> {
        let request = NodeUnstageVolumeRequest {
            volume_id: volume.volume_id.clone(),
            staging_target_path: text(&self.staging(volume)),
        };
        self.nodes(async |mut client| client.node_unstage_volume(request).await).map(drop)
    }

    fn stats(&self, volume: &Volume) -> Result<NodeGetVolumeStatsResponse, Status> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.volume_id.clone(),
            volume_path: text(&self.target(volume)),
            staging_target_path: String::new(),
        };
        self.nodes(async |mut client| client.node_get_volume_stats(request).await)
            .map(tonic::Response::into_inner)
    }

    /// `shunt stat --json` of a volume.
    fn stat(&self, volume: &Volume) -> serde_json::Value {
        let output = binary::command(&["stat", "--json"]).arg(self.staging(volume)).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Processes of the daemon of a volume and its guardian.
    fn processes(&self, volume: &Volume) -> Vec<u32> {
        mounts::processes_naming(&self.staging(volume))
    }

    /// Kills the daemon of a volume together with its guardian, which leaves a dead mount.
    fn kill_daemon(&self, volume: &Volume) {
        let daemon = u32::try_from(self.stat(volume)["pid"].as_u64().expect("a daemon")).unwrap();
        mounts::end(daemon);
        assert!(within(pace::seconds(10), || !mounts::alive(daemon)));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut plugin) = self.plugin.take() {
            let _ = plugin.kill();
            let _ = plugin.wait();
        }
        let pods = self.path("pods");
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let left: Vec<PathBuf> = table
            .lines()
            .filter_map(|line| line.split(' ').nth(4).map(PathBuf::from))
            .filter(|path| path.starts_with(&pods))
            .collect();
        for path in left.iter().rev() {
            mounts::processes_naming(path).into_iter().for_each(mounts::end);
            mounts::detach(path);
        }
        let all_ended = within(pace::seconds(10), || mounts::processes_naming(self.dir.path()).is_empty());
        if let Some(cgroups) = &self.cgroups {
            cgroups.remove();
        }
        if !std::thread::panicking() {
            assert!(left.is_empty(), "mounts are left: {left:?}");
            assert!(all_ended, "processes are left: {:?}", mounts::processes_naming(self.dir.path()));
        } else {
            eprintln!("{}", self.log());
        }
    }
}

/// A cgroup for the plugin, which stands for its container, and one for mounts, of a cgroup file system of version 2.
struct Cgroups {
    top: PathBuf,
}

impl Cgroups {
    /// Creates them; `None` if this user or kernel cannot.
    fn new(dir: &Path) -> Option<Self> {
        let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let root = table.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?.to_owned();
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned();
        let name = format!("shunt-test-{}", dir.file_name()?.to_str()?);
        let cgroups = Self { top: Path::new(&root).join(own).join(name) };
        fs::create_dir(&cgroups.top).ok()?;
        fs::create_dir(cgroups.plugin()).ok()?;
        fs::create_dir(cgroups.mounts()).ok()?;
        if !cgroups.plugin().join("cgroup.kill").exists() {
            cgroups.remove();
            return None;
        }
        Some(cgroups)
    }

    fn plugin(&self) -> PathBuf {
        self.top.join("plugin")
    }

    fn mounts(&self) -> PathBuf {
        self.top.join("mounts")
    }

    fn remove(&self) {
        let children = fs::read_dir(self.mounts()).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_left =
            |path: &Path| within(Duration::from_secs(5), || fs::remove_dir(path).is_ok() || !path.exists());
        children.filter(|path| path.is_dir()).for_each(|path| {
            is_left(&path);
        });
        is_left(&self.mounts());
        is_left(&self.plugin());
        is_left(&self.top);
    }
}

/// The command under test without debug information, so that copying it takes no time.
fn small_program(dir: &Path) -> PathBuf {
    let path = dir.join("shunt");
    let stripped = Command::new("strip").arg("-o").arg(&path).arg(binary::shunt()).status();
    if !stripped.is_ok_and(|status| status.success()) {
        shunt_test_support::copy_program(binary::shunt(), &path);
    }
    path
}

fn capability(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: mode as i32 }),
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Repeats a call while the plugin answers that another one on the volume is running, as orchestrators do.
fn retried<T>(mut call: impl FnMut() -> Result<T, Status>) -> Result<T, Status> {
    let end = Instant::now() + pace::seconds(30);
    loop {
        match call() {
            Err(status) if status.code() == Code::Aborted && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}
