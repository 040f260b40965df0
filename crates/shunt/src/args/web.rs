//! `shunt web`: the page for browsers.

use std::path::PathBuf;

use clap::Args;
use shunt_volume::id::VolumeName;

use super::LogArgs;

#[derive(Args, Clone, Debug)]
pub struct WebArgs {
    /// Loopback address and port to listen on; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9550")]
    pub listen: String,

    /// Let the page change volumes: resolve conflicts, restore versions, pin files, go offline, invite and revoke nodes
    #[arg(long)]
    pub allow_changes: bool,

    /// Registry of the gateway of a volume, if that was started with --registry FILE; may be repeated
    #[arg(long = "registry", value_name = "VOLUME=FILE", value_parser = registry)]
    pub registries: Vec<(VolumeName, PathBuf)>,

    #[command(flatten)]
    pub log: LogArgs,
}

fn registry(text: &str) -> Result<(VolumeName, PathBuf), String> {
    match text.split_once('=') {
        Some((volume, file)) if !file.is_empty() => {
            let volume = volume.parse().map_err(|error| format!("{error}"))?;
            Ok((volume, file.into()))
        }
        _ => Err("it must be the name of a volume, =, and a file".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::registry;

    #[test]
    fn a_registry_belongs_to_a_volume() {
        let (volume, file) = registry("notes=/srv/a=b").unwrap();
        assert_eq!((volume.to_string(), file), ("notes".to_owned(), "/srv/a=b".into()));
        for wrong in ["", "notes", "notes=", "=/srv/a", "a/b=/srv/a"] {
            assert!(registry(wrong).is_err(), "{wrong}");
        }
    }
}
