//! The PostgreSQL schema and prepared statements.
//!
//! Plain types, and keys that begin with the volume: databases that speak the protocol and shard by a column can be used as
//! well.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

/// Version of the tables and of their blobs.
pub(super) const FORMAT: i32 = 2;

pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS shunt_volume (volume BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, format INT NOT NULL,
    head BIGINT NOT NULL, forgotten BIGINT NOT NULL, batches BIGINT NOT NULL, description BYTEA NOT NULL,
    kept BIGINT NOT NULL DEFAULT 0, latest BIGINT NOT NULL DEFAULT 0);
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
CREATE TABLE IF NOT EXISTS shunt_past_object (volume BIGINT NOT NULL, id BYTEA NOT NULL, until BIGINT NOT NULL,
    body BYTEA NOT NULL, PRIMARY KEY (volume, id, until));
CREATE TABLE IF NOT EXISTS shunt_past_link (volume BIGINT NOT NULL, parent BYTEA NOT NULL, name BYTEA NOT NULL,
    until BIGINT NOT NULL, since BIGINT NOT NULL, child BYTEA NOT NULL, PRIMARY KEY (volume, parent, name, until));
CREATE INDEX IF NOT EXISTS shunt_past_link_child ON shunt_past_link (volume, child);
CREATE TABLE IF NOT EXISTS shunt_setting (volume BIGINT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (volume, key));
";

/// Query whether the tables are of format 1, which lacks this column, and the statements that upgrade them.
pub(super) const IS_FORMAT_1: &str = "SELECT count(*) = 0 FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name = 'shunt_volume' AND column_name = 'latest'";
pub(super) const UPGRADE_TO_2: &str = "
ALTER TABLE shunt_volume ADD COLUMN IF NOT EXISTS kept BIGINT NOT NULL DEFAULT 0;
ALTER TABLE shunt_volume ADD COLUMN IF NOT EXISTS latest BIGINT NOT NULL DEFAULT 0;
";

macro_rules! statements {
    ($($name:ident ($($kind:ident),*) = $sql:literal;)*) => {
        /// The prepared statements of a connection.
        pub(super) struct Statements {
            $(pub $name: Statement,)*
        }

        impl Statements {
            /// Prepares all statements in one round trip.
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
    lock (INT8) =
        "SELECT head, batches, latest, (extract(epoch FROM clock_timestamp()) * 1000000000)::BIGINT,
             substr(description, 1, 4)
         FROM shunt_volume WHERE volume = $1 FOR UPDATE";
    redescribe (INT8, INT8, BYTEA) =
        "UPDATE shunt_volume SET description = $3 WHERE volume = $1 AND head = $2";
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
    set_head (INT8, INT8, INT8, INT8) =
        "UPDATE shunt_volume SET head = $2, batches = $3, latest = $4 WHERE volume = $1";
    put_past_objects (INT8, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY) =
        "INSERT INTO shunt_past_object (volume, id, until, body) SELECT $1, * FROM unnest($2, $3, $4)";
    put_past_links (INT8, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY) =
        "INSERT INTO shunt_past_link (volume, parent, name, until, since, child)
         SELECT $1, * FROM unnest($2, $3, $4, $5, $6)";
    kept (INT8) = "SELECT kept FROM shunt_volume WHERE volume = $1";
    object_at (INT8, BYTEA, INT8) =
        "(SELECT body, 0 AS late FROM shunt_past_object WHERE volume = $1 AND id = $2 AND until > $3
          ORDER BY until LIMIT 1)
         UNION ALL SELECT body, 1 FROM shunt_object WHERE volume = $1 AND id = $2 ORDER BY late LIMIT 1";
    link_at (INT8, BYTEA, BYTEA, INT8) =
        "SELECT parent, name, child, since FROM shunt_past_link
         WHERE volume = $1 AND parent = $2 AND name = $3 AND until > $4 AND since <= $4
         UNION ALL SELECT parent, name, child, seq FROM shunt_link
         WHERE volume = $1 AND parent = $2 AND name = $3 AND seq <= $4 LIMIT 1";
    links_at (INT8, BYTEA, BYTEA, INT8, INT8) =
        "SELECT parent, name, child, since FROM shunt_past_link
         WHERE volume = $1 AND parent = $2 AND name > $3 AND until > $4 AND since <= $4
         UNION ALL SELECT parent, name, child, seq FROM shunt_link
         WHERE volume = $1 AND parent = $2 AND name > $3 AND seq <= $4 ORDER BY 2 LIMIT $5";
    versions (INT8, BYTEA, INT8) =
        "SELECT NULL::BIGINT AS until, body FROM shunt_object WHERE volume = $1 AND id = $2
         UNION ALL (SELECT until, body FROM shunt_past_object WHERE volume = $1 AND id = $2
                    ORDER BY until DESC LIMIT $3)
         ORDER BY until DESC NULLS FIRST";
    log_of (INT8, INT8_ARRAY) = "SELECT seq, node, at FROM shunt_log WHERE volume = $1 AND seq = ANY ($2)";
    past_of_name (INT8, BYTEA, BYTEA, INT8) =
        "SELECT parent, name, child, since, until FROM shunt_past_link
         WHERE volume = $1 AND parent = $2 AND name = $3 ORDER BY until DESC LIMIT $4";
    past_names (INT8, BYTEA_ARRAY, INT8) =
        "SELECT parent, name, child, since, until FROM shunt_past_link
         WHERE volume = $1 AND child = ANY ($2) LIMIT $3";
    scan_past (INT8, BYTEA, INT8, INT8) =
        "SELECT id, until, body FROM shunt_past_object WHERE volume = $1 AND (id, until) > ($2, $3)
         ORDER BY id, until LIMIT $4";
    trim_objects (INT8, INT8) = "DELETE FROM shunt_past_object WHERE volume = $1 AND until <= $2";
    trim_links (INT8, INT8) = "DELETE FROM shunt_past_link WHERE volume = $1 AND until <= $2";
    trim_versions (INT8, INT8) =
        "DELETE FROM shunt_past_object p USING (
             SELECT id, until, row_number() OVER (PARTITION BY id ORDER BY until DESC) AS place
             FROM shunt_past_object WHERE volume = $1) AS w
         WHERE p.volume = $1 AND p.id = w.id AND p.until = w.until AND w.place > $2";
    set_kept (INT8, INT8) = "UPDATE shunt_volume SET kept = greatest(kept, $2) WHERE volume = $1";
    setting (INT8, TEXT) = "SELECT value FROM shunt_setting WHERE volume = $1 AND key = $2";
    set_setting (INT8, TEXT, TEXT) =
        "INSERT INTO shunt_setting (volume, key, value) VALUES ($1, $2, $3)
         ON CONFLICT (volume, key) DO UPDATE SET value = excluded.value";
    settings (INT8, TEXT) =
        "SELECT key, value FROM shunt_setting WHERE volume = $1 AND starts_with(key, $2) ORDER BY key";
    take_turn (INT8, TEXT) =
        "INSERT INTO shunt_setting (volume, key, value) VALUES ($1, $2, '1')
         ON CONFLICT (volume, key) DO UPDATE SET value = (shunt_setting.value::BIGINT + 1)::TEXT
         RETURNING value::BIGINT";
    set_in_turn (INT8, TEXT, TEXT, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY) =
        "WITH turn AS (SELECT volume FROM shunt_setting WHERE volume = $1 AND key = $2 AND value = $3 FOR UPDATE),
         dropped AS (DELETE FROM shunt_setting s USING turn WHERE s.volume = turn.volume AND s.key = ANY ($6)),
         put AS (INSERT INTO shunt_setting (volume, key, value)
             SELECT turn.volume, w.key, w.value FROM turn, unnest($4, $5) AS w (key, value)
             ON CONFLICT (volume, key) DO UPDATE SET value = excluded.value)
         SELECT count(*) > 0 FROM turn";
    move_chunks (INT8, TEXT, TEXT, TEXT, BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, TEXT_ARRAY,
                 INT8_ARRAY, INT8_ARRAY, INT8_ARRAY) =
        "WITH turn AS (SELECT v.volume FROM shunt_volume v JOIN shunt_setting s ON s.volume = v.volume
             WHERE v.volume = $1 AND s.key = $2 AND s.value = $3 FOR UPDATE),
         moved AS (UPDATE shunt_chunk c SET key = w.to_key, place = w.to_place, stored = w.to_stored, length = w.to_length
             FROM turn, unnest($5, $6, $7, $8, $9, $10, $11, $12, $13)
                 AS w (id, key, place, stored, length, to_key, to_place, to_stored, to_length)
             WHERE c.volume = turn.volume AND c.id = w.id AND c.key = w.key AND c.place = w.place
                 AND c.stored = w.stored AND c.length = w.length RETURNING 1),
         counted AS (INSERT INTO shunt_setting (volume, key, value) SELECT volume, $4, '1' FROM turn
             ON CONFLICT (volume, key) DO UPDATE SET value = (shunt_setting.value::BIGINT + 1)::TEXT)
         SELECT count(*) > 0, (SELECT count(*) FROM moved) FROM turn";
    scan (INT8, BYTEA, INT8) =
        "SELECT id, parent, names, body FROM shunt_object WHERE volume = $1 AND id >= $2 ORDER BY id LIMIT $3";
    scan_links (INT8, BYTEA, BYTEA) =
        "SELECT parent, name, child, seq FROM shunt_link WHERE volume = $1 AND parent BETWEEN $2 AND $3
         ORDER BY parent, name";
    log (INT8, INT8, INT8) =
        "SELECT seq, node, at, change FROM shunt_log WHERE volume = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    locate_chunks (INT8, BYTEA_ARRAY) =
        "SELECT id, key, place, stored, length, gone FROM shunt_chunk WHERE volume = $1 AND id = ANY ($2)";
    scan_chunks (INT8, BYTEA, INT8) =
        "SELECT id, key, place, stored, length, gone FROM shunt_chunk WHERE volume = $1 AND id > $2
         ORDER BY id LIMIT $3";
    mark_chunks (INT8, BYTEA_ARRAY, INT8) =
        "UPDATE shunt_chunk SET gone = $3 WHERE volume = $1 AND id = ANY ($2) AND gone IS NULL";
    unmark_chunks (INT8, BYTEA_ARRAY) =
        "UPDATE shunt_chunk SET gone = NULL WHERE volume = $1 AND id = ANY ($2) AND gone IS NOT NULL";
    drop_chunks (INT8, BYTEA_ARRAY, INT8) =
        "DELETE FROM shunt_chunk WHERE volume = $1 AND id = ANY ($2) AND gone <= $3";
}
