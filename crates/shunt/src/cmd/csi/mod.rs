//! `shunt csi`: the CSI plugin, see [`shunt_csi`].

mod host;
pub mod mount_helper;

use std::fs::File;
use std::process::{Command, ExitCode};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::print;
use crate::args::{CsiArgs, DetachArg};
use crate::error::{Result, failed};
use crate::{inherited, log};

/// Serves until SIGTERM or SIGINT. The mounts stay.
pub fn run(args: &CsiArgs) -> Result<ExitCode> {
    inherited::reset();
    log::start(&args.log)?;
    // The file of the container, before its mount namespace is left.
    let mut binary = File::open("/proc/self/exe")
        .map_err(|error| failed(format_args!("cannot open /proc/self/exe: {error}")))?;
    if args.host_namespaces {
        // There is one thread yet.
        host::enter(args.host_pid)?;
    }
    let config = config(args, &mut binary)?;
    drop(binary);
    if let Err(error) = shunt_csi::program::remove_unused(&config.program, &config.state_dir) {
        tracing::warn!("cannot remove old programs: {error}");
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| failed(format_args!("cannot install signal handlers: {error}")))?;
    let (send, stop) = tokio::sync::oneshot::channel::<()>();
    let wait = move || {
        signals.forever().next();
        let _ = send.send(());
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map_err(failed)?;
    let ready = format!(
        "shunt: {} serves the node {} at {}; mounts run {}, {}\n",
        config.driver_name,
        config.node_id,
        config.socket.display(),
        config.program.display(),
        detached(&config.detach)
    );
    let stop = async {
        let _ = stop.await;
    };
    shunt_csi::serve(config, stop, || {
        // Calls are served even if this line cannot be printed.
        let _ = print(ready);
    })
    .map_err(|error| failed(format_args!("cannot serve: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

fn config(args: &CsiArgs, binary: &mut File) -> Result<shunt_csi::Config> {
    let version = env!("CARGO_PKG_VERSION");
    let state_dir = std::path::absolute(&args.state_dir).map_err(failed)?;
    let program = shunt_csi::program::install(binary, version, &state_dir).map_err(|error| {
        failed(format_args!("cannot copy this binary below {}: {error}", state_dir.display()))
    })?;
    check(&program)?;
    let detach = match (args.detach, &args.cgroup) {
        (DetachArg::Auto, _) => shunt_csi::Detach::detect(),
        (DetachArg::Systemd, _) => shunt_csi::Detach::Systemd,
        (DetachArg::Cgroup, Some(directory)) => shunt_csi::Detach::Cgroup(directory.clone()),
        (DetachArg::Cgroup, None) => return Err(crate::error::usage("--detach cgroup needs --cgroup DIR")),
        (DetachArg::Session, _) => shunt_csi::Detach::Session,
    };
    if args.host_namespaces && args.detach == DetachArg::Auto && detach == shunt_csi::Detach::Session {
        tracing::warn!(
            "systemd is not process 1, so that mounts end with the container of the plugin: use --detach cgroup --cgroup DIR"
        );
    }
    let base = args.provision_dir.as_ref().map(std::path::absolute).transpose().map_err(failed)?;
    let provision = base.map(|base| shunt_csi::Provision { base, shared: args.shared_provision_dir });
    Ok(shunt_csi::Config {
        socket: args.endpoint.clone(),
        node_id: args.node_id.clone(),
        driver_name: args.driver_name.clone(),
        state_dir,
        program,
        version: version.to_owned(),
        detach,
        provision,
    })
}

/// Checks that this host can execute the binary: its C library may be older than that of the container.
fn check(program: &std::path::Path) -> Result<()> {
    let path = program.display();
    match Command::new(program).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let line = errors.lines().next().unwrap_or("no message");
            Err(failed(format_args!(
                "this host cannot execute {path}: {line}: use a build for its C library"
            )))
        }
        Err(error) => Err(failed(format_args!(
            "this host cannot execute {path}: {error}: use a build for its C library"
        ))),
    }
}

fn detached(detach: &shunt_csi::Detach) -> String {
    match detach {
        shunt_csi::Detach::Systemd => "each in a scope of systemd".to_owned(),
        shunt_csi::Detach::Cgroup(directory) => format!("each in a cgroup below {}", directory.display()),
        shunt_csi::Detach::Session => "each in a session of its own".to_owned(),
    }
}
