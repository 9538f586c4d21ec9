-- Curves in chunks. Table metrics keeps what an attempt reported last, one row a step; full chunks of
-- 1024 steps move to metric_chunks, and the extremes of them to metric_rollups. Rows that are there
-- already are moved by the running server, a chunk at a time.
--
-- Chunk c of an attempt: steps c * 1024 + 1 .. (c + 1) * 1024. Every row of an attempt that lies in its
-- newest chunk or an older one is in a chunk, every later one in metrics. blocks: the extremes of each
-- 128 steps (empty: compute them from data). thinned: data holds the rows that are extremes only.
-- The bytes are described in server/store/metric_codec.c.
CREATE TABLE metric_chunks (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs (id),
    attempt INTEGER NOT NULL,
    chunk INTEGER NOT NULL CHECK (chunk >= 0),
    rows INTEGER NOT NULL CHECK (rows BETWEEN 1 AND 1024),
    first_step INTEGER NOT NULL,
    last_step INTEGER NOT NULL,
    thinned INTEGER NOT NULL DEFAULT 0,
    blocks BLOB NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (job, attempt, chunk)
) STRICT;

-- Level 1 is one chunk; block b of level n is blocks 4 b .. 4 b + 3 of level n - 1.
CREATE TABLE metric_rollups (
    job INTEGER NOT NULL REFERENCES jobs (id),
    attempt INTEGER NOT NULL,
    level INTEGER NOT NULL CHECK (level BETWEEN 1 AND 12),
    block INTEGER NOT NULL CHECK (block >= 0),
    data BLOB NOT NULL,
    PRIMARY KEY (job, attempt, level, block)
) STRICT, WITHOUT ROWID;

-- Checksums of what has none yet; NULL: written before there were any.
ALTER TABLE specs ADD COLUMN facts_sha256 BLOB;
ALTER TABLE plans ADD COLUMN sha256 BLOB;
