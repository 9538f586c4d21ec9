-- Who may come in, and what they did. What one user had so far is of tenant default, user dev.
-- Roles are words: viewer, member, tenant-admin, admin.
CREATE TABLE tenants (
    name TEXT PRIMARY KEY,
    created_us INTEGER NOT NULL,
    disabled INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1))
) STRICT, WITHOUT ROWID;
INSERT INTO tenants (name, created_us)
    SELECT 'default', CAST(strftime('%s', 'now') AS INTEGER) * 1000000;
INSERT OR IGNORE INTO tenants (name, created_us)
    SELECT tenant, min(created_us) FROM jobs GROUP BY tenant;

CREATE TABLE users (
    tenant TEXT NOT NULL REFERENCES tenants (name),
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'member', 'tenant-admin', 'admin')),
    disabled INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1)),
    created_us INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
INSERT INTO users (tenant, name, role, created_us)
    SELECT 'default', 'dev', 'admin', created_us FROM tenants WHERE name = 'default';
INSERT OR IGNORE INTO users (tenant, name, role, created_us)
    SELECT tenant, user, 'member', min(created_us) FROM jobs GROUP BY tenant, user;

-- Of a token only its hash is kept. expired: it was seen past expires_us once, and stays so
-- whatever the clock says later.
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    label TEXT NOT NULL DEFAULT '',
    sha256 BLOB NOT NULL UNIQUE CHECK (length(sha256) = 32),
    prefix TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL DEFAULT 0,
    expired INTEGER NOT NULL DEFAULT 0 CHECK (expired IN (0, 1)),
    revoked_us INTEGER NOT NULL DEFAULT 0,
    last_used_us INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (tenant, user) REFERENCES users (tenant, name)
) STRICT;
CREATE INDEX tokens_of_user ON tokens (tenant, user, id);
CREATE INDEX tokens_live ON tokens (id) WHERE revoked_us = 0 AND expired = 0;

-- tenant, user, token_id: who did it; all empty for callers that showed no good token.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_us INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    token_id INTEGER NOT NULL DEFAULT 0,
    method TEXT NOT NULL,
    object TEXT NOT NULL DEFAULT '',
    result TEXT NOT NULL,
    peer TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX audit_of_tenant ON audit (tenant, id);
CREATE INDEX audit_by_time ON audit (time_us);

-- Two tenants may have users of one name, and these the same key.
CREATE TABLE keys_by_tenant (
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    key TEXT NOT NULL,
    job INTEGER NOT NULL REFERENCES jobs (id),
    PRIMARY KEY (tenant, user, key)
) STRICT, WITHOUT ROWID;
INSERT INTO keys_by_tenant (tenant, user, key, job)
    SELECT j.tenant, k.user, k.key, k.job FROM idempotency_keys k JOIN jobs j ON j.id = k.job;
DROP TABLE idempotency_keys;
ALTER TABLE keys_by_tenant RENAME TO idempotency_keys;

-- Lists and watches of one tenant don't look at the rows of others.
CREATE INDEX jobs_of_tenant ON jobs (tenant, id);
DROP INDEX jobs_by_name;
CREATE INDEX jobs_by_name ON jobs (name, tenant);
ALTER TABLE events ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
UPDATE events SET tenant = (SELECT tenant FROM jobs WHERE jobs.id = events.job)
    WHERE job IN (SELECT id FROM jobs WHERE tenant <> 'default');
CREATE INDEX events_of_tenant ON events (tenant, id);
