-- Columns of pieces are those of Piece. Arrays are blobs of int32 (lengths, steps), bool (terminated) or float64; other
-- values are JSON. Decisions are what a run that resumes must do again, state is what a run says of itself last. The
-- checksum of a row covers all of it: SQLite finds damaged tables, not damaged numbers.

CREATE TABLE header (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL) STRICT;

CREATE TABLE decisions (
    round INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, checksum BLOB NOT NULL, PRIMARY KEY (round, name)
) STRICT;

CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL) STRICT;

CREATE TABLE pieces (
    number INTEGER PRIMARY KEY, round INTEGER NOT NULL, lengths BLOB NOT NULL, steps BLOB NOT NULL,
    rewards BLOB NOT NULL, signal BLOB, starts BLOB, features BLOB, terminated BLOB,
    seconds REAL NOT NULL, checksum BLOB NOT NULL
) STRICT;

CREATE TABLE resets (
    number INTEGER PRIMARY KEY, starts BLOB NOT NULL, seconds REAL NOT NULL, checksum BLOB NOT NULL
) STRICT;
