//! Writes the sections of a report as a compressed tar archive.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::Section;

/// Writes `DIRECTORY/NAME` for each section, as gzip-compressed tar.
///
/// # Errors
/// The errors of `out`.
pub fn write(out: impl Write, directory: &str, sections: &[Section]) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    for section in sections {
        let mut header = tar::Header::new_gnu();
        header.set_size(section.text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(now);
        archive.append_data(&mut header, format!("{directory}/{}", section.name), section.text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}
