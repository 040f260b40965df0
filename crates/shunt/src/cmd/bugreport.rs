//! `shunt bugreport`: packs what a maintainer needs into one archive, without names.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::doctor::DoctorReport;
use super::print;
use crate::bugreport;
use crate::cli::BugreportArgs;
use crate::error::{Result, failed};

pub fn run(args: &BugreportArgs) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let directory = format!("shunt-bugreport-{now}");
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{directory}.tar.gz")));
    if path == Path::new("-") {
        let sections = bugreport::collect(&DoctorReport::new());
        return bugreport::write(io::stdout().lock(), &directory, &sections)
            .map_err(|error| failed(format_args!("cannot write to standard output: {error}")));
    }
    let cannot = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::AlreadyExists => "remove it, or name another file with -o",
            _ => "name another file with -o",
        };
        failed(format_args!("cannot write {}: {error}; {remedy}", path.display()))
    };
    // Before the seconds of work. The file is created after them, so that an interrupted command leaves none.
    if path.symlink_metadata().is_ok() {
        return Err(cannot(io::ErrorKind::AlreadyExists.into()));
    }
    let sections = bugreport::collect(&DoctorReport::new());
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(cannot)?;
    let written = bugreport::write(&file, &directory, &sections).and_then(|()| file.sync_all());
    if let Err(error) = written {
        let _ = std::fs::remove_file(&path);
        return Err(cannot(error));
    }
    print(format!(
        "{}: {} files, names replaced; look through it before you send it: tar -xzf {0}\n",
        crate::text::shell_quoted(&path.to_string_lossy()),
        sections.len()
    ))
}
