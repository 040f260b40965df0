//! The nodes that joined a volume through a gateway of this machine: lists, invites and revokes them.

use std::ffi::{OsStr, OsString};

use qrcode::{Color, QrCode};
use serde_json::{Value, json};

use super::app::App;
use super::error::{Failure, Result};
use super::own_command;
use super::query::Parameters;
use super::volumes::MountedVolume;

/// Nodes that joined.
///
/// # Errors
/// No gateway of this machine serves the volume, or its registry is at another place.
pub fn list(app: &App, parameters: &Parameters) -> Result<Value> {
    let volume = MountedVolume::of(parameters)?;
    let options = options(app, &volume, &["nodes", "list", "--json"]);
    own_command::json(&options, &[OsStr::new(&volume.name)]).map_err(|failure| {
        let hint = format!("if the registry is elsewhere, start `shunt web --registry {}=FILE`", volume.name);
        Failure::new(failure.status, format_args!("{}; {hint}", failure.message))
    })
}

/// Creates a token with which one machine can join. Returns it with the rows of its QR code.
///
/// # Errors
/// A parameter is missing, or the command fails.
pub fn invite(app: &App, volume: &MountedVolume, parameters: &Parameters) -> Result<Value> {
    let role = format!("--role={}", parameters.text("role")?);
    let hours = format!("--hours={}", parameters.text("hours")?);
    let output =
        own_command::run(&options(app, volume, &["invite", &role, &hours]), &[OsStr::new(&volume.name)])?;
    let token = String::from_utf8_lossy(&output).trim().to_owned();
    Ok(json!({ "qr": qr_rows(&token), "token": token }))
}

/// Removes a node.
///
/// # Errors
/// The parameter is missing, or the command fails.
pub fn revoke(app: &App, volume: &MountedVolume, parameters: &Parameters) -> Result<Value> {
    let operands = [OsStr::new(&volume.name), OsStr::new(parameters.text("node")?)];
    own_command::run(&options(app, volume, &["nodes", "remove"]), &operands)?;
    Ok(json!({}))
}

/// The options of a command, and that of the volume's registry if it is not at its default place.
fn options(app: &App, volume: &MountedVolume, options: &[&str]) -> Vec<OsString> {
    let registry = app.settings.registries.get(&volume.name).map(|file| {
        let mut option = OsString::from("--registry=");
        option.push(file);
        option
    });
    options.iter().map(OsString::from).chain(registry).collect()
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
