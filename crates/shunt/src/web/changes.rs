//! Requests that change a volume, each by the `shunt volume` command that does it. [`guard`](super::guard) has checked that
//! changes are allowed.

use std::ffi::OsStr;

use axum::http::StatusCode;
use qrcode::{Color, QrCode};
use serde_json::{Value, json};

use super::app::App;
use super::error::{Failure, Result};
use super::own_command;
use super::query::Parameters;
use super::volumes::{MountedVolume, shown_path};

/// Handles a change by its name.
///
/// # Errors
/// The name is unknown, a parameter is wrong, or the command fails.
pub fn change(app: &App, name: &str, parameters: &Parameters) -> Result<Value> {
    let volume = MountedVolume::of(app, parameters)?;
    let volume_name = OsStr::new(&volume.name);
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
        "invite" => {
            let role = format!("--role={}", parameters.text("role")?);
            let hours = format!("--hours={}", parameters.text("hours")?);
            let output = own_command::run(&["invite", &role, &hours], &[volume_name])?;
            let token = String::from_utf8_lossy(&output).trim().to_owned();
            Ok(json!({ "qr": qr_rows(&token), "token": token }))
        }
        "revoke" => {
            own_command::run(&["nodes", "remove"], &[volume_name, OsStr::new(parameters.text("node")?)])?;
            Ok(json!({}))
        }
        _ => Err(Failure::new(StatusCode::NOT_FOUND, format_args!("there is no change {name}"))),
    }
}

/// Rows of `0` and `1`, without the margin; empty if the text is too long for a QR code.
fn qr_rows(text: &str) -> Vec<String> {
    let Ok(code) = QrCode::new(text) else { return Vec::new() };
    let (width, colors) = (code.width(), code.to_colors());
    let digit = |color: &Color| if *color == Color::Dark { '1' } else { '0' };
    colors.chunks(width).map(|row| row.iter().map(digit).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qr_codes_are_square() {
        let rows = qr_rows(&"shunt1.".repeat(60));
        assert!(rows.len() > 20 && rows.iter().all(|row| row.len() == rows.len()));
        // The finder pattern in the corner.
        assert!(rows[0].starts_with("11111110"));
        assert!(qr_rows(&"x".repeat(10_000)).is_empty());
    }
}
