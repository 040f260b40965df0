//! The tables of stores in PostgreSQL, and the statements over them.
//!
//! Plain types and keys that begin with the volume: what speaks the protocol and shards by a column can take over.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

/// The version of the tables and of what is in their blobs.
pub(super) const FORMAT: i32 = 1;

pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS shunt_volume (volume BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, format INT NOT NULL,
    head BIGINT NOT NULL, forgotten BIGINT NOT NULL, batches BIGINT NOT NULL, description BYTEA NOT NULL);
CREATE TABLE IF NOT EXISTS shunt_object (volume BIGINT NOT NULL, id BYTEA NOT NULL, parent BYTEA, names BIGINT NOT NULL,
    body BYTEA NOT NULL, PRIMARY KEY (volume, id));
CREATE TABLE IF NOT EXISTS shunt_link (volume BIGINT NOT NULL, parent BYTEA NOT NULL, name BYTEA NOT NULL,
    child BYTEA NOT NULL, seq BIGINT NOT NULL, PRIMARY KEY (volume, parent, name));
CREATE TABLE IF NOT EXISTS shunt_log (volume BIGINT NOT NULL, seq BIGINT NOT NULL, node TEXT NOT NULL, at BIGINT NOT NULL,
    change BYTEA NOT NULL, PRIMARY KEY (volume, seq));
CREATE TABLE IF NOT EXISTS shunt_chunk (volume BIGINT NOT NULL, id BYTEA NOT NULL, key TEXT NOT NULL, place BIGINT NOT NULL,
    stored BIGINT NOT NULL, length BIGINT NOT NULL, gone BIGINT, PRIMARY KEY (volume, id));
CREATE TABLE IF NOT EXISTS shunt_answer (volume BIGINT NOT NULL, n BIGINT NOT NULL, node TEXT NOT NULL,
    token BYTEA NOT NULL, answer BYTEA NOT NULL, PRIMARY KEY (volume, n), UNIQUE (volume, node, token));
";

macro_rules! statements {
    ($($name:ident ($($kind:ident),*) = $sql:literal;)*) => {
        /// Statements that a connection has prepared.
        pub(super) struct Statements {
            $(pub $name: Statement,)*
        }

        impl Statements {
            /// All of them in one round trip.
            pub async fn prepare(client: &Client) -> Result<Self, Error> {
                let ($($name,)*) = {
                    $(let $name = client.prepare_typed($sql, &[$(Type::$kind),*]);)*
                    futures::try_join!($($name),*)?
                };
                Ok(Self { $($name,)* })
            }
        }
    };
}

statements! {
    lock (INT8) = "SELECT head, batches FROM shunt_volume WHERE volume = $1 FOR UPDATE";
    head (INT8) = "SELECT head FROM shunt_volume WHERE volume = $1";
    forgotten (INT8) = "SELECT forgotten FROM shunt_volume WHERE volume = $1";
    forget (INT8, INT8, INT8) =
        "WITH goal AS (
             SELECT greatest(v.forgotten, least(v.head - $3, coalesce(
                 (SELECT min(seq) - 1 FROM shunt_log WHERE volume = $1 AND at >= $2), v.head))) AS seq
             FROM shunt_volume v WHERE v.volume = $1 FOR UPDATE),
         kept AS (UPDATE shunt_volume SET forgotten = goal.seq FROM goal WHERE volume = $1 RETURNING forgotten),
         dropped AS (DELETE FROM shunt_log USING goal WHERE volume = $1 AND shunt_log.seq <= goal.seq)
         SELECT forgotten FROM kept";
    answer (INT8, TEXT, BYTEA) =
        "SELECT answer FROM shunt_answer WHERE volume = $1 AND node = $2 AND token = $3";
    objects (INT8, BYTEA_ARRAY) =
        "SELECT id, parent, names, body FROM shunt_object WHERE volume = $1 AND id = ANY ($2)";
    links (INT8, BYTEA_ARRAY, BYTEA_ARRAY) =
        "SELECT l.parent, l.name, l.child, l.seq, o.parent, o.names, o.body
         FROM unnest($2, $3) AS w (parent, name)
         JOIN shunt_link l ON l.volume = $1 AND l.parent = w.parent AND l.name = w.name
         LEFT JOIN shunt_object o ON o.volume = $1 AND o.id = l.child";
    above (INT8, BYTEA_ARRAY) =
        "WITH RECURSIVE up (id) AS (
             SELECT unnest($2)
             UNION SELECT o.parent FROM up JOIN shunt_object o ON o.volume = $1 AND o.id = up.id
                   WHERE o.parent IS NOT NULL)
         SELECT o.id, o.parent, o.names, o.body FROM up JOIN shunt_object o ON o.volume = $1 AND o.id = up.id";
    put_objects (INT8, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY) =
        "INSERT INTO shunt_object (volume, id, parent, names, body)
         SELECT $1, * FROM unnest($2, $3, $4, $5)
         ON CONFLICT (volume, id) DO UPDATE SET parent = excluded.parent, names = excluded.names, body = excluded.body";
    drop_objects (INT8, BYTEA_ARRAY) = "DELETE FROM shunt_object WHERE volume = $1 AND id = ANY ($2)";
    put_links (INT8, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY) =
        "INSERT INTO shunt_link (volume, parent, name, child, seq)
         SELECT $1, * FROM unnest($2, $3, $4, $5)
         ON CONFLICT (volume, parent, name) DO UPDATE SET child = excluded.child, seq = excluded.seq";
    drop_links (INT8, BYTEA_ARRAY, BYTEA_ARRAY) =
        "DELETE FROM shunt_link l USING unnest($2, $3) AS w (parent, name)
         WHERE l.volume = $1 AND l.parent = w.parent AND l.name = w.name";
    put_chunks (INT8, BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY) =
        "INSERT INTO shunt_chunk (volume, id, key, place, stored, length)
         SELECT $1, * FROM unnest($2, $3, $4, $5, $6)
         ON CONFLICT (volume, id) DO UPDATE SET key = excluded.key, place = excluded.place, stored = excluded.stored,
             length = excluded.length, gone = NULL WHERE shunt_chunk.gone IS NOT NULL";
    put_log (INT8, INT8_ARRAY, TEXT, INT8, BYTEA_ARRAY) =
        "INSERT INTO shunt_log (volume, seq, node, at, change)
         SELECT $1, w.seq, $3, $4, w.change FROM unnest($2, $5) AS w (seq, change)";
    put_answer (INT8, INT8, TEXT, BYTEA, BYTEA) =
        "INSERT INTO shunt_answer (volume, n, node, token, answer) VALUES ($1, $2, $3, $4, $5)";
    drop_answers (INT8, INT8) = "DELETE FROM shunt_answer WHERE volume = $1 AND n <= $2";
    set_head (INT8, INT8, INT8) = "UPDATE shunt_volume SET head = $2, batches = $3 WHERE volume = $1";
    scan (INT8, BYTEA, INT8) =
        "SELECT id, parent, names, body FROM shunt_object WHERE volume = $1 AND id >= $2 ORDER BY id LIMIT $3";
    scan_links (INT8, BYTEA, BYTEA) =
        "SELECT parent, name, child, seq FROM shunt_link WHERE volume = $1 AND parent BETWEEN $2 AND $3
         ORDER BY parent, name";
    log (INT8, INT8, INT8) =
        "SELECT seq, node, at, change FROM shunt_log WHERE volume = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    places (INT8, BYTEA_ARRAY) =
        "SELECT id, key, place, stored, length, gone FROM shunt_chunk WHERE volume = $1 AND id = ANY ($2)";
    scan_chunks (INT8, BYTEA, INT8) =
        "SELECT id, key, place, stored, length, gone FROM shunt_chunk WHERE volume = $1 AND id > $2
         ORDER BY id LIMIT $3";
    condemn (INT8, BYTEA_ARRAY, INT8) =
        "UPDATE shunt_chunk SET gone = $3 WHERE volume = $1 AND id = ANY ($2) AND gone IS NULL";
    pardon (INT8, BYTEA_ARRAY) =
        "UPDATE shunt_chunk SET gone = NULL WHERE volume = $1 AND id = ANY ($2) AND gone IS NOT NULL";
    drop_chunks (INT8, BYTEA_ARRAY, INT8) =
        "DELETE FROM shunt_chunk WHERE volume = $1 AND id = ANY ($2) AND gone <= $3";
}
