//! The files of a config volume, read through its mount.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use shunt_policy::Names;
use shunt_volume::tree::{ConfigError, Files, name_in};

/// Bytes of a file.
const MOST: u64 = 256 << 10;
/// Files of a directory.
const MOST_FILES: usize = 200_000;

/// By which it is seen that something was changed: which files there are, and when each was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps(BTreeMap<String, (u64, i64, i64, i64, i64, u64)>);

impl Stamps {
    /// Of the files at `top`, and of this machine's accounts.
    pub fn take(top: &Path) -> io::Result<Self> {
        let mut stamps = Self::default();
        // Who is not there says so here, and not by a directory that looks empty.
        fs::metadata(top)?;
        for dir in ["volumes", "nodes"] {
            let entries = match fs::read_dir(top.join(dir)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries.take(MOST_FILES) {
                let name = entry?.file_name();
                let path = format!("{dir}/{}", name.to_string_lossy());
                if name_in(dir, &path).is_some() {
                    stamps.add(path.clone(), &top.join(path))?;
                }
            }
        }
        stamps.add("users.toml".into(), &top.join("users.toml"))?;
        for file in [PASSWD, GROUP] {
            stamps.add(file.into(), Path::new(file))?;
        }
        Ok(stamps)
    }

    fn add(&mut self, name: String, path: &Path) -> io::Result<()> {
        match fs::metadata(path) {
            Ok(of) => {
                let stamp = (of.ino(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec(), of.len());
                self.0.insert(name, stamp);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads all files that they are of.
    pub fn read(&self, top: &Path) -> Result<Files, ConfigError> {
        let mut files = Files::new();
        for name in self.0.keys().filter(|name| !name.starts_with('/')) {
            let text = read(&top.join(name));
            let text = text.map_err(|why| ConfigError { file: name.clone(), line: None, why })?;
            files.insert(name.clone(), text);
        }
        Ok(files)
    }
}

fn read(file: &Path) -> Result<String, String> {
    let open = fs::File::open(file).map_err(|error| error.to_string())?;
    let of = open.metadata().map_err(|error| error.to_string())?;
    if of.is_dir() {
        return Err("two machines changed it to different things: `shunt volume resolve`".to_owned());
    }
    let mut text = Vec::new();
    open.take(MOST + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MOST {
        return Err(format!("it is longer than {MOST} bytes"));
    }
    String::from_utf8(text).map_err(|_| "it is not text (UTF-8)".to_owned())
}

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// The accounts of this machine.
pub fn accounts() -> Names {
    let text = |file| fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Names::parse(&text(PASSWD).unwrap_or_default(), &text(GROUP).unwrap_or_default())
}
