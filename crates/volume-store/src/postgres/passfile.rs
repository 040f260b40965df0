//! Passwords from `~/.pgpass`, or the file that `PGPASSFILE` names, as for PostgreSQL's own tools: so that they are not in a
//! command line, which every user of the machine can read.
//!
//! A line is `HOST:DEFAULT_PORT:DATABASE:USER:PASSWORD`; `*` matches anything, `\` escapes the next character. The first matching line
//! counts.

use std::env::var_os;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use shunt_volume_types::private;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::StoreError;

/// Maximum number of bytes read.
const MAX_FILE_BYTES: u64 = 1 << 20;
const DEFAULT_PORT: u16 = 5432;

/// Sets the password that the file has for a connection whose address has none.
///
/// # Errors
/// [`StoreError::Unreachable`] if the file cannot be read, or is readable by others than its owner.
pub(super) fn complete(config: &mut Config) -> Result<(), StoreError> {
    if config.get_password().is_some() {
        return Ok(());
    }
    let home = || Some(PathBuf::from(var_os("HOME")?).join(".pgpass"));
    let Some(path) = var_os("PGPASSFILE").map(PathBuf::from).or_else(home) else { return Ok(()) };
    match read(&path) {
        Ok(text) => {
            if let Some(password) = find(&text, config) {
                config.password(password);
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            Err(StoreError::Unreachable(format!("cannot read passwords from {}: {error}", path.display())))
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    private::open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the password for all hosts of an address; none if they have different ones, so that no host receives that of
/// another.
fn find(text: &str, config: &Config) -> Option<String> {
    let user = config.get_user()?;
    let database = config.get_dbname().unwrap_or(user);
    let mut found = None;
    for (index, host) in config.get_hosts().iter().enumerate() {
        let host = match host {
            Host::Tcp(name) => name,
            // libpq's name for a socket in a non-default directory.
            Host::Unix(_) => "localhost",
        };
        let ports = config.get_ports();
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(DEFAULT_PORT).to_string();
        let password = text.lines().find_map(|line| password(line, [host, &port, database, user]))?;
        if found.replace(password.clone()).is_some_and(|before| before != password) {
            return None;
        }
    }
    found
}

/// Returns the password of a line that matches this connection.
fn password(line: &str, fields: [&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut rest = line.chars();
    for expected in fields {
        let (mut word, mut is_plain) = (String::new(), true);
        loop {
            match rest.next()? {
                ':' => break,
                '\\' => {
                    word.push(rest.next()?);
                    is_plain = false;
                }
                other => word.push(other),
            }
        }
        if !(word == expected || is_plain && word == "*") {
            return None;
        }
    }
    let mut password = String::new();
    while let Some(next) = rest.next() {
        password.push(if next == '\\' { rest.next()? } else { next });
    }
    Some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, address: &str) -> Option<String> {
        find(text, &address.parse().unwrap())
    }

    #[test]
    fn lines_are_those_of_pgpass() {
        let text =
            "# hosts\nshort\ndb1:5432:volumes:ada:one\n*:6000:*:*:t\\:w\\\\o\n\\*:5432:a\\:b:ada:star\n";
        assert_eq!(of(text, "postgres://ada@db1/volumes").as_deref(), Some("one"));
        assert_eq!(of(text, "postgres://ada@db1:5432/volumes").as_deref(), Some("one"));
        assert_eq!(of(text, "postgres://bob@any:6000/x").as_deref(), Some("t:w\\o"));
        assert_eq!(of(text, "postgres://bob@db1/volumes"), None);
        assert_eq!(of(text, "postgres://ada@db2/a:b"), None);
        let local = "localhost:5432:ada:ada:socket";
        assert_eq!(of(local, "postgres://ada@%2Frun%2Fpostgresql").as_deref(), Some("socket"));
    }

    #[test]
    fn a_host_is_not_shown_the_password_of_another() {
        let text = "one:*:*:*:first\ntwo:*:*:*:second\nthree:*:*:*:first";
        assert_eq!(of(text, "postgres://a@one,two/d"), None);
        assert_eq!(of(text, "postgres://a@one,four/d"), None);
        assert_eq!(of(text, "postgres://a@one,three/d").as_deref(), Some("first"));
    }

    #[test]
    fn a_file_that_others_can_read_is_left_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "*:*:*:*:p").unwrap();
        assert_eq!(read(file.path()).unwrap(), "*:*:*:*:p");
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read(file.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
