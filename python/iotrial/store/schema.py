"""The tables of a store, and the IDs that identify its file.

Observations are only ever added: triggers refuse every UPDATE and DELETE. The state of a trial is its newest
row in ``state``. Its attempts are counted by the rows with ``running``, and each run carries the number of
the attempt that measured it.
"""

from __future__ import annotations

APPLICATION_ID = 0x696F7472  # "iotr", in the file's header
VERSION = 2  # user_version; rises with every change that an older iotrial would misread. 2: checksums

TABLES = ("trial", "state", "run", "block_end", "event")

IMPORTED = "imported"  # kind of the event with the origin of an imported trial
_CREATE = """
CREATE TABLE trial (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    study TEXT NOT NULL,
    seed TEXT NOT NULL,
    seed_chosen INTEGER NOT NULL,
    alpha REAL NOT NULL,
    margin REAL NOT NULL,
    started TEXT NOT NULL,
    lab TEXT NOT NULL,
    host TEXT NOT NULL,
    options TEXT NOT NULL,
    version TEXT NOT NULL
) STRICT;
CREATE TABLE state (
    sequence INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL REFERENCES trial,
    at REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'done', 'interrupted', 'failed', 'invalid')),
    reason TEXT,
    pid INTEGER,
    pid_started TEXT
) STRICT;
CREATE INDEX state_of_trial ON state (trial, sequence);
CREATE TABLE run (
    sequence INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL REFERENCES trial,
    condition TEXT NOT NULL,
    block INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at REAL NOT NULL,
    arm TEXT NOT NULL,
    kind TEXT NOT NULL,
    treatment TEXT NOT NULL,
    started_s REAL NOT NULL,
    failure TEXT,
    responses TEXT NOT NULL,
    evidence TEXT NOT NULL,
    histograms TEXT NOT NULL,
    checks TEXT NOT NULL,
    files TEXT,
    UNIQUE (trial, condition, block, slot)
) STRICT;
CREATE INDEX run_of_attempt ON run (trial, attempt, at);
CREATE TABLE block_end (
    sequence INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL REFERENCES trial,
    condition TEXT NOT NULL,
    block INTEGER NOT NULL,
    round INTEGER NOT NULL,
    controls INTEGER NOT NULL,
    void TEXT,
    void_level TEXT,
    gap INTEGER NOT NULL,
    UNIQUE (trial, condition, block)
) STRICT;
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL REFERENCES trial,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX event_of_trial ON event (trial, sequence);
CREATE TRIGGER run_of_a_finished_block BEFORE INSERT ON run
WHEN EXISTS (
    SELECT 1 FROM block_end
    WHERE trial = NEW.trial AND condition = NEW.condition AND block = NEW.block
)
BEGIN SELECT RAISE(ABORT, 'this block is over: no run can be added to it'); END;
"""
_APPEND_ONLY = """
CREATE TRIGGER {table}_keeps_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, 'stored observations are never changed'); END;
"""
_CHECKSUMS = " ".join(f"ALTER TABLE {table} ADD COLUMN checksum INTEGER;" for table in TABLES)


def statements(version: int = VERSION) -> str:
    """Return the script that turns an empty database into a store, in one transaction."""
    guards = [
        _APPEND_ONLY.format(table=table, verb=verb) for table in TABLES for verb in ("UPDATE", "DELETE")
    ]
    marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version};"
    later = _CHECKSUMS if version >= 2 else ""
    return f"BEGIN IMMEDIATE; {_CREATE} {' '.join(guards)} {later} {marks} COMMIT;"


def migration() -> str:
    """Return the script that migrates version 1 to this version, for an open transaction. Old records stay
    without checksums.
    """
    return f"{_CHECKSUMS} PRAGMA user_version = {VERSION};"
