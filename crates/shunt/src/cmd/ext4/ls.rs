//! `shunt ext4 ls`: lists a directory of an image.

use std::ffi::OsStr;
use std::fmt::Write as _;

use shunt_ext4::{Filesystem, Inode, Kind};

use super::{at, resolve};
use crate::cmd::print;
use crate::error::Result;
use crate::text::printable;

pub fn run(filesystem: &Filesystem, path: &OsStr, long: bool) -> Result<()> {
    // Follows ls(1): a link to a directory is followed, unless the long format shows the link itself.
    let inode = match resolve(filesystem, path, !long) {
        Ok(inode) if inode.kind == Kind::Directory => inode,
        _ => resolve(filesystem, path, false)?,
    };
    if inode.kind != Kind::Directory {
        return print(line(filesystem, &inode, &path.to_string_lossy(), long));
    }
    let mut entries = Vec::new();
    let listed = filesystem.list(&inode, 0, |entry| {
        entries.push(entry);
        true
    });
    listed.map_err(|error| at(path, &error))?;
    entries.retain(|entry| !matches!(&*entry.name, b"." | b".."));
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let mut out = String::new();
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name);
        if !long {
            let _ = writeln!(out, "{}", printable(&name));
            continue;
        }
        match filesystem.inode(entry.inode) {
            Ok(inode) => out.push_str(&line(filesystem, &inode, &name, long)),
            // One bad inode hides no other entry.
            Err(error) => {
                let _ = writeln!(out, "?????????? {} ({error})", printable(&name));
            }
        }
    }
    print(out)
}

fn line(filesystem: &Filesystem, inode: &Inode, name: &str, long: bool) -> String {
    let name = printable(name);
    if !long {
        return format!("{name}\n");
    }
    let target = match filesystem.read_link(inode) {
        Ok(target) => format!(" -> {}", printable(&String::from_utf8_lossy(&target))),
        Err(_) => String::new(),
    };
    let size = match inode.device() {
        Some((major, minor)) => format!("{major}, {minor}"),
        None => inode.size.to_string(),
    };
    let (links, uid, gid) = (inode.links, inode.uid, inode.gid);
    format!(
        "{} {links:>3} {uid:>5} {gid:>5} {size:>12} {} {name}{target}\n",
        mode(inode),
        time(inode.mtime.seconds)
    )
}

/// The mode in the format of ls(1), such as `drwxr-xr-x`.
fn mode(inode: &Inode) -> String {
    let kind = match inode.kind {
        Kind::Fifo => 'p',
        Kind::CharDevice => 'c',
        Kind::Directory => 'd',
        Kind::BlockDevice => 'b',
        Kind::Regular => '-',
        Kind::Symlink => 'l',
        Kind::Socket => 's',
    };
    let bits = inode.permissions;
    let mut out = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let part = bits >> shift;
        out.push(if part & 4 != 0 { 'r' } else { '-' });
        out.push(if part & 2 != 0 { 'w' } else { '-' });
        out.push(match (bits & special != 0, part & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// Formats seconds since 1970 as date and time, UTC.
fn time(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Counted with years that begin in March and eras of 400 years from 0000-03-01, so that leap days are last.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (date, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00"),
            (-1, "1969-12-31 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (4_107_542_399, "2100-02-28 23:59"),
            (4_107_542_400, "2100-03-01 00:00"),
        ] {
            assert_eq!(super::time(seconds), expected);
        }
    }
}
