-- What a tenant may have of the devices; -1 = no quota, no limit. weight: share that is fair.
ALTER TABLE tenants ADD COLUMN quota_devices INTEGER NOT NULL DEFAULT -1
    CHECK (quota_devices BETWEEN -1 AND 131072);
ALTER TABLE tenants ADD COLUMN max_devices INTEGER NOT NULL DEFAULT -1
    CHECK (max_devices BETWEEN -1 AND 131072);
ALTER TABLE tenants ADD COLUMN weight REAL NOT NULL DEFAULT 1
    CHECK (weight > 0 AND weight <= 1e6);
