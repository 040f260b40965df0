//! The kernel's source as a data set: a large number of real files, from a Debian package.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::context::Bench;
use crate::progress::say;
use crate::{job, tar};

const PACKAGE: &str = "linux-source-6.12";

/// The whole source as an uncompressed archive, about 87,000 files.
///
/// # Errors
/// When the package cannot be downloaded or unpacked.
pub fn whole(bench: &Bench) -> Result<PathBuf> {
    cached_file(bench, "linux.tar", |to| {
        let package = package(&bench.cache())?;
        say(format_args!("unpacking {}", package.display()));
        let script = format!(
            "dpkg-deb --fsys-tarfile \"$1\" | tar -xO ./usr/src/{PACKAGE}.tar.xz | xz -dc -T0 > \"$2\""
        );
        job::shell(Path::new("/"), &script, &[package.as_os_str(), to.as_os_str()])?;
        Ok(())
    })
}

/// An archive of the first `files` files of the source, in the order of the archive.
///
/// # Errors
/// The errors of [`whole`]; when the source has fewer files.
pub fn first(bench: &Bench, files: u64) -> Result<PathBuf> {
    let whole = whole(bench)?;
    cached_file(bench, &format!("linux-{files}.tar"), |to| {
        let passed = tar::cut(BufReader::new(File::open(&whole)?), BufWriter::new(File::create(to)?), files)?;
        if passed != files {
            bail!("the kernel source package has only {passed} files");
        }
        Ok(())
    })
}

/// An archive of `files` generated small files.
///
/// # Errors
/// When the archive cannot be written.
pub fn generated(bench: &Bench, files: u64) -> Result<PathBuf> {
    cached_file(bench, &format!("generated-{files}.tar"), |to| {
        let mut writer = BufWriter::new(File::create(to)?);
        tar::generate(&mut writer, files, b"one small file\n")?;
        Ok(writer.flush()?)
    })
}

/// Returns a file of the cache directory, made on first use, and reads it into the page cache.
fn cached_file(bench: &Bench, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let path = bench.cache().join(name);
    if !path.exists() {
        let part = path.with_extension("part");
        make(&part).with_context(|| format!("create {}", path.display()))?;
        fs::rename(&part, &path)?;
    }
    std::io::copy(&mut File::open(&path)?, &mut std::io::sink())?;
    Ok(path)
}

fn package(cache: &Path) -> Result<PathBuf> {
    let find = || -> Result<Option<PathBuf>> {
        for entry in fs::read_dir(cache)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&format!("{PACKAGE}_")) && name.ends_with(".deb") {
                return Ok(Some(cache.join(&*name)));
            }
        }
        Ok(None)
    };
    if let Some(package) = find()? {
        return Ok(package);
    }
    say(format_args!("downloading {PACKAGE} (about 150 MB)"));
    job::run(Command::new("apt-get").args(["download", PACKAGE]).current_dir(cache))?;
    find()?.context("apt-get download has left no package")
}
