-- States are the numbers of tandem.v1.JobState. Ids are never used twice.
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 9),
    target INTEGER NOT NULL DEFAULT 0 CHECK (target BETWEEN 0 AND 9),
    cause TEXT NOT NULL,
    message TEXT NOT NULL DEFAULT '',
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 1000),
    devices INTEGER NOT NULL CHECK (devices BETWEEN 1 AND 1024),
    total_steps INTEGER NOT NULL CHECK (total_steps >= 0),
    attempt INTEGER NOT NULL DEFAULT 0,
    restarts INTEGER NOT NULL DEFAULT 0 CHECK (restarts >= 0),
    mark_step INTEGER NOT NULL DEFAULT 0,
    step INTEGER NOT NULL DEFAULT 0,
    loss REAL,
    step_ms REAL,
    tokens_per_s REAL,
    mfu REAL,
    not_before_us INTEGER NOT NULL DEFAULT 0,
    created_us INTEGER NOT NULL,
    started_us INTEGER NOT NULL DEFAULT 0,
    ended_us INTEGER NOT NULL DEFAULT 0,
    export_dir TEXT NOT NULL DEFAULT '',
    quarantine TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX jobs_by_name ON jobs (name);
CREATE INDEX jobs_live ON jobs (id) WHERE state < 7;

-- Apart from jobs: a job row is written at each step, these once. spec: a packed JobSpec with every
-- default filled in. facts: the ProbeReply it was planned with.
CREATE TABLE specs (
    job INTEGER PRIMARY KEY REFERENCES jobs (id),
    spec BLOB NOT NULL,
    sha256 BLOB NOT NULL CHECK (length(sha256) = 32),
    facts BLOB NOT NULL
) STRICT;

CREATE TABLE attempts (
    job INTEGER NOT NULL REFERENCES jobs (id),
    number INTEGER NOT NULL CHECK (number >= 1),
    condition INTEGER NOT NULL,
    token_sha256 BLOB NOT NULL CHECK (length(token_sha256) = 32),
    node TEXT NOT NULL,
    devices TEXT NOT NULL,
    start_step INTEGER NOT NULL,
    resume_dir TEXT NOT NULL DEFAULT '',
    acked_seq INTEGER NOT NULL DEFAULT 0,
    pid INTEGER NOT NULL DEFAULT 0,
    start_time INTEGER NOT NULL DEFAULT 0,
    boot_id TEXT NOT NULL DEFAULT '',
    created_us INTEGER NOT NULL,
    ended_us INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX attempts_live ON attempts (job) WHERE condition < 5;

-- The packed Plan of each attempt.
CREATE TABLE plans (
    job INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    plan BLOB NOT NULL,
    PRIMARY KEY (job, attempt),
    FOREIGN KEY (job, attempt) REFERENCES attempts (job, number)
) STRICT;

CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL REFERENCES jobs (id),
    attempt INTEGER NOT NULL DEFAULT 0,
    time_us INTEGER NOT NULL,
    kind TEXT NOT NULL,
    from_state INTEGER NOT NULL DEFAULT 0,
    to_state INTEGER NOT NULL DEFAULT 0,
    cause TEXT NOT NULL DEFAULT '',
    actor TEXT NOT NULL DEFAULT '',
    message TEXT NOT NULL DEFAULT '',
    step INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX events_of_job ON events (job, id);

CREATE TABLE metrics (
    job INTEGER NOT NULL REFERENCES jobs (id),
    step INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    loss REAL,
    grad_norm REAL,
    lr REAL,
    tokens INTEGER,
    step_ms REAL,
    tokens_per_s REAL,
    mfu REAL,
    PRIMARY KEY (job, step, attempt)
) STRICT, WITHOUT ROWID;

-- States are the numbers of tandem.v1.CheckpointState. dir counts from the job's folder.
CREATE TABLE checkpoints (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL REFERENCES jobs (id),
    attempt INTEGER NOT NULL,
    step INTEGER NOT NULL,
    state INTEGER NOT NULL,
    dir TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    loss REAL,
    created_us INTEGER NOT NULL,
    pinned INTEGER NOT NULL DEFAULT 0,
    UNIQUE (job, step, attempt)
) STRICT;

CREATE TABLE idempotency_keys (
    user TEXT NOT NULL,
    key TEXT NOT NULL,
    job INTEGER NOT NULL REFERENCES jobs (id),
    PRIMARY KEY (user, key)
) STRICT, WITHOUT ROWID;

-- Measured once for a CPU model: FLOP/s of a matrix product on one device.
CREATE TABLE peaks (
    cpu_model TEXT PRIMARY KEY,
    fp32 REAL NOT NULL,
    fp64 REAL NOT NULL,
    measured_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
