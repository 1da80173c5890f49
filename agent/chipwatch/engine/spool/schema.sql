PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL;
PRAGMA cache_size=-256;
PRAGMA journal_size_limit=4194304;
CREATE TABLE IF NOT EXISTS chunk (
    key INTEGER PRIMARY KEY, points INTEGER NOT NULL, done INTEGER NOT NULL, rest INTEGER,
    newest INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER, destination BLOB
);
CREATE TABLE IF NOT EXISTS aside (key INTEGER, why TEXT, body BLOB);
CREATE TABLE IF NOT EXISTS ledger (entry TEXT PRIMARY KEY, points INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memo (name TEXT PRIMARY KEY, body BLOB NOT NULL, crc INTEGER) WITHOUT ROWID;
-- Fails where rot has changed the name of a column that is not read at the start.
SELECT crc FROM chunk WHERE 0;
