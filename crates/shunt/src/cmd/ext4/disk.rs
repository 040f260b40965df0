//! Finds the file system in a whole disk or image, by an offset, by a partition or at the start.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use shunt_ext4::partitions::{self, Partition, Table};
use shunt_ext4::{Device, Error, Geometry, Window};

use super::superblock::{label, uuid};
use crate::args::LocationArgs;
use crate::error::{Result, failed};
use crate::text::bytes;

/// A partition and its content. Its JSON is a contract.
#[derive(Debug, Serialize)]
pub struct Part {
    /// Its number, as the kernel counts partitions.
    pub number: u32,
    /// Its start, in bytes.
    pub start: u64,
    /// Its size, in bytes.
    pub size: u64,
    /// Its type in the table: a GUID, or two hexadecimal digits.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name in the table.
    pub label: Option<String>,
    /// Its identifier in the table.
    pub uuid: String,
    /// Its actual content: `ext2`, `ext3`, `ext4`, or another format that is recognised.
    pub holds: String,
    /// Label of the file system.
    pub filesystem_label: Option<String>,
    /// Identifier of the file system.
    pub filesystem_uuid: Option<String>,
}

impl Part {
    fn new(device: &Arc<dyn Device>, partition: &Partition) -> Self {
        let Partition { number, start, size, kind, label: name, uuid: id } = partition.clone();
        let mut part = Self {
            number,
            start,
            size,
            kind,
            label: name,
            uuid: id,
            holds: "nothing that can be read".to_owned(),
            filesystem_label: None,
            filesystem_uuid: None,
        };
        let Some(window) = Window::new(device.clone(), start, size) else { return part };
        match Geometry::read(&window) {
            Ok((geometry, raw)) => {
                part.holds = geometry.kind().to_owned();
                part.filesystem_label = Some(label(&raw)).filter(|label| !label.is_empty());
                part.filesystem_uuid = Some(uuid(geometry.uuid));
            }
            Err(Error::NotExt(what)) => part.holds = what.to_owned(),
            Err(error) => part.holds = format!("ext2, ext3 or ext4, but {error}"),
        }
        part
    }

    /// Reports whether `selector` names this partition: by number, label or UUID, its own or the file system's.
    fn is(&self, selector: &str) -> bool {
        let same = |text: &str| text == selector;
        let same_id = |id: &str| id.eq_ignore_ascii_case(selector);
        self.number.to_string() == selector
            || self.label.as_deref().is_some_and(same)
            || same_id(&self.uuid)
            || self.filesystem_label.as_deref().is_some_and(same)
            || self.filesystem_uuid.as_deref().is_some_and(same_id)
    }
}

/// Reads the partition table of a disk and probes the content of each partition.
pub fn table(path: &Path, device: &Arc<dyn Device>) -> Result<Option<(Table, Vec<Part>)>> {
    let table = partitions::read(device)
        .map_err(|error| failed(format_args!("cannot read {}: {error}", path.display())))?;
    Ok(table.map(|table| {
        let parts = table.partitions.iter().map(|partition| Part::new(device, partition)).collect();
        (table, parts)
    }))
}

/// Reports whether a file system begins at the start of the image.
pub fn is_filesystem(device: &dyn Device) -> bool {
    !matches!(Geometry::read(device), Err(Error::NotExt(_)))
}

/// A device for a part of an image, or for all of it.
pub fn window(path: &Path, device: &Arc<dyn Device>, part: Option<Range<u64>>) -> Result<Arc<dyn Device>> {
    let Some(Range { start, end }) = part else { return Ok(device.clone()) };
    match Window::new(device.clone(), start, end.saturating_sub(start)) {
        Some(window) => Ok(Arc::new(window)),
        None => {
            let (path, size) = (path.display(), device.size());
            Err(failed(format_args!(
                "cannot read {path}: the selected part ends at byte {end}, but the image has only {size} bytes"
            )))
        }
    }
}

/// The range of bytes that holds the file system; `None` for the whole image.
pub fn part(path: &Path, device: &Arc<dyn Device>, location: &LocationArgs) -> Result<Option<Range<u64>>> {
    let shown = path.display();
    if let Some(offset) = location.offset {
        let size = device.size();
        let window = Window::new(device.clone(), offset, size.saturating_sub(offset)).ok_or_else(|| {
            failed(format_args!("cannot read {shown} at --offset {offset}: it has only {size} bytes"))
        })?;
        // The bytes after the file system may belong to another one.
        let bytes = Geometry::read(&window).ok().and_then(|(geometry, _)| {
            geometry.blocks.checked_mul(geometry.block_size.into()).filter(|&bytes| bytes <= window.size())
        });
        return Ok(Some(offset..offset + bytes.unwrap_or(window.size())));
    }
    if location.partition.is_none() && is_filesystem(device) {
        return Ok(None);
    }
    let (parts, selector) = match (table(path, device)?, &location.partition) {
        (Some((_, parts)), selector) => (parts, selector),
        (None, Some(_)) => {
            return Err(failed(format_args!("{shown} has no partition table; omit --partition")));
        }
        // The caller opens it and reports the format that it has instead.
        (None, None) => return Ok(None),
    };
    let selected: Vec<&Part> = match selector {
        Some(selector) => parts.iter().filter(|part| part.is(selector)).collect(),
        None => parts.iter().collect(),
    };
    let part = match (selected.as_slice(), selector) {
        ([part], _) => part,
        ([], Some(selector)) => {
            return Err(failed(format_args!("{shown} has no partition {selector}; it has {}", list(&parts))));
        }
        (several, Some(selector)) => {
            let several = several.iter().map(|part| part.number.to_string()).collect::<Vec<_>>().join(", ");
            return Err(failed(format_args!(
                "{shown} has several partitions {selector}; select one by its number: {several}"
            )));
        }
        (_, None) => {
            let list = list(&parts);
            return Err(failed(format_args!(
                "{shown} is a whole disk; select a partition with --partition: {list}"
            )));
        }
    };
    // The table lists only partitions that lie within the device.
    Ok(Some(part.start..part.start + part.size))
}

/// The partitions as text.
fn list(parts: &[Part]) -> String {
    let one = |part: &Part| {
        let name = part.label.as_ref().or(part.filesystem_label.as_ref());
        let name = name.map_or(String::new(), |name| format!(" {name:?}"));
        format!("{}{name} ({}, {})", part.number, bytes(part.size), part.holds)
    };
    parts.iter().map(one).collect::<Vec<_>>().join(", ")
}
