-- Gangs of any size, on devices of several nodes. Devices are told by name, "alpha:0-3,beta:1", in the
-- order of the cluster: numbers of theirs change with the cluster file, names don't. Which rank ran on
-- which is in the plan.
--
-- A CHECK can't be changed in place: table jobs is made anew. Its children refer to it by name; while it
-- is away, the database counts what refers to nothing, and at the commit that has to be none.
PRAGMA defer_foreign_keys = ON;
CREATE TABLE jobs_before AS SELECT * FROM jobs;
CREATE TABLE jobs_sequence AS SELECT seq FROM sqlite_sequence WHERE name = 'jobs';
DROP TABLE jobs;
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
    devices INTEGER NOT NULL CHECK (devices BETWEEN 1 AND 131072),
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
    quarantine TEXT NOT NULL DEFAULT '',
    logs_going INTEGER NOT NULL DEFAULT 0 CHECK (logs_going IN (0, 1)),
    logs_removed_us INTEGER NOT NULL DEFAULT 0,
    -- Times that it gave its devices to another job.
    evictions INTEGER NOT NULL DEFAULT 0 CHECK (evictions >= 0),
    -- Devices that are kept for it while it waits; '' = none.
    claim TEXT NOT NULL DEFAULT '',
    -- Its age in the queue counts from here; kept over an eviction.
    queued_us INTEGER NOT NULL DEFAULT 0,
    -- The wait that it is in (0 = it doesn't wait), and the sum of those that are over.
    waits_us INTEGER NOT NULL DEFAULT 0,
    wait_us INTEGER NOT NULL DEFAULT 0 CHECK (wait_us >= 0)
) STRICT;
INSERT INTO jobs (id, name, tenant, user, state, target, cause, message, priority, devices,
                  total_steps, attempt, restarts, mark_step, step, loss, step_ms, tokens_per_s, mfu,
                  not_before_us, created_us, started_us, ended_us, export_dir, quarantine,
                  logs_going, logs_removed_us, queued_us, waits_us)
    SELECT id, name, tenant, user, state, target, cause, message, priority, devices, total_steps,
           attempt, restarts, mark_step, step, loss, step_ms, tokens_per_s, mfu, not_before_us,
           created_us, started_us, ended_us, export_dir, quarantine, logs_going, logs_removed_us,
           created_us, CASE state WHEN 1 THEN created_us ELSE 0 END
    FROM jobs_before ORDER BY id;
DELETE FROM sqlite_sequence WHERE name = 'jobs';
INSERT INTO sqlite_sequence (name, seq) SELECT 'jobs', seq FROM jobs_sequence;
DROP TABLE jobs_before;
DROP TABLE jobs_sequence;
CREATE INDEX jobs_live ON jobs (id) WHERE state < 7;
CREATE INDEX jobs_of_tenant ON jobs (tenant, id);
CREATE INDEX jobs_by_name ON jobs (name, tenant);
CREATE INDEX jobs_by_end ON jobs (ended_us, id) WHERE state >= 7;
CREATE INDEX jobs_logs_going ON jobs (id) WHERE logs_going = 1;

-- node is the host whose tandem-node ran it.
ALTER TABLE attempts ADD COLUMN num_devices INTEGER NOT NULL DEFAULT 0;
-- Since when it had waited for its start, and how long.
ALTER TABLE attempts ADD COLUMN queued_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN wait_us INTEGER NOT NULL DEFAULT 0;
-- Devices x time from created_us until they were free again; 0 until then.
ALTER TABLE attempts ADD COLUMN device_us INTEGER NOT NULL DEFAULT 0;
-- Jobs: stopped to make room for that one; started in front of that one, out of its turn. 0 = none.
ALTER TABLE attempts ADD COLUMN yields_to INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN backfills INTEGER NOT NULL DEFAULT 0;
-- It gave its devices to another job.
ALTER TABLE attempts ADD COLUMN evicted INTEGER NOT NULL DEFAULT 0 CHECK (evicted IN (0, 1));
-- Beyond its tenant's quota when it was started.
ALTER TABLE attempts ADD COLUMN borrowed INTEGER NOT NULL DEFAULT 0 CHECK (borrowed IN (0, 1));
UPDATE attempts SET num_devices = 1 + length(devices) - length(replace(devices, ',', ''))
    WHERE devices <> '';
UPDATE attempts SET device_us = num_devices * max(0, ended_us - created_us) WHERE condition = 5;
UPDATE attempts SET devices = node || ':' || replace(devices, ',', ',' || node || ':')
    WHERE devices <> '';

-- What is not used for new jobs until someone says so. device -1: all of the node.
CREATE TABLE drains (
    node TEXT NOT NULL,
    device INTEGER NOT NULL CHECK (device >= -1),
    reason TEXT NOT NULL DEFAULT '',
    user TEXT NOT NULL,
    time_us INTEGER NOT NULL,
    let_finish INTEGER NOT NULL DEFAULT 0 CHECK (let_finish IN (0, 1)),
    PRIMARY KEY (node, device)
) STRICT, WITHOUT ROWID;
