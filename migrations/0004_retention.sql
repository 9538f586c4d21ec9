-- What is thinned out or removed for its age.
CREATE INDEX metric_chunks_full ON metric_chunks (job) WHERE thinned = 0;
CREATE INDEX idempotency_keys_of_job ON idempotency_keys (job);
CREATE INDEX jobs_by_end ON jobs (ended_us, id) WHERE state >= 7;

-- Logs go in three steps, each of which can be done again: logs_going is set, the files are removed,
-- logs_removed_us becomes the end of the job that they were of (it may run again after that).
ALTER TABLE jobs ADD COLUMN logs_going INTEGER NOT NULL DEFAULT 0 CHECK (logs_going IN (0, 1));
ALTER TABLE jobs ADD COLUMN logs_removed_us INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_logs_going ON jobs (id) WHERE logs_going = 1;
