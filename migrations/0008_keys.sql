-- What was asked for under the key: the same key with another job file is a mistake, and told. NULL:
-- asked for before this was kept.
ALTER TABLE idempotency_keys ADD COLUMN spec_sha256 BLOB
    CHECK (spec_sha256 IS NULL OR length(spec_sha256) = 32);
