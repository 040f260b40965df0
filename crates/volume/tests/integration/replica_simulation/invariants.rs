//! Invariants of a replica's database, which hold at every time.

use rusqlite::{Connection, OpenFlags};

use crate::replica_simulation::node::Node;

/// Queries that must return no rows.
const WRONG: &[(&str, &str)] = &[
    ("names of nothing", "SELECT parent FROM link WHERE child NOT IN (SELECT num FROM object)"),
    (
        "names in nothing",
        "SELECT parent FROM link WHERE parent NOT IN (SELECT num FROM object WHERE kind = 1)",
    ),
    (
        "objects with another count of names",
        "SELECT num FROM object o WHERE num > 1 AND nlink <> (SELECT count(*) FROM link WHERE child = o.num)",
    ),
    (
        "directories with another count of directories",
        "SELECT num FROM object o WHERE kind = 1 AND subdirs <>
            (SELECT count(*) FROM link JOIN object c ON c.num = child WHERE parent = o.num AND c.kind = 1)",
    ),
    (
        "directories with several names",
        "SELECT child FROM link JOIN object ON num = child WHERE kind = 1 GROUP BY child HAVING count(*) > 1",
    ),
    (
        "names that nobody gets at",
        "WITH RECURSIVE seen (num) AS (VALUES (1) UNION SELECT child FROM link JOIN seen ON parent = num)
            SELECT parent FROM link WHERE parent NOT IN seen",
    ),
    (
        "changes that wait for nothing",
        "SELECT num FROM object WHERE dirty <> 0 AND nlink > 0 AND num NOT IN (SELECT num FROM base_object)",
    ),
    ("changes of nothing", "SELECT num FROM base_object WHERE num NOT IN (SELECT num FROM object)"),
    (
        "ranges of files that are not partial",
        "SELECT num FROM present WHERE num NOT IN (SELECT num FROM object WHERE state = 1)",
    ),
    (
        "sides of conflicts that are not there",
        "SELECT n FROM conflict WHERE num_local IS NOT NULL AND num_local NOT IN (SELECT num FROM object)",
    ),
    ("attributes of nothing", "SELECT num FROM xattr WHERE num NOT IN (SELECT num FROM object)"),
    (
        "bytes counted that are not here",
        "SELECT value FROM meta WHERE key = 'here' AND value <>
            (SELECT coalesce(sum((size + 4095) / 4096 * 4096), 0) FROM object WHERE kind = 0 AND state = 2)
            + (SELECT coalesce(sum(past - first), 0) FROM present)",
    ),
];

/// Checks the committed state.
pub fn check(node: &Node) -> Result<(), String> {
    node.replica().commit().map_err(|errno| format!("{}: commit: {errno}", node.name))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = Connection::open_with_flags(node.disk.dir().join("replica.db"), flags).unwrap();
    for (what, query) in WRONG {
        let mut query = db.prepare(query).unwrap();
        let found: Vec<i64> = query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        if !found.is_empty() {
            return Err(format!("{}: {what}: {found:?}", node.name));
        }
    }
    let mut query =
        db.prepare("SELECT num, size FROM object WHERE kind = 0 AND state = 2 AND maybe_dirty = 0").unwrap();
    let files = query.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap();
    for (num, size) in files.map(Result::unwrap) {
        let path = node.disk.dir().join(format!("data/{:x}/{num:x}", num / 4096));
        let there = std::fs::metadata(&path).map(|metadata| metadata.len() as i64);
        if there.as_ref().ok() != Some(&size) {
            return Err(format!("{}: file {num} of {size} bytes is {there:?}", node.name));
        }
    }
    Ok(())
}
