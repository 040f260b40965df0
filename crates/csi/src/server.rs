//! The server: a socket, the services, and an orderly end.

use std::fs::{self, File, OpenOptions, Permissions};
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use tokio::net::UnixListener;
use tokio::runtime::Builder;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Response, Status};

use crate::catalog::Catalog;
use crate::commands::Commands;
use crate::config::Config;
use crate::controller::ControllerService;
use crate::identity::IdentityService;
use crate::inflight::InFlight;
use crate::node::NodeService;
use crate::proto::service::controller_server::ControllerServer;
use crate::proto::service::identity_server::IdentityServer;
use crate::proto::service::node_server::NodeServer;
use crate::record_file::create_private_dir;
use crate::stages::Stages;
use crate::status;

/// How long a plugin waits for its predecessor to end.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(20);
/// How long running calls may take once the plugin was told to end. Their commands continue.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of calls that run at the same time on a connection.
const MAX_CALLS: usize = 64;
/// Limit of threads for blocking work.
const MAX_BLOCKING_THREADS: usize = 128;

/// Serves the plugin until `stop` is ready. `ready` is called once calls are accepted.
///
/// # Errors
/// The state directory or the socket cannot be used, or another plugin uses the state directory.
pub fn serve(config: Config, stop: impl Future<Output = ()>, ready: impl FnOnce()) -> io::Result<()> {
    create_private_dir(&config.state_dir)?;
    let _lock = lock(&config)?;
    let config = Arc::new(config);
    let stages = Stages::open(&config.state_dir)?;
    let commands = Commands::new(Arc::clone(&config))?;
    let calls = InFlight::default();
    let controller = match config.provision.clone() {
        Some(provision) => Some(ControllerService {
            config: Arc::clone(&config),
            catalog: Catalog::open(&provision.base)?,
            provision,
            commands: commands.clone(),
            stages: stages.clone(),
            calls: calls.clone(),
        }),
        None => None,
    };
    let node =
        NodeService { config: Arc::clone(&config), commands, stages, calls, queries: InFlight::default() };
    let upgrade = node.clone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .enable_io()
        .enable_time()
        .build()?;
    let served = runtime.block_on(async {
        let listener = listen(&config)?;
        let server = Server::builder()
            .concurrency_limit_per_connection(MAX_CALLS)
            .add_service(IdentityServer::new(IdentityService { config: Arc::clone(&config) }))
            .add_service(NodeServer::new(node))
            .add_optional_service(controller.map(ControllerServer::new));
        ready();
        thread::Builder::new().name("upgrade".into()).spawn(move || upgrade.upgrade())?;
        let server = server.serve_with_incoming(UnixListenerStream::new(listener));
        tokio::select! {
            served = server => served.map_err(io::Error::other),
            () = stop => Ok(()),
        }
    });
    let _ = fs::remove_file(&config.socket);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    served
}

/// Takes the state directory. A predecessor that is just ending is waited for.
fn lock(config: &Config) -> io::Result<File> {
    let path = config.state_dir.join("plugin.lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
    let end = Instant::now() + PREDECESSOR_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
            Err(error) => {
                let kind = io::Error::from(error).kind();
                let path = path.display();
                return Err(io::Error::new(kind, format!("another plugin uses {path}: stop it")));
            }
        }
    }
}

fn listen(config: &Config) -> io::Result<UnixListener> {
    let path = &config.socket;
    let of = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(of)?;
    }
    // The socket of a predecessor, which has ended: the state directory is ours.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(of(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(of)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(of)?;
    Ok(listener)
}

/// Runs the work of a call on a thread for blocking work, and logs its failure.
///
/// # Errors
/// Those of the work.
pub(crate) async fn blocking<T: Send + 'static>(
    call: &'static str,
    volume: String,
    work: impl FnOnce() -> status::Result<T> + Send + 'static,
) -> Result<Response<T>, Status> {
    let begin = Instant::now();
    let outcome = match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(status::internal("the call failed by a defect of the plugin: see its log")),
    };
    let took_ms = begin.elapsed().as_millis();
    match &outcome {
        Ok(_) => tracing::info!("{call} {volume:?}: done in {took_ms} ms"),
        Err(failure) => {
            tracing::warn!(
                "{call} {volume:?}: {:?} after {took_ms} ms: {}",
                failure.code(),
                failure.message()
            );
        }
    }
    outcome.map(Response::new)
}
