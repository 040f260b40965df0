//! Requests that change a volume, each by the `shunt volume` command that does it. [`guard`](super::guard) has checked that
//! changes are allowed.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::app::App;
use super::error::{Failure, Result};
use super::query::Parameters;
use super::volumes::{MountedVolume, shown_path};
use super::{nodes, own_command};

/// Handles a change by its name.
///
/// # Errors
/// The name is unknown, a parameter is wrong, or the command fails.
pub fn change(app: &App, name: &str, parameters: &Parameters) -> Result<Value> {
    let volume = MountedVolume::of(parameters)?;
    let on_path = |options: &[&str]| {
        own_command::run(options, &[volume.path(&parameters.path()?).as_os_str()])?;
        Ok(json!({}))
    };
    match name {
        "resolve" => on_path(&["resolve", &format!("--keep={}", parameters.text("keep")?)]),
        "pin" => on_path(&["pin"]),
        "unpin" => on_path(&["unpin"]),
        "online" | "offline" => {
            own_command::run(&[name], &[volume.mountpoint.as_os_str()])?;
            Ok(json!({}))
        }
        "restore" => {
            let from = shown_path(parameters)?;
            if from == parameters.path()? {
                return Err(Failure::bad("a version or a time is missing"));
            }
            own_command::run(&["restore"], &[volume.path(&from).as_os_str()])?;
            Ok(json!({}))
        }
        "invite" => nodes::invite(app, &volume, parameters),
        "revoke" => nodes::revoke(app, &volume, parameters),
        _ => Err(Failure::new(StatusCode::NOT_FOUND, format_args!("there is no change {name}"))),
    }
}
